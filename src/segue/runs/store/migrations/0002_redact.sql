-- What earlier versions kept of sessions as it came. The task, the flags and the check are the user's
-- own words, and stay. `redacted` and `redacted_text` are Python's (store/redacting.py).
UPDATE checkpoint SET data = redacted(data, '');
UPDATE event SET data = redacted(data, '') WHERE kind IN ('legended', 'unstartable');
UPDATE event SET decisions = redacted(decisions, '');
UPDATE snapshot SET data = redacted(data, 'stop failure outcome outcome_due');
UPDATE stop SET stop = redacted(stop, '');
UPDATE decision SET reason = redacted_text(reason), data = redacted(data, '');
UPDATE leg SET fault = redacted_text(fault) WHERE fault <> '';
