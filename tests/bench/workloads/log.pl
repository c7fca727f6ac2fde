# Regular expressions over a log, each with another matter to it: log.pl ROUNDS FILE
my ($rounds, $file) = @ARGV;
open(my $log, '<', $file) or die "$file: $!\n";
my @lines = <$log>;
for my $round (1 .. $rounds) {
    my (%codes, %sections, $long, $digits, $pairs, $slashes);
    for (@lines) {
        if (/^(\d+)\.(\d+)\.\d+\.(\d+) - - \[([^:]+):(\d\d):(\d\d)/) { $digits += $1 * $2 + $3 + $5 * $6 }
        if (m{"(GET|POST|PUT|DELETE|HEAD) /(\w+)/(\w+)/(\d+) HTTP/1\.[01]" (\d{3}) (\d+)}) {
            $codes{"$1 $5"} += $6;
            $sections{lc $2}++;
        }
        $long++ if /(?:in|pro|con)\w{4,}\/.*?(\d)\d*\1/;
        $pairs++ while /([a-z])\1/g;
        (my $copy = $_) =~ s{/(\w)(\w*)}{/\u$1$2}g;
        $slashes += ($copy =~ tr{/A-Z}{});
    }
    print "$round $digits $long $pairs $slashes\n";
    print join(' ', map { "$_=$codes{$_}" } sort keys %codes), "\n";
    print join(' ', map { "$_=$sections{$_}" } sort keys %sections), "\n";
}
