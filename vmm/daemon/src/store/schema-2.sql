-- Version 2: asynchronous runs are machines that are shown as runs; garbage collection.

ALTER TABLE machine ADD COLUMN kind TEXT NOT NULL DEFAULT 'machine';

-- What garbage collection looks for.
CREATE INDEX machine_by_end ON machine (ended_ms) WHERE ended_ms IS NOT NULL;

-- When a run or machine of it was started last, to within an hour.
ALTER TABLE program ADD COLUMN used_ms INTEGER NOT NULL DEFAULT 0;
