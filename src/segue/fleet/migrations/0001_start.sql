-- The fleet's tables. Text of users may hold bytes that are no UTF-8, so it is kept as bytes.
CREATE TABLE segue.task (
    number bigserial PRIMARY KEY,
    id text NOT NULL UNIQUE,
    state text NOT NULL,
    is_over boolean NOT NULL,
    place bytea NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    holder bytea,
    data bytea NOT NULL
);
CREATE INDEX task_open ON segue.task (number) WHERE NOT is_over;
CREATE INDEX task_held ON segue.task (id) WHERE holder IS NOT NULL;

CREATE TABLE segue.event (
    run bytea NOT NULL,
    seq bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run, seq)
);
CREATE TABLE segue.row (
    kind text NOT NULL, -- which table of the projection
    key bytea NOT NULL,
    run bytea NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE INDEX row_run ON segue.row (run, kind);
CREATE TABLE segue.checkpoint (
    run bytea NOT NULL,
    number bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run, number)
);
CREATE TABLE segue.ask (
    number bigserial PRIMARY KEY,
    run bytea NOT NULL,
    what bytea NOT NULL,
    at double precision NOT NULL
);
CREATE INDEX ask_run ON segue.ask (run);
CREATE TABLE segue.lease (
    key bytea PRIMARY KEY,
    epoch bigint NOT NULL,
    holder bytea
);
CREATE TABLE segue.machine (
    id text PRIMARY KEY,
    name text NOT NULL,
    beat_at timestamptz NOT NULL,
    lease_s double precision NOT NULL, -- after so long without a beat its work is another's
    is_drained boolean NOT NULL DEFAULT false,
    agents text NOT NULL DEFAULT '',
    protocol integer NOT NULL
);
