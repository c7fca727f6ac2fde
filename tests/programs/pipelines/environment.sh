#!/bin/bash
export A=1 B='two words'; C=3 sh -c 'echo "$A $B $C"'; (unset A; env | grep -c '^A=')
env -i PATH="$PATH" X=y sh -c 'env | sort | grep -v ^PWD'; B=3 bash -c 'echo $B | (read B; echo $((B * 2)))'
printf '%s\n' 'echo "$0 $# $*"' >/tmp/s; sh /tmp/s a 'b c'; bash -c 'echo "${@: -1}"' x 1 2 3
printf '#!/bin/sh\necho script "$@" | tr a-z A-Z\n' >/tmp/run; chmod +x /tmp/run; /tmp/run it works; PATH=/tmp:$PATH run again
echo 'exit 5' | sh; echo $?; eval 'echo $((' 0x1f '))'; nosuchcommand 2>/dev/null; echo $?
