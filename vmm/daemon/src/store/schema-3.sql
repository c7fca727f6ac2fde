-- Version 3: volumes. Those of a machine are in its spec.

CREATE TABLE volume (
    tenant TEXT NOT NULL REFERENCES tenant (name),
    name TEXT NOT NULL,
    -- Names its directory.
    id TEXT NOT NULL UNIQUE,
    -- Bytes that it may hold.
    size INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;
