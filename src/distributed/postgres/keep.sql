-- Parameters: number, owner, milliseconds.
UPDATE perkey_fence SET owner = NULL, kept_until = clock_timestamp() + $3::bigint * interval '1 millisecond'
WHERE id = $1::bigint AND owner = $2::text
