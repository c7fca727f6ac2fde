#!/bin/dash
cd /tmp
cat >in.m4 <<'END'
define(`square', `eval(`$1' * `$1')')dnl
define(`count', `ifelse($1, 0, , `$1 square($1)
count(decr($1))')')dnl
count(20)dnl
esyscmd(`seq 3 | tac')dnl
translit(`hartline', `a-z', `A-Z') len(`twelve chars') substr(`pipeline', 4)
divert(1)last
divert(0)first
END
m4 in.m4 | tee out | tail -n 6; grep -c . out; m4 -DX=7 <<'END' | sort
X eval(X ** 9)
END
