UPDATE job SET owner = $1, claimed_at = clock_timestamp(), token = token + 1
WHERE id = (
    SELECT id FROM job
    WHERE done_at IS NULL AND (owner IS NULL OR claimed_at < clock_timestamp() - interval '5 minutes')
    ORDER BY id
    FOR UPDATE SKIP LOCKED
    LIMIT 1
)
RETURNING id, token
