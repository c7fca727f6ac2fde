#!/bin/bash
cd /tmp
mkdir -p t/a t/b; for i in 1 2 3 4; do seq $((i * 50)) >t/a/$i; echo $i >t/b/$i; done
ln -s a/1 t/link; chmod 600 t/b/2
tar --sort=name --owner=0 --group=0 --mtime=@1700000000 -cf - t | tee t.tar | sha256sum
mkdir u; tar xf t.tar -C u; (cd u && find . -type f | sort | xargs cat) | md5sum
tar tf t.tar | sort | tail -n 4; readlink u/t/link; stat -c %a u/t/b/2
