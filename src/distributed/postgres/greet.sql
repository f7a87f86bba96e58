-- Where the connection just ends (a machine loses its power, a cable is cut), the server finds out after some 20 seconds, not hours, and
-- frees what the session held. What somebody else has locked is waited for so long only; and no statement takes longer than the session is
-- believed in without an answer.
SELECT set_config(wanted.name, wanted.value, false)
FROM (VALUES
    ('tcp_keepalives_idle', '10'),
    ('tcp_keepalives_interval', '5'),
    ('tcp_keepalives_count', '3'),
    ('tcp_user_timeout', '20000'),
    ('idle_session_timeout', '0'),
    ('lock_timeout', '1000'),
    ('statement_timeout', '5000'),
    ('default_transaction_isolation', 'read committed'),
    ('default_transaction_read_only', 'off')
) AS wanted (name, value)
WHERE EXISTS (SELECT FROM pg_settings WHERE pg_settings.name = wanted.name);
-- A token that was given out must not be given out again after a crash.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
