-- Version 18: suspended machines.

-- The snapshot is a suspended machine, and has no other use.
ALTER TABLE snapshot ADD COLUMN suspends INTEGER NOT NULL DEFAULT 0;
-- Id of the snapshot that the machine continues at its next start, or that it is being suspended with.
ALTER TABLE machine ADD COLUMN suspended TEXT;
-- Milliseconds that the program ran before the machine was last suspended.
ALTER TABLE machine ADD COLUMN ran_ms INTEGER NOT NULL DEFAULT 0;
-- Time at which the machine's last process started, milliseconds since 1970.
ALTER TABLE machine ADD COLUMN entered_ms INTEGER;

CREATE INDEX snapshot_of_machine ON snapshot (machine) WHERE suspends;
