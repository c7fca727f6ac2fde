#!/bin/dash
cd /tmp
exec 3>three 4<&0; echo to three >&3; { echo out; echo err >&2; } >both 2>&1
{ echo swapped >&2; echo kept; } 3>&1 1>&2 2>&3 3>&- | sed 's/^/pipe: /' 2>&1
exec 3>&-; cat three both; { echo lost >&3; } 2>/dev/null; echo $?
echo one >f; echo two >>f; cat f f >g; tee -a f <g | wc -l; wc -l <f; : >f; wc -c <f
