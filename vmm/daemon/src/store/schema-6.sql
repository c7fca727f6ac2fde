-- Version 6: a stable code for what went wrong with a program.

ALTER TABLE program ADD COLUMN problem TEXT NOT NULL DEFAULT '';
