-- Version 1 of the daemon's database. Times are milliseconds since 1970.

CREATE TABLE tenant (
    name TEXT PRIMARY KEY,
    weight INTEGER NOT NULL,
    max_machines INTEGER NOT NULL,
    max_memory INTEGER NOT NULL,
    max_queued INTEGER NOT NULL,
    max_storage INTEGER NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;

-- A key is shown once; what is kept cannot be turned back into it.
CREATE TABLE key (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL REFERENCES tenant (name) ON DELETE CASCADE,
    scope TEXT NOT NULL,
    hash BLOB NOT NULL,
    label TEXT NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;

-- An upload as one tenant sees it. The files are shared by content.
CREATE TABLE program (
    tenant TEXT NOT NULL REFERENCES tenant (name),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    size INTEGER NOT NULL,
    programs TEXT NOT NULL,
    state TEXT NOT NULL,
    message TEXT NOT NULL,
    files TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;

CREATE TABLE machine (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL REFERENCES tenant (name),
    spec TEXT NOT NULL,
    state TEXT NOT NULL,
    pid INTEGER,
    pid_start INTEGER,
    killed INTEGER NOT NULL DEFAULT 0,
    result TEXT,
    message TEXT NOT NULL DEFAULT '',
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    ended_ms INTEGER
) STRICT;

CREATE INDEX machine_by_tenant ON machine (tenant, id);

-- What a request with an idempotency key made, and a hash of the request.
CREATE TABLE idempotency (
    tenant TEXT NOT NULL REFERENCES tenant (name) ON DELETE CASCADE,
    key TEXT NOT NULL,
    request BLOB NOT NULL,
    machine TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT;
