-- Parameters: number, mark, channel.
SELECT
    is_own,
    CASE WHEN is_own THEN pg_advisory_unlock($1::bigint) ELSE false END AS was_held,
    CASE WHEN is_own THEN pg_notify($3::text, '') END AS told
FROM (SELECT current_setting('perkey.session', true) IS NOT DISTINCT FROM $2::text AS is_own) AS session
