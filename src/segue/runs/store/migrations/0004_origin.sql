-- Runs that go on with a session which died without segue: its id.
ALTER TABLE run ADD COLUMN origin TEXT NOT NULL DEFAULT '';
