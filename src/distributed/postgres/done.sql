UPDATE job SET done_at = clock_timestamp(), result = $1 WHERE id = $2 AND token = $3
