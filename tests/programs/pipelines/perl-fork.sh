#!/bin/dash
perl -e '
    $| = 1;
    for my $n (1 .. 4) {
        pipe(my $r, my $w) or die;
        if (my $pid = fork) { close $w; my $text = join "", <$r>; waitpid $pid, 0; print $text, $? >> 8, "\n"; }
        else { close $r; print {$w} $n ** 3, "\n"; exit $n; }
    }
    open(my $p, "-|", "seq 5 | tac") or die; print map { chomp; "<$_>" } <$p>; print "\n"; close $p;
    print qx(echo in | tr a-z A-Z);'
