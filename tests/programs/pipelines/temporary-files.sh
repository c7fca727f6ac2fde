#!/bin/dash
f=$(mktemp); d=$(mktemp -d); trap 'rm -rf "$f" "$d"' EXIT
seq 100 >"$f"; sort -rn "$f" -o "$f"; head -n 1 "$f"
for i in 1 2 3; do cp "$f" "$d/$i"; sed -i "${i}d" "$d/$i"; done; cat "$d"/* | md5sum
ln "$f" "$d/link"; stat -c %h "$f"; mv "$d/1" "$d/moved"; ls "$d" | paste -sd' '
exec 3>"$d/gone"; rm "$d/gone"; echo unseen >&3; ls "$d" | wc -l
(cd "$d"; umask 077; echo x >private; stat -c %a private; truncate -s 1000 private; wc -c <private)
