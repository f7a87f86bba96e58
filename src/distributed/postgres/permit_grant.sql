-- The first place that is free, and its token in one step. Parameters: numbers of the places, number of the counter, namespace, key, owner, mark.
WITH session AS MATERIALIZED (
    SELECT current_setting('perkey.session', true) IS NOT DISTINCT FROM $6::text AS is_own
), got AS MATERIALIZED (
    SELECT place FROM session, unnest($1::bigint[]) AS place
    WHERE CASE
        WHEN NOT is_own THEN false
        WHEN EXISTS (SELECT FROM perkey_fence WHERE id = place AND kept_until > clock_timestamp()) THEN false
        ELSE pg_try_advisory_lock(place)
    END
    LIMIT 1
), counted AS (
    INSERT INTO perkey_fence AS fence (id, namespace, key, kind, token)
    SELECT $2::bigint, $3::bytea, $4::bytea, 'permits', 1 FROM got
    ON CONFLICT (id) DO UPDATE SET token = fence.token + 1
    RETURNING token
), noted AS (
    INSERT INTO perkey_fence AS fence (id, namespace, key, kind, token, owner, backend)
    SELECT place, $3::bytea, $4::bytea, 'permit', counted.token, $5::text, pg_backend_pid() FROM got, counted
    ON CONFLICT (id) DO UPDATE SET
        namespace = excluded.namespace, key = excluded.key, kind = excluded.kind, token = excluded.token,
        owner = excluded.owner, backend = excluded.backend, kept_until = NULL
    WHERE fence.kept_until IS NULL OR fence.kept_until <= clock_timestamp()
    RETURNING token
)
SELECT
    is_own,
    (SELECT place FROM got) AS locked,
    (SELECT token FROM noted) AS token,
    NULL::bigint AS kept_for
FROM session
