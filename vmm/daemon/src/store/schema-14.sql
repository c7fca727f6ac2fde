-- Version 14: snapshots of machines.

CREATE TABLE snapshot (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL REFERENCES tenant (name),
    name TEXT,
    -- The machine that it was made of, which may be gone.
    machine TEXT NOT NULL,
    -- The machine's specification at that time.
    spec TEXT NOT NULL,
    -- Bytes of its files; the most that they may have until it is complete.
    size INTEGER NOT NULL,
    -- 0: its files are being written, or their writer has ended.
    complete INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX snapshot_by_tenant ON snapshot (tenant, id);
CREATE UNIQUE INDEX snapshot_by_name ON snapshot (tenant, name) WHERE name IS NOT NULL;
