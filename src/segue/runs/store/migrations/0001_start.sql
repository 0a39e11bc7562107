-- The truth: the log, and what is too large for it.
CREATE TABLE event (
  run TEXT NOT NULL REFERENCES run (id) DEFERRABLE INITIALLY DEFERRED,
  seq INTEGER NOT NULL,
  schema INTEGER NOT NULL,
  at REAL NOT NULL,
  machine TEXT NOT NULL,
  kind TEXT NOT NULL,
  data TEXT NOT NULL,
  draw REAL,
  decisions TEXT NOT NULL,
  state TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE checkpoint (
  run TEXT NOT NULL REFERENCES run (id),
  number INTEGER NOT NULL,
  at REAL NOT NULL,
  data TEXT NOT NULL,
  PRIMARY KEY (run, number)
);

-- Between processes.
CREATE TABLE ask (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  run TEXT NOT NULL REFERENCES run (id),
  what TEXT NOT NULL,
  at REAL NOT NULL
);
CREATE INDEX ask_run ON ask (run, number);
CREATE TABLE lease (
  key TEXT PRIMARY KEY,
  epoch INTEGER NOT NULL,
  at REAL NOT NULL,
  holder TEXT
) WITHOUT ROWID;

-- Made from the log.
CREATE TABLE run (
  id TEXT PRIMARY KEY,
  agent TEXT NOT NULL,
  cwd TEXT NOT NULL,
  created_at REAL NOT NULL,
  task TEXT NOT NULL
);
CREATE INDEX run_cwd ON run (cwd, created_at);
CREATE TABLE snapshot (
  run TEXT PRIMARY KEY REFERENCES run (id),
  seq INTEGER NOT NULL,
  at REAL NOT NULL,
  state TEXT NOT NULL,
  is_final INTEGER NOT NULL,
  data TEXT NOT NULL
);
CREATE TABLE leg (
  run TEXT NOT NULL REFERENCES run (id),
  leg INTEGER NOT NULL,
  purpose TEXT NOT NULL DEFAULT 'work',
  prompt TEXT NOT NULL DEFAULT 'task',
  strategy TEXT NOT NULL DEFAULT 'checkpoint',
  session_id TEXT NOT NULL DEFAULT '',
  planned_at REAL,
  started_at REAL,
  replied_at REAL,
  ended_at REAL,
  reason TEXT NOT NULL DEFAULT '',
  progressed INTEGER NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0,
  cost_usd REAL NOT NULL DEFAULT 0.0,
  active_s REAL NOT NULL DEFAULT 0.0,
  fault TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (run, leg)
) WITHOUT ROWID;
CREATE TABLE reading (
  run TEXT NOT NULL REFERENCES run (id),
  seq INTEGER NOT NULL,
  at REAL NOT NULL,
  leg INTEGER NOT NULL,
  used_tokens INTEGER NOT NULL,
  window_tokens INTEGER NOT NULL,
  reading TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE stop (
  run TEXT NOT NULL REFERENCES run (id),
  seq INTEGER NOT NULL,
  at REAL NOT NULL,
  leg INTEGER NOT NULL,
  reason TEXT NOT NULL,
  stop TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE decision (
  run TEXT NOT NULL REFERENCES run (id),
  seq INTEGER NOT NULL,
  place INTEGER NOT NULL,
  at REAL NOT NULL,
  decision TEXT NOT NULL,
  reason TEXT NOT NULL,
  data TEXT NOT NULL,
  PRIMARY KEY (run, seq, place)
) WITHOUT ROWID;
CREATE TABLE timer (
  run TEXT PRIMARY KEY REFERENCES run (id),
  until REAL NOT NULL,
  since REAL NOT NULL,
  why TEXT NOT NULL
) WITHOUT ROWID;
