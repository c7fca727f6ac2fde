-- Version 16: deliveries of webhooks.

CREATE TABLE delivery (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL REFERENCES tenant (name) ON DELETE CASCADE,
    -- The machine or run that has ended, which may be gone.
    machine TEXT NOT NULL,
    url TEXT NOT NULL,
    -- Name of the secret that signs.
    secret TEXT NOT NULL,
    body TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    -- The fault of the last attempt.
    error TEXT NOT NULL DEFAULT '',
    created_ms INTEGER NOT NULL,
    -- Time of the next attempt.
    next_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX delivery_by_time ON delivery (tenant, next_ms);
