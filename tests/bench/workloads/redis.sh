# redis.sh REQUESTS FOLDER [LAUNCHER...]: redis-server and its benchmark over a Unix socket.
# The programs are in FOLDER and are started by LAUNCHER.
requests=$1 folder=$2
shift 2
socket=/tmp/redis-$$.socket
"$@" "$folder/redis-server" --port 0 --unixsocket "$socket" --save '' --daemonize no \
    --dir /tmp --logfile /dev/null &
tries=0
while [ ! -S "$socket" ] && [ $tries -lt 1000 ]; do
    tries=$((tries + 1))
    sleep 0.01
done
for test in set get incr lpush lpop; do
    "$@" "$folder/redis-benchmark" -s "$socket" -c 20 -n "$requests" -t $test -q >/dev/null
    echo "$test $?"
done
"$@" "$folder/redis-cli" -s "$socket" shutdown nosave
wait
rm -f "$socket"
