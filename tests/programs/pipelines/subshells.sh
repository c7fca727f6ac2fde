#!/bin/bash
x=1; (x=2; (x=3; echo $x; exit 3); echo "$x $?"); echo "$x $?"
f() { local n=$1; if ((n > 0)); then (f $((n - 1))); echo -n "$n "; fi; }; f 8; echo
echo $BASH_SUBSHELL $(echo $BASH_SUBSHELL $(echo $BASH_SUBSHELL))
(cd /data && pwd); pwd; ( { echo out; echo err >&2; } 2>&1 >/dev/null )
(set -e; false; echo never) || echo "failed $?"
