#!/bin/dash
cd /tmp
mkdir -p d/e/f; for i in 1 2 3 4 5 6; do echo $i >d/$i; seq $i >d/e/f/$i; done
find d -type f | sort | xargs md5sum
find d -name '[24]' -exec wc -l {} + | sort
find d -type f -size -4c -print0 | sort -z | xargs -0 -n 3 echo
find d -depth -type d -empty; find d -mindepth 2 -name 6 -delete; find d | wc -l
