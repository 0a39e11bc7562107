BEGIN TRANSACTION;
CREATE TABLE note (
      seq INTEGER PRIMARY KEY AUTOINCREMENT,
      at REAL NOT NULL,
      kind TEXT NOT NULL,
      agent TEXT NOT NULL,
      session_id TEXT NOT NULL,
      project TEXT NOT NULL,
      data TEXT NOT NULL
    );
INSERT INTO "note" VALUES(1,1.79494294199073219303e+09,'daemon','','','','{"event":"started","pid":24006}');
INSERT INTO "note" VALUES(2,1.79494294930779433247e+09,'daemon','','','','{"event":"stopped"}');
CREATE INDEX note_of_session ON note (session_id, agent, seq) WHERE session_id <> '';
CREATE INDEX note_by_kind ON note (kind, at);
CREATE INDEX note_kind_seq ON note (kind, seq);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('note',2);
COMMIT;
PRAGMA user_version = 1;
