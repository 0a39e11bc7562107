-- What workers ask for: with thousands of tasks, nobody reads all of them. NULL: an older segue wrote
-- the row, and it is always looked at.
ALTER TABLE segue.task ADD COLUMN holder_machine text;
ALTER TABLE segue.task ADD COLUMN tree_machine text;
ALTER TABLE segue.task ADD COLUMN project text;
ALTER TABLE segue.task ADD COLUMN account text;
ALTER TABLE segue.task ADD COLUMN priority integer;
ALTER TABLE segue.task ADD COLUMN not_before double precision;
CREATE INDEX task_next ON segue.task ((state = 'queued'), (coalesce(priority, 0)) DESC, number)
    WHERE NOT is_over AND holder IS NULL;
CREATE INDEX task_due ON segue.task (not_before)
    WHERE NOT is_over AND holder IS NULL AND not_before > 0;
CREATE INDEX task_held_by ON segue.task (holder_machine) WHERE holder IS NOT NULL;
CREATE INDEX task_tree ON segue.task (tree_machine) WHERE is_over AND tree_machine IS NOT NULL;
-- Moves whenever a task changes, so that those who wait need not read any.
CREATE SEQUENCE segue.change;
