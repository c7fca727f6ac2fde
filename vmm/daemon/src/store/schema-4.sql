-- Version 4: networks of tenants.

-- Number of the tenant's network in the range of all of them, once it had one.
ALTER TABLE tenant ADD COLUMN network INTEGER;
CREATE UNIQUE INDEX tenant_by_network ON tenant (network) WHERE network IS NOT NULL;

-- Address of the machine in it, when it was there last.
ALTER TABLE machine ADD COLUMN address TEXT;
