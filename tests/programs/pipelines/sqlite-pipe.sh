#!/bin/dash
cd /tmp
{ echo 'create table t(id integer, name text, amount real, city text);'
  echo '.mode csv'; echo '.import --skip 1 part.csv t'; echo '.mode list'
  echo 'select city, count(*), sum(amount) from t group by city order by city;'; } >in.sql
head -n 60 /data/table.csv >part.csv
sqlite3 t.db <in.sql | tee out | md5sum
sqlite3 t.db 'select name, amount from t where id % 7 = 0 order by amount desc limit 4' | sort
sqlite3 t.db .dump | grep -c INSERT; sqlite3 t.db 'select * from missing' 2>&1; echo $?
