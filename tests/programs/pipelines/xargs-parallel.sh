#!/bin/bash
cd /tmp
seq 12 | xargs -P 3 -I{} bash -c 'echo $(({} * {})) >out.{}'
cat out.* | sort -n | paste -sd' '
seq 20 | xargs -P 4 -n 5 bash -c 'IFS=+; echo "$(($*))"' x | sort -n
printf '1 0 3\n' | xargs -n 1 -P 2 sh -c 'exit $1' x 2>&1; echo "xargs ended $?"
