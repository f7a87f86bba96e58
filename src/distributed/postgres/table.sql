CREATE TABLE perkey_fence (
    id bigint PRIMARY KEY,
    namespace bytea NOT NULL,
    key bytea NOT NULL,
    kind text NOT NULL,
    token bigint NOT NULL,
    owner text,
    backend integer,
    kept_until timestamptz
) WITH (fillfactor = 50)
