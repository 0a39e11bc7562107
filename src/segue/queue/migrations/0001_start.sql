-- Tasks. `data` is the whole task as JSON; the other columns are what is asked for.
CREATE TABLE task (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    is_over INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0, -- grows with everyone who is given the task
    holder TEXT, -- who carries it
    data TEXT NOT NULL
);
CREATE INDEX task_open ON task (is_over) WHERE is_over = 0;
