-- What agents say, for those who look from other machines: redacted, in compressed pieces, the newest
-- of each run. `place`: how far the leg's output was read, for whoever goes on after a kill.
CREATE TABLE segue.words (
    run bytea NOT NULL,
    number bigint NOT NULL,
    leg integer NOT NULL,
    place bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    bytes integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run, number)
);
CREATE INDEX words_at ON segue.words (at);
-- What came of a run: its answer, files, diff and cost, as its own machine told them last.
CREATE TABLE segue.result (
    run bytea PRIMARY KEY,
    machine text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    data bytea NOT NULL
);
CREATE INDEX result_at ON segue.result (at);
-- Calls of a kept session of which nobody knows whether the snapshot has what they did. JSON, with the
-- snapshot that it is about: an older segue leaves it as it is.
ALTER TABLE segue.session ADD COLUMN doubt bytea NOT NULL DEFAULT '';
