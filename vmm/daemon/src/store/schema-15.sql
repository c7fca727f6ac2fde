-- Version 15: secrets.

CREATE TABLE secret (
    tenant TEXT NOT NULL REFERENCES tenant (name) ON DELETE CASCADE,
    name TEXT NOT NULL,
    -- The encrypted contents.
    sealed BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;
