-- Version 10: inodes of machines. Logs have a number of files that the configuration sets; those of
-- earlier versions had two.

ALTER TABLE machine ADD COLUMN inodes INTEGER NOT NULL DEFAULT 5;
DROP INDEX machine_storage;
CREATE INDEX machine_storage ON machine (tenant, fixed, outputs, inodes);
