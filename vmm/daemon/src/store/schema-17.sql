-- Version 17: the last use of snapshots.

-- Time of the last request that names it, or the last time that a VM was seen that continues it.
ALTER TABLE snapshot ADD COLUMN used_ms INTEGER NOT NULL DEFAULT 0;
