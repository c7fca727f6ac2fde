#!/bin/dash
x=5; f() { cat <<END; }
$x $((x * x)) $(seq 3 | paste -sd-) \$x
END
f; x=6; f | tr 5-6 a-b
cat <<'END' | sort -r | md5sum
$x `no`
b
a
END
sh <<END
echo inner $x \$(echo later \$0)
END
cat <<-END
	one $(cat <<INNER | tr a-z A-Z
nested
INNER
)
	END
