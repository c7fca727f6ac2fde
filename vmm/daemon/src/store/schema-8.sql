-- Version 8: volumes that were deleted. Their directories go before these rows do.

CREATE TABLE deleted_volume (
    -- Names its directory.
    id TEXT PRIMARY KEY,
    -- Whose storage it still takes; empty if nobody is known.
    tenant TEXT NOT NULL,
    size INTEGER NOT NULL
) STRICT;
