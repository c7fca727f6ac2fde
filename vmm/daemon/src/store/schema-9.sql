-- Version 9: inodes, and what machines and runs keep.

-- Most files, directories and links of a tenant. As many as its default storage has room for.
ALTER TABLE tenant ADD COLUMN max_inodes INTEGER NOT NULL DEFAULT 4194304;

-- Inodes that a volume may have: as many as it had room for so far.
ALTER TABLE volume ADD COLUMN inodes INTEGER NOT NULL DEFAULT 0;
UPDATE volume SET inodes = size / 4096;
ALTER TABLE deleted_volume ADD COLUMN inodes INTEGER NOT NULL DEFAULT 0;
UPDATE deleted_volume SET inodes = size / 4096;

-- Bytes of a machine's row and input, and of its outputs: while it is active, what they may have.
-- What earlier versions kept is not counted; it goes with garbage collection.
ALTER TABLE machine ADD COLUMN fixed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE machine ADD COLUMN outputs INTEGER NOT NULL DEFAULT 0;
CREATE INDEX machine_storage ON machine (tenant, fixed, outputs);
