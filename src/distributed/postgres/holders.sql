-- Parameters: namespace, prefix, length of the prefix.
-- A row tells who was granted it last; that it is held only the lock of that session says.
SELECT
    fence.key,
    CASE WHEN held.id IS NOT NULL THEN fence.owner END AS owner,
    fence.token,
    ceil(extract(epoch FROM fence.kept_until - clock_timestamp()) * 1000)::bigint AS kept_for
FROM perkey_fence AS fence
LEFT JOIN (
    SELECT classid::bigint << 32 | objid::bigint AS id, pid FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ExclusiveLock' AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
) AS held ON held.id = fence.id AND held.pid = fence.backend
WHERE fence.namespace = $1::bytea AND substring(fence.key FROM 1 FOR $3::integer) = $2::bytea
    AND (held.id IS NOT NULL OR fence.kept_until > clock_timestamp())
ORDER BY fence.key, fence.token
