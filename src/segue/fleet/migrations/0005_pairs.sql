-- A session is kept before its snapshot is pushed, and whoever takes the task over needs the one that
-- belongs to the snapshot that it finds: the newest, or the one before. What an older segue writes was
-- pushed already.
ALTER TABLE segue.session ADD COLUMN is_pushed boolean NOT NULL DEFAULT true;
CREATE TABLE segue.session_before (LIKE segue.session INCLUDING ALL);
