#!/bin/bash
text=$(seq 400)
wc -l <<<"$text"; md5sum <<<"$text"
cat <<END | tail -n 2
$text
end
END
while read -r a; read -r b; do ((s += a * b)); done <<<"$text"; echo $s
