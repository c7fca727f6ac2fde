-- A database that version 18 of the schema made: a dump with rows of all tables.
CREATE TABLE deleted_volume (
    -- Names its directory.
    id TEXT PRIMARY KEY,
    -- Whose storage it still takes; empty if nobody is known.
    tenant TEXT NOT NULL,
    size INTEGER NOT NULL
, inodes INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "deleted_volume" VALUES('v9','acme',8192,9);
INSERT INTO "deleted_volume" VALUES('v8','',4095,9);
CREATE TABLE idempotency (
    tenant TEXT NOT NULL REFERENCES tenant (name) ON DELETE CASCADE,
    key TEXT NOT NULL,
    request BLOB NOT NULL,
    machine TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT;
INSERT INTO "idempotency" VALUES('acme','once',X'FFEE','m1',1780000000010);
CREATE TABLE image (
    tenant TEXT NOT NULL REFERENCES tenant (name),
    key TEXT NOT NULL,
    -- Bytes of the file.
    size INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
INSERT INTO "image" VALUES('acme','key-1',4096);
INSERT INTO "image" VALUES('default','key-1',4096);
CREATE TABLE key (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL REFERENCES tenant (name) ON DELETE CASCADE,
    scope TEXT NOT NULL,
    hash BLOB NOT NULL,
    label TEXT NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
INSERT INTO "key" VALUES('k1','acme','write',X'00112233445566778899AABBCCDDEEFF00112233445566778899AABBCCDDEEFF','it''s a label…',1780000000002);
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
, kind TEXT NOT NULL DEFAULT 'machine', address TEXT, processors TEXT NOT NULL DEFAULT '[]', fixed INTEGER NOT NULL DEFAULT 0, outputs INTEGER NOT NULL DEFAULT 0, inodes INTEGER NOT NULL DEFAULT 5, name TEXT, stopped INTEGER NOT NULL DEFAULT 0, restarts INTEGER NOT NULL DEFAULT 0, suspended TEXT, ran_ms INTEGER NOT NULL DEFAULT 0, entered_ms INTEGER) STRICT;
INSERT INTO "machine" VALUES('m1','acme','{"program":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","path":null,"args":["exit","7"],"env":{"A":"1"},"cpus":2,"memory":268435456,"timeout_ms":5000,"labels":{"a":"b"},"interactive":false}','exited',NULL,NULL,0,'{"code":7,"message":"","boot_us":1500,"run_us":20000,"exits":{"calls":3,"doorbells":4,"interruptions":0,"sleeps":1,"wakes":1,"yields":0,"devices":5},"kvm_exits":99,"volume_requests":6,"kvm_reasons":{"insn_emulation":1,"io_exits":2,"mmio_exits":3,"halt_exits":4,"irq_exits":5,"signal_exits":6,"pf_taken":7},"network":{"received_packets":1,"received_bytes":60,"sent_packets":2,"sent_bytes":120,"dropped":0,"throttled":0}}','',1780000000010,1780000000011,1780000000012,'run',NULL,'[]',4500,70,11,NULL,0,0,NULL,0,NULL);
INSERT INTO "machine" VALUES('m2','acme','{"program":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","path":null,"args":[],"env":{},"cpus":1,"memory":268435456,"timeout_ms":null,"labels":{},"interactive":false,"volumes":[{"volume":"data","path":"/data","read_only":false}],"network":"tenant"}','running',4321,987654,0,NULL,'',1780000000013,1780000000014,NULL,'machine','10.213.3.2','[2,5]',0,0,5,NULL,0,3,NULL,0,NULL);
INSERT INTO "machine" VALUES('m3','default','{"program":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","path":null,"args":["exit","7"],"env":{"A":"1"},"cpus":2,"memory":268435456,"timeout_ms":5000,"labels":{"a":"b"},"interactive":false}','failed',NULL,NULL,1,NULL,'the VMM ended without a result: it crashed or was killed',1780000000015,1780000000016,1780000000017,'machine',NULL,'[]',0,0,5,'web-1',1,0,NULL,0,NULL);
INSERT INTO "machine" VALUES('m4','default','{"program":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","path":null,"args":["exit","7"],"env":{"A":"1"},"cpus":2,"memory":268435456,"timeout_ms":5000,"labels":{"a":"b"},"interactive":false}','queued',NULL,NULL,0,NULL,'',1780000000018,NULL,NULL,'run',NULL,'[]',0,0,5,NULL,0,0,NULL,0,NULL);
INSERT INTO "machine" VALUES('m5','default','{"program":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","path":null,"args":["idle"],"env":{},"cpus":1,"memory":268435456,"timeout_ms":null,"labels":{},"interactive":false,"idle_timeout_s":60}','suspended',NULL,NULL,0,NULL,'',1780000000018,1780000000019,NULL,'machine',NULL,'[]',0,0,5,NULL,0,0,'77777777777777777777777777777777',5000,1780000000023);
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
    created_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL DEFAULT 0, problem TEXT NOT NULL DEFAULT '', tree_size INTEGER NOT NULL DEFAULT 0, named_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, id)
) STRICT;
INSERT INTO "program" VALUES('acme','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','service','elf',9000,'[]','ready','','[11]',1780000000003,1780000000011,'',12345,1780000000003);
INSERT INTO "program" VALUES('acme','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','root','rootfs',50000,'["/bin/a b","/bin/ü"]','failed','the upload: no tar file','[]',1780000000004,0,'bad-upload',0,1780000000004);
INSERT INTO "program" VALUES('default','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','service','elf',9000,'[]','ready','took longer than 900 s','[11]',1780000000005,1780000000011,'too-slow',12345,1780000000009);
CREATE TABLE program_file (
    tenant TEXT NOT NULL,
    program TEXT NOT NULL,
    inode INTEGER NOT NULL,
    digest BLOB,
    PRIMARY KEY (tenant, program, inode),
    FOREIGN KEY (tenant, program) REFERENCES program (tenant, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
INSERT INTO "program_file" VALUES('acme','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',12,NULL);
INSERT INTO "program_file" VALUES('acme','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',11,X'000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F');
CREATE TABLE secret (
    tenant TEXT NOT NULL REFERENCES tenant (name) ON DELETE CASCADE,
    name TEXT NOT NULL,
    -- The encrypted contents.
    sealed BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;
INSERT INTO "secret" VALUES('acme','token',X'00112233445566778899AABB0011',1780000000020,1780000000021);
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
, used_ms INTEGER NOT NULL DEFAULT 0, suspends INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "snapshot" VALUES('55555555555555555555555555555555','default','warm','m3','{"program":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","path":null,"args":["serve"],"env":{},"cpus":1,"memory":268435456,"timeout_ms":null,"labels":{},"interactive":false}',70000,1,1780000000020,1780000000022,0);
INSERT INTO "snapshot" VALUES('66666666666666666666666666666666','acme',NULL,'m1','{"program":"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc","path":null,"args":["serve"],"env":{},"cpus":1,"memory":268435456,"timeout_ms":null,"labels":{},"interactive":false}',80000,0,1780000000021,0,0);
INSERT INTO "snapshot" VALUES('77777777777777777777777777777777','default',NULL,'m5','{"program":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","path":null,"args":["idle"],"env":{},"cpus":1,"memory":268435456,"timeout_ms":null,"labels":{},"interactive":false}',90000,1,1780000000022,0,1);
CREATE TABLE tenant (
    name TEXT PRIMARY KEY,
    weight INTEGER NOT NULL,
    max_machines INTEGER NOT NULL,
    max_memory INTEGER NOT NULL,
    max_queued INTEGER NOT NULL,
    max_storage INTEGER NOT NULL,
    created_ms INTEGER NOT NULL
, network INTEGER, max_inodes INTEGER NOT NULL DEFAULT 4194304) STRICT;
INSERT INTO "tenant" VALUES('default',100,64,68719476736,1000,1099511627776,1780000000000,NULL,4194304);
INSERT INTO "tenant" VALUES('acme',300,2,536870912,7,10737418240,1780000000001,3,1000);
CREATE TABLE volume (
    tenant TEXT NOT NULL REFERENCES tenant (name),
    name TEXT NOT NULL,
    -- Names its directory.
    id TEXT NOT NULL UNIQUE,
    -- Bytes that it may hold.
    size INTEGER NOT NULL,
    created_ms INTEGER NOT NULL, inodes INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, name)
) STRICT;
INSERT INTO "volume" VALUES('acme','data','v1',81920,1780000000006,21);
INSERT INTO "volume" VALUES('default','data','v2',1073741824,1780000000007,262145);
INSERT INTO "volume" VALUES('default','small','v3',4095,1780000000008,1);
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
INSERT INTO "delivery" VALUES('msg_1','acme','m1','https://example.org/','token','{}',1,'the receiver answers 500',1780000000009,1780000000010);
CREATE INDEX machine_by_tenant ON machine (tenant, id);
CREATE INDEX machine_by_state ON machine (tenant, kind, state);
CREATE INDEX machine_by_end ON machine (ended_ms) WHERE ended_ms IS NOT NULL;
CREATE UNIQUE INDEX tenant_by_network ON tenant (network) WHERE network IS NOT NULL;
CREATE INDEX program_file_by_digest ON program_file (tenant, digest);
CREATE INDEX machine_storage ON machine (tenant, fixed, outputs, inodes);
CREATE UNIQUE INDEX machine_by_name ON machine (tenant, name) WHERE name IS NOT NULL;
CREATE INDEX program_by_name ON program (tenant, name, named_ms);
CREATE INDEX snapshot_by_tenant ON snapshot (tenant, id);
CREATE INDEX snapshot_of_machine ON snapshot (machine) WHERE suspends;
CREATE UNIQUE INDEX snapshot_by_name ON snapshot (tenant, name) WHERE name IS NOT NULL;
CREATE INDEX delivery_by_time ON delivery (tenant, next_ms);
PRAGMA user_version = 18;
