-- Parameters: number, mark.
SELECT
    current_setting('perkey.session', true) IS NOT DISTINCT FROM $2::text AS is_own,
    EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objsubid = 1 AND granted
            AND (classid::bigint << 32 | objid::bigint) = $1::bigint
    ) AS is_held
