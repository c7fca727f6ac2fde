#!/bin/dash
python3.13 -S -c '
import os
for n in range(4):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r); os.write(w, b"child %d" % (n * n)); os._exit(n)
    os.close(w)
    text = os.read(r, 100); os.close(r)
    print(text.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
print(os.waitstatus_to_exitcode(os.system("seq 30 | tail -n 2")))'
