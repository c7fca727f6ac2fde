-- Version 11: names of machines, and the order in which programs got theirs.

-- A run has none.
ALTER TABLE machine ADD COLUMN name TEXT;
CREATE UNIQUE INDEX machine_by_name ON machine (tenant, name) WHERE name IS NOT NULL;

-- When the program was last uploaded with its name. A name is the last one's.
ALTER TABLE program ADD COLUMN named_ms INTEGER NOT NULL DEFAULT 0;
UPDATE program SET named_ms = created_ms;
CREATE INDEX program_by_name ON program (tenant, name, named_ms);
