-- The agent is a property of the leg. Runs of earlier versions had one.
ALTER TABLE leg ADD COLUMN agent TEXT NOT NULL DEFAULT '';
UPDATE leg SET agent = (SELECT agent FROM run WHERE run.id = leg.run);
