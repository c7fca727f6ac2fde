-- Version 13: the numbers of machines and runs by state, for metrics.

CREATE INDEX machine_by_state ON machine (tenant, kind, state);
