-- Which start of a machine beats, so that two with one id are told apart; what a machine offers.
ALTER TABLE segue.machine ADD COLUMN boot text NOT NULL DEFAULT '';
ALTER TABLE segue.machine ADD COLUMN labels text NOT NULL DEFAULT '';
ALTER TABLE segue.machine ADD COLUMN accounts text NOT NULL DEFAULT '';
ALTER TABLE segue.machine ADD COLUMN jobs integer NOT NULL DEFAULT 0;

-- The limits of accounts. An id is a hash: who that is, and any key, stays on its machine.
CREATE TABLE segue.account (
    id text PRIMARY KEY,
    agent text NOT NULL,
    data bytea NOT NULL
);
-- What legs cost an account.
CREATE TABLE segue.spent (
    account text NOT NULL,
    run bytea NOT NULL,
    leg integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    tokens bigint NOT NULL,
    cost_usd double precision NOT NULL,
    PRIMARY KEY (run, leg)
);
CREATE INDEX spent_account ON segue.spent (account, at);

-- The newest session of a task, for whoever takes it over: what the agent's own file held.
CREATE TABLE segue.session (
    task text PRIMARY KEY,
    run bytea NOT NULL,
    agent text NOT NULL,
    session_id bytea NOT NULL,
    name bytea NOT NULL, -- of its file; empty: not the file, but a checkpoint
    snapshot text NOT NULL, -- of the tree at that moment
    at timestamptz NOT NULL DEFAULT now(),
    bytes bigint NOT NULL, -- before it was compressed
    data bytea NOT NULL
);
-- What an account may do on all machines together.
CREATE TABLE segue.cap (
    account text PRIMARY KEY,
    max_tasks integer,
    max_cost_usd double precision -- in 24 hours
);
