#!/bin/bash
# The signal is sent again until the handler ran, so it need not come while the shell waits.
cd /tmp
trap 'echo told >told' USR2
{ until [ -e told ]; do kill -USR2 $$; sleep 0.02; done; exit 3; } & pid=$!
until wait $pid; code=$?; [ $code = 3 ]; do :; done
cat told; echo $code
