#!/bin/dash
seq 30 | jq -c '{n: ., square: (. * .), even: (. % 2 == 0)}' | jq -s 'map(select(.even)) | map(.square) | add'
head -n 12 /data/table.csv | tail -n +2 | jq -R -c 'split(",") | {(.[3]): (.[2] | tonumber)}' | jq -S -s -c 'add'
echo '{"a":[1,{"b":null}],"c":"\u00e9"}' | jq -r 'paths | map(tostring) | join("/")'
echo '{"broken":' | jq . 2>/dev/null; echo $?
