BEGIN TRANSACTION;
CREATE TABLE ask (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  run TEXT NOT NULL REFERENCES run (id),
  what TEXT NOT NULL,
  at REAL NOT NULL
);
CREATE TABLE checkpoint (
  run TEXT NOT NULL REFERENCES run (id),
  number INTEGER NOT NULL,
  at REAL NOT NULL,
  data TEXT NOT NULL,
  PRIMARY KEY (run, number)
);
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
INSERT INTO "decision" VALUES('run-37673008',1,0,1.79494295947336554531e+09,'startleg','a new task','{"decision":"startleg","reason":"a new task","leg":1,"purpose":"work","prompt":"task","session_id":"","strategy":"checkpoint"}');
INSERT INTO "decision" VALUES('run-37673008',4,0,1.79494296095188546184e+09,'runcheck','completed: checking it','{"decision":"runcheck","reason":"completed: checking it"}');
INSERT INTO "decision" VALUES('run-37673008',5,0,1.79494296130376219749e+09,'finish','completed in 1 leg, and the check passed','{"decision":"finish","reason":"completed in 1 leg, and the check passed","state":"done","outcome":{"exit_code":0,"reason":"completed","what":"completed in 1 leg, and the check passed","advice":"To see what was done: segue show run-37673008","change":""}}');
INSERT INTO "decision" VALUES('run-d23373e5',1,0,1.79494296278852534295e+09,'startleg','a new task','{"decision":"startleg","reason":"a new task","leg":1,"purpose":"work","prompt":"task","session_id":"","strategy":"checkpoint"}');
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
INSERT INTO "event" VALUES('run-37673008',1,1,1.79494295947336554531e+09,'machine-1','created','{"run":{"id":"run-37673008","task":"count to three","agent":"js","cwd":"/home/sam/project","created_at":1794942959.4733655,"policy":{"name":"graduated","monitor_mark":0.3,"warning_mark":0.5,"critical_mark":0.7,"soft_mark":0.8,"hard_mark":0.85,"warning_task_tokens":5000,"critical_task_tokens":2000,"reserve_tokens":10000,"tail_lines":100,"context_risk_mark":0.8,"default_window_tokens":200000,"known_windows":{},"exit_patterns":[],"least_confidence":0.8,"resume_user_exits":false,"user_exit_grace_s":600.0,"unknown_reset_wait_s":30.0,"unknown_reset_most_s":300.0,"wait_jitter":0.1,"reset_jitter_least_s":5.0,"reset_jitter_most_s":60.0,"most_limited_s":691200.0,"overload_tries":8,"stall_s":330.0,"tool_stall_s":1800.0,"grace_s":3.0,"checkpoint_s":120.0,"checkpoint_tokens":4000,"same_failures":3,"idle_legs":3,"same_calls":200,"max_idle_replies":100,"max_idle_tokens":20000000,"max_idle_compactions":3,"max_output_bytes":2147483648,"most_checks":3,"recall_after_compaction":true,"most_legs":7,"most_tokens":123456,"most_cost_usd":null,"most_active_s":null,"most_wall_s":null,"auto_handoff":false,"auto_resume":false,"zone_slack":0.02,"remind_every_s":600.0,"gate":"warn","handoff_folder":".segue/handoffs","handoff_wait_s":300.0,"handoffs_at_once":1,"busy_wait_s":120.0,"draft_wait_s":300.0,"resume_places":["pane","window","headless"],"most_resumes":5,"stand_by_s":120.0,"wakes_at_once":1,"wake_gap_s":30.0,"quiet_hours":"","most_unattended":null,"weekly_needs_yes":true,"notify":[],"notify_terse":true},"abilities":{"talks":false,"resumes":false,"resume_factor":1.0,"enforced_tokens":null},"flags":[],"check":"true","state":"starting","leg":0,"is_live":false,"purpose":"work","prompt":"task","session_id":"","has_replied":false,"leg_replied":false,"reading":null,"is_timely":false,"sizes":[],"replies":0,"is_due":false,"asked":false,"asked_at":null,"is_in_tool":false,"told":false,"why":null,"circles":null,"ending":null,"ended_how":"","outcome_due":null,"stop":null,"checkpoint":0,"strategy":"checkpoint","wait":null,"handoffs":0,"limit_tries":0,"limited_s":0.0,"overload_tries":0,"outage_tries":0,"outage_since":null,"outage_legs":0,"failure":"","failures":0,"idle_legs":0,"check_tries":0,"presses":0,"pressed_at":null,"again":"","interrupted":"","strict":false,"active_s":0.0,"leg_since":null,"tokens":0,"cost_usd":0.0,"outcome":null}}',6.46340954037188608616e-01,'[{"decision":"startleg","reason":"a new task","leg":1,"purpose":"work","prompt":"task","session_id":"","strategy":"checkpoint"}]','starting');
INSERT INTO "event" VALUES('run-37673008',2,1,1.79494295965263652801e+09,'machine-1','started','{"leg":1,"session_id":""}',2.09270498592733389386e-01,'[]','starting');
INSERT INTO "event" VALUES('run-37673008',3,1,1.79494295968333363532e+09,'machine-1','replied','{"leg":1,"acted":true}',6.35644674652164676231e-01,'[]','working');
INSERT INTO "event" VALUES('run-37673008',4,1,1.79494296095188546184e+09,'machine-1','legended','{"leg":1,"stop":{"reason":"completed","confidence":0.99,"evidence":[{"rule":"exit.done","quote":"exit code 0","where":"exit"}],"also":[],"resume":"none","retry_at":null,"retry_after_s":null,"tokens":null,"context_risk":false,"details":null,"remediation":"Nothing to do.","ended_by":"unknown","unread":0,"notes":[],"ended_for":"","grants":[]},"replied":true,"progressed":false,"failure":"completed: exit code <n>","tokens":0,"cost_usd":0.0,"active_s":0.18786382675170898}',1.68193467257530926417e-01,'[{"decision":"runcheck","reason":"completed: checking it"}]','checking');
INSERT INTO "event" VALUES('run-37673008',5,1,1.79494296130376219749e+09,'machine-1','checked','{"ok":true,"exit_code":0,"fault":""}',3.72130778698392505887e-01,'[{"decision":"finish","reason":"completed in 1 leg, and the check passed","state":"done","outcome":{"exit_code":0,"reason":"completed","what":"completed in 1 leg, and the check passed","advice":"To see what was done: segue show run-37673008","change":""}}]','done');
INSERT INTO "event" VALUES('run-d23373e5',1,1,1.79494296278852534295e+09,'machine-1','created','{"run":{"id":"run-d23373e5","task":"a task that was cut short","agent":"js","cwd":"/home/sam/project","created_at":1794942962.7885253,"policy":{"name":"graduated","monitor_mark":0.3,"warning_mark":0.5,"critical_mark":0.7,"soft_mark":0.8,"hard_mark":0.85,"warning_task_tokens":5000,"critical_task_tokens":2000,"reserve_tokens":10000,"tail_lines":100,"context_risk_mark":0.8,"default_window_tokens":200000,"known_windows":{},"exit_patterns":[],"least_confidence":0.8,"resume_user_exits":false,"user_exit_grace_s":600.0,"unknown_reset_wait_s":30.0,"unknown_reset_most_s":300.0,"wait_jitter":0.1,"reset_jitter_least_s":5.0,"reset_jitter_most_s":60.0,"most_limited_s":3600.0,"overload_tries":8,"stall_s":330.0,"tool_stall_s":1800.0,"grace_s":3.0,"checkpoint_s":120.0,"checkpoint_tokens":4000,"same_failures":3,"idle_legs":3,"same_calls":200,"max_idle_replies":100,"max_idle_tokens":20000000,"max_idle_compactions":3,"max_output_bytes":2147483648,"most_checks":3,"recall_after_compaction":true,"most_legs":null,"most_tokens":null,"most_cost_usd":null,"most_active_s":null,"most_wall_s":null,"auto_handoff":false,"auto_resume":false,"zone_slack":0.02,"remind_every_s":600.0,"gate":"warn","handoff_folder":".segue/handoffs","handoff_wait_s":300.0,"handoffs_at_once":1,"busy_wait_s":120.0,"draft_wait_s":300.0,"resume_places":["pane","window","headless"],"most_resumes":5,"stand_by_s":120.0,"wakes_at_once":1,"wake_gap_s":30.0,"quiet_hours":"","most_unattended":null,"weekly_needs_yes":true,"notify":[],"notify_terse":true},"abilities":{"talks":false,"resumes":false,"resume_factor":1.0,"enforced_tokens":null},"flags":[],"check":"","state":"starting","leg":0,"is_live":false,"purpose":"work","prompt":"task","session_id":"","has_replied":false,"leg_replied":false,"reading":null,"is_timely":false,"sizes":[],"replies":0,"is_due":false,"asked":false,"asked_at":null,"is_in_tool":false,"told":false,"why":null,"circles":null,"ending":null,"ended_how":"","outcome_due":null,"stop":null,"checkpoint":0,"strategy":"checkpoint","wait":null,"handoffs":0,"limit_tries":0,"limited_s":0.0,"overload_tries":0,"outage_tries":0,"outage_since":null,"outage_legs":0,"failure":"","failures":0,"idle_legs":0,"check_tries":0,"presses":0,"pressed_at":null,"again":"","interrupted":"","strict":false,"active_s":0.0,"leg_since":null,"tokens":0,"cost_usd":0.0,"outcome":null}}',0.290908445165447,'[{"decision":"startleg","reason":"a new task","leg":1,"purpose":"work","prompt":"task","session_id":"","strategy":"checkpoint"}]','starting');
INSERT INTO "event" VALUES('run-d23373e5',2,1,1.794942963023727417e+09,'machine-1','started','{"leg":1,"session_id":""}',7.14123776242223673449e-01,'[]','starting');
INSERT INTO "event" VALUES('run-d23373e5',3,1,1.79494296306714963907e+09,'machine-1','replied','{"leg":1,"acted":true}',6.52543328918812726158e-01,'[]','working');
CREATE TABLE lease (
  key TEXT PRIMARY KEY,
  epoch INTEGER NOT NULL,
  at REAL NOT NULL,
  holder TEXT
) WITHOUT ROWID;
INSERT INTO "lease" VALUES('run:run-37673008',1,1.79494295947790694243e+09,NULL);
INSERT INTO "lease" VALUES('run:run-d23373e5',1,1.79494296280405831334e+09,'{"machine":"machine-1","boot":"e8ef23cd-ad68-43c9-a0d5-f834034435a8","pid":24802,"started":238469.0,"domain":"linux:3d1219c7c4c5404aaa1f6d2a48adfda4:pid:[4026531836]","note":"segue run run-d23373e5"}');
INSERT INTO "lease" VALUES('tree:/home/sam/project',2,1.79494296278929448126e+09,'{"machine":"machine-1","boot":"e8ef23cd-ad68-43c9-a0d5-f834034435a8","pid":24802,"started":238469.0,"domain":"linux:3d1219c7c4c5404aaa1f6d2a48adfda4:pid:[4026531836]","note":"segue run run-d23373e5"}');
INSERT INTO "lease" VALUES('watch',1,1.79494294150388360026e+09,NULL);
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
INSERT INTO "leg" VALUES('run-37673008',1,'work','task','checkpoint','',1.79494295947336554531e+09,1.79494295965263652801e+09,1.79494295968333363532e+09,1.79494296095188546184e+09,'completed',0,0,0.0,1.87863826751708984375e-01,'');
INSERT INTO "leg" VALUES('run-d23373e5',1,'work','task','checkpoint','',1.79494296278852534295e+09,1.794942963023727417e+09,1.79494296306714963907e+09,NULL,'',0,0,0.0,0.0,'');
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
CREATE TABLE run (
  id TEXT PRIMARY KEY,
  agent TEXT NOT NULL,
  cwd TEXT NOT NULL,
  created_at REAL NOT NULL,
  task TEXT NOT NULL
);
INSERT INTO "run" VALUES('run-37673008','js','/home/sam/project',1.79494295947336554531e+09,'count to three');
INSERT INTO "run" VALUES('run-d23373e5','js','/home/sam/project',1.79494296278852534295e+09,'a task that was cut short');
CREATE TABLE snapshot (
  run TEXT PRIMARY KEY REFERENCES run (id),
  seq INTEGER NOT NULL,
  at REAL NOT NULL,
  state TEXT NOT NULL,
  is_final INTEGER NOT NULL,
  data TEXT NOT NULL
);
INSERT INTO "snapshot" VALUES('run-37673008',5,1.79494296130376219749e+09,'done',1,'{"id":"run-37673008","task":"","agent":"js","cwd":"/home/sam/project","created_at":1794942959.4733655,"policy":{"name":"graduated","monitor_mark":0.3,"warning_mark":0.5,"critical_mark":0.7,"soft_mark":0.8,"hard_mark":0.85,"warning_task_tokens":5000,"critical_task_tokens":2000,"reserve_tokens":10000,"tail_lines":100,"context_risk_mark":0.8,"default_window_tokens":200000,"known_windows":{},"exit_patterns":[],"least_confidence":0.8,"resume_user_exits":false,"user_exit_grace_s":600.0,"unknown_reset_wait_s":30.0,"unknown_reset_most_s":300.0,"wait_jitter":0.1,"reset_jitter_least_s":5.0,"reset_jitter_most_s":60.0,"most_limited_s":691200.0,"overload_tries":8,"stall_s":330.0,"tool_stall_s":1800.0,"grace_s":3.0,"checkpoint_s":120.0,"checkpoint_tokens":4000,"same_failures":3,"idle_legs":3,"same_calls":200,"max_idle_replies":100,"max_idle_tokens":20000000,"max_idle_compactions":3,"max_output_bytes":2147483648,"most_checks":3,"recall_after_compaction":true,"most_legs":7,"most_tokens":123456,"most_cost_usd":null,"most_active_s":null,"most_wall_s":null,"auto_handoff":false,"auto_resume":false,"zone_slack":0.02,"remind_every_s":600.0,"gate":"warn","handoff_folder":".segue/handoffs","handoff_wait_s":300.0,"handoffs_at_once":1,"busy_wait_s":120.0,"draft_wait_s":300.0,"resume_places":["pane","window","headless"],"most_resumes":5,"stand_by_s":120.0,"wakes_at_once":1,"wake_gap_s":30.0,"quiet_hours":"","most_unattended":null,"weekly_needs_yes":true,"notify":[],"notify_terse":true},"abilities":{"talks":false,"resumes":false,"resume_factor":1.0,"enforced_tokens":null},"flags":[],"check":"true","state":"done","leg":1,"is_live":false,"purpose":"work","prompt":"task","session_id":"","has_replied":true,"leg_replied":true,"reading":null,"is_timely":false,"sizes":[],"replies":0,"is_due":false,"asked":false,"asked_at":null,"is_in_tool":false,"told":false,"why":null,"circles":null,"ending":null,"ended_how":"","outcome_due":null,"stop":{"reason":"completed","confidence":0.99,"evidence":[{"rule":"exit.done","quote":"exit code 0","where":"exit"}],"also":[],"resume":"none","retry_at":null,"retry_after_s":null,"tokens":null,"context_risk":false,"details":null,"remediation":"Nothing to do.","ended_by":"unknown","unread":0,"notes":[],"ended_for":"","grants":[]},"checkpoint":0,"strategy":"checkpoint","wait":null,"handoffs":0,"limit_tries":0,"limited_s":0.0,"overload_tries":0,"outage_tries":0,"outage_since":null,"outage_legs":0,"failure":"","failures":0,"idle_legs":1,"check_tries":0,"presses":0,"pressed_at":null,"again":"","interrupted":"","strict":false,"active_s":0.18786382675170898,"leg_since":null,"tokens":0,"cost_usd":0.0,"outcome":{"exit_code":0,"reason":"completed","what":"completed in 1 leg, and the check passed","advice":"To see what was done: segue show run-37673008","change":""}}');
INSERT INTO "snapshot" VALUES('run-d23373e5',3,1.79494296306714963907e+09,'working',0,'{"id":"run-d23373e5","task":"","agent":"js","cwd":"/home/sam/project","created_at":1794942962.7885253,"policy":{"name":"graduated","monitor_mark":0.3,"warning_mark":0.5,"critical_mark":0.7,"soft_mark":0.8,"hard_mark":0.85,"warning_task_tokens":5000,"critical_task_tokens":2000,"reserve_tokens":10000,"tail_lines":100,"context_risk_mark":0.8,"default_window_tokens":200000,"known_windows":{},"exit_patterns":[],"least_confidence":0.8,"resume_user_exits":false,"user_exit_grace_s":600.0,"unknown_reset_wait_s":30.0,"unknown_reset_most_s":300.0,"wait_jitter":0.1,"reset_jitter_least_s":5.0,"reset_jitter_most_s":60.0,"most_limited_s":3600.0,"overload_tries":8,"stall_s":330.0,"tool_stall_s":1800.0,"grace_s":3.0,"checkpoint_s":120.0,"checkpoint_tokens":4000,"same_failures":3,"idle_legs":3,"same_calls":200,"max_idle_replies":100,"max_idle_tokens":20000000,"max_idle_compactions":3,"max_output_bytes":2147483648,"most_checks":3,"recall_after_compaction":true,"most_legs":null,"most_tokens":null,"most_cost_usd":null,"most_active_s":null,"most_wall_s":null,"auto_handoff":false,"auto_resume":false,"zone_slack":0.02,"remind_every_s":600.0,"gate":"warn","handoff_folder":".segue/handoffs","handoff_wait_s":300.0,"handoffs_at_once":1,"busy_wait_s":120.0,"draft_wait_s":300.0,"resume_places":["pane","window","headless"],"most_resumes":5,"stand_by_s":120.0,"wakes_at_once":1,"wake_gap_s":30.0,"quiet_hours":"","most_unattended":null,"weekly_needs_yes":true,"notify":[],"notify_terse":true},"abilities":{"talks":false,"resumes":false,"resume_factor":1.0,"enforced_tokens":null},"flags":[],"check":"","state":"working","leg":1,"is_live":true,"purpose":"work","prompt":"task","session_id":"","has_replied":true,"leg_replied":true,"reading":null,"is_timely":false,"sizes":[],"replies":0,"is_due":false,"asked":false,"asked_at":null,"is_in_tool":false,"told":false,"why":null,"circles":null,"ending":null,"ended_how":"","outcome_due":null,"stop":null,"checkpoint":0,"strategy":"checkpoint","wait":null,"handoffs":0,"limit_tries":0,"limited_s":0.0,"overload_tries":0,"outage_tries":0,"outage_since":null,"outage_legs":0,"failure":"","failures":0,"idle_legs":0,"check_tries":0,"presses":0,"pressed_at":null,"again":"","interrupted":"","strict":false,"active_s":0.0,"leg_since":1794942962.7885253,"tokens":0,"cost_usd":0.0,"outcome":null}');
CREATE TABLE stop (
  run TEXT NOT NULL REFERENCES run (id),
  seq INTEGER NOT NULL,
  at REAL NOT NULL,
  leg INTEGER NOT NULL,
  reason TEXT NOT NULL,
  stop TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;
INSERT INTO "stop" VALUES('run-37673008',4,1.79494296095188546184e+09,1,'completed','{"reason":"completed","confidence":0.99,"evidence":[{"rule":"exit.done","quote":"exit code 0","where":"exit"}],"also":[],"resume":"none","retry_at":null,"retry_after_s":null,"tokens":null,"context_risk":false,"details":null,"remediation":"Nothing to do.","ended_by":"unknown","unread":0,"notes":[],"ended_for":"","grants":[]}');
CREATE TABLE timer (
  run TEXT PRIMARY KEY REFERENCES run (id),
  until REAL NOT NULL,
  since REAL NOT NULL,
  why TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX ask_run ON ask (run, number);
CREATE INDEX run_cwd ON run (cwd, created_at);
DELETE FROM "sqlite_sequence";
COMMIT;
PRAGMA user_version = 2;
