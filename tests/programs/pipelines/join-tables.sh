#!/bin/bash
cd /tmp
head -n 200 /data/table.csv | tail -n +2 | sort -t, -k4,4 >rows
printf 'Accra,GH\nKyoto,JP\nLima,PE\nOslo,NO\n' >lands
join -t, -1 4 -2 1 -o 1.1,1.2,2.2 rows lands | sort -t, -n | md5sum
join -t, -1 4 -2 1 -v 1 rows lands | cut -d, -f1,2 | tail -n 3
