-- Version 12: restart policies.

-- Whether a client has stopped or killed the machine: it is not restarted.
ALTER TABLE machine ADD COLUMN stopped INTEGER NOT NULL DEFAULT 0;
-- Restarts by the machine's policy since a client started it.
ALTER TABLE machine ADD COLUMN restarts INTEGER NOT NULL DEFAULT 0;
