-- Version 5: processors that are a machine's own, by number (JSON).

ALTER TABLE machine ADD COLUMN processors TEXT NOT NULL DEFAULT '[]';
