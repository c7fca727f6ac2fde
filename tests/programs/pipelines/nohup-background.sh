#!/bin/dash
cd /tmp
nohup sh -c 'kill -HUP $$; echo survived' >out 2>/dev/null; cat out
nohup seq 3 </dev/null 2>/dev/null | tac
(trap '' HUP; sh -c 'kill -HUP $$; echo ignored')
sh -c 'kill -HUP $$; echo no'; echo $?
