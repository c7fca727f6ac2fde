#!/bin/sh
# Tests of installed Debian packages, zstd and sqlite3, inside the root file system.
. /files/report.sh

cat /usr/lib/riscv64-linux-gnu/lib*.so.* 2>/dev/null | head -c 6000000 >/tmp/corpus
compresses() {
    zstd -q -f "-$1" /tmp/corpus -o /tmp/packed
    zstd -q -d -f /tmp/packed -o /tmp/unpacked
    cmp /tmp/corpus /tmp/unpacked
}

# An SQL query has this result.
query() { [ "$(sqlite3 /tmp/database "$1")" = "$2" ]; }

for level in 1 3 6 9 12 15; do check "zstd-$level" compresses $level; done
check zstd-damaged sh -c 'head -c 1000 /tmp/packed >/tmp/short; ! zstd -q -t /tmp/short'
rm -f /tmp/database
check sqlite-create query 'create table t (n integer primary key, text); with recursive
    c(x) as (select 1 union all select x + 1 from c where x < 100000)
    insert into t select x, hex(x * 7919) from c; select count(*) from t;' 100000
check sqlite-index query 'create index i on t (text); select count(distinct text) from t;' 100000
check sqlite-join query 'select count(*) from t a join t b on a.text = b.text;' 100000
check sqlite-update query 'update t set text = text || n where n % 3 = 0; select changes();' 33333
check sqlite-integrity query 'pragma integrity_check;' ok
for n in 1 2 3 4 5 6 7 8 9 10; do
    check "sqlite-session-$n" query "select sum(n) from t where n <= $n * 10000;" \
        $((n * 10000 * (n * 10000 + 1) / 2))
done
finish packages /results/packages.xml
