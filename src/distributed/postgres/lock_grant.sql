-- The lock and its token in one step. Parameters: number, namespace, key, owner, mark.
-- The row is read as it is now, not as it was when the statement began: so the counter cannot miss a token, and what is kept is kept.
WITH session AS MATERIALIZED (
    SELECT current_setting('perkey.session', true) IS NOT DISTINCT FROM $5::text AS is_own
), kept AS MATERIALIZED (
    SELECT kept_until FROM perkey_fence WHERE id = $1::bigint AND kept_until > clock_timestamp()
), got AS MATERIALIZED (
    SELECT CASE WHEN is_own AND NOT EXISTS (SELECT FROM kept) THEN pg_try_advisory_lock($1::bigint) ELSE false END AS is_locked
    FROM session
), counted AS (
    INSERT INTO perkey_fence AS fence (id, namespace, key, kind, token, owner, backend)
    SELECT $1::bigint, $2::bytea, $3::bytea, 'lock', 1, $4::text, pg_backend_pid() FROM got WHERE is_locked
    ON CONFLICT (id) DO UPDATE SET
        namespace = excluded.namespace, key = excluded.key, kind = excluded.kind, token = fence.token + 1,
        owner = excluded.owner, backend = excluded.backend, kept_until = NULL
    WHERE fence.kept_until IS NULL OR fence.kept_until <= clock_timestamp()
    RETURNING id, token
)
SELECT
    is_own,
    CASE WHEN is_locked THEN $1::bigint END AS locked,
    (SELECT token FROM counted) AS token,
    (SELECT ceil(extract(epoch FROM kept_until - clock_timestamp()) * 1000)::bigint FROM kept) AS kept_for
FROM session, got
