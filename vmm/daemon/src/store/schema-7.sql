-- Version 7: what programs take on the disk besides the upload, and what is in their files.

-- Bytes of the tree; 0 as long as there is none of the tenant's own.
ALTER TABLE program ADD COLUMN tree_size INTEGER NOT NULL DEFAULT 0;

-- SHA-256 of files of programs that are translated; none of a file that cannot be.
CREATE TABLE program_file (
    tenant TEXT NOT NULL,
    program TEXT NOT NULL,
    inode INTEGER NOT NULL,
    digest BLOB,
    PRIMARY KEY (tenant, program, inode),
    FOREIGN KEY (tenant, program) REFERENCES program (tenant, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX program_file_by_digest ON program_file (tenant, digest);

-- Translation images that a tenant has, by key.
CREATE TABLE image (
    tenant TEXT NOT NULL REFERENCES tenant (name),
    key TEXT NOT NULL,
    -- Bytes of the file.
    size INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
