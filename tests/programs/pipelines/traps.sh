#!/bin/bash
trap 'echo "usr1 $((++n))"' USR1
for i in 1 2 3; do kill -USR1 $$; done
trap 'echo "exit $?"' EXIT
(trap 'echo inner exit' EXIT; trap 'echo term; exit 4' TERM; kill -TERM $BASHPID; echo never); echo $?
f() { trap 'echo returned' RETURN; true; }; f; trap - RETURN
trap 'echo error at $LINENO' ERR; false; true; trap - ERR
exit 6
