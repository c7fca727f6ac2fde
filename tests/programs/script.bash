# Everyday and unusual features of bash: its output is compared with that of this
# machine's own.
set -u
export LC_ALL=C
cd "${TMPDIR:-/tmp}" || exit 1
work=bash-script-$$
mkdir "$work" && cd "$work" || exit 1
trap 'cd ..; rm -r "$work"; echo "bye $?"' EXIT

section() {
    printf '== %s\n' "$*"
}

section variables
a=hello b='two words'
echo "$a" "${b}" "${#b}" "${a^^}" "${b^}" "${a:1:3}" "${b/two/three}" "${b//o/0}"
echo "${unset:-default}" "${a:+set}" "${a%l*}" "${a%%l*}" "${a#*l}" "${a##*l}"
declare -i number=5
number+=7
echo "$number" $((number ** 2)) $((number % 5)) $((number << 3)) $((0x1f + 010 + 2#101))
readonly fixed=1
(fixed=2) 2>/dev/null
echo "status $?"
name=a
echo "${!name}"
declare -n reference=b
reference=changed
echo "$b"
printf -v text '%05d|%-6s|%6.2f|%x|%q' 42 ab 3.14159 255 "a b"
echo "$text"

section arrays
list=(one two three "four five")
list+=(six)
echo "${#list[@]}" "${list[3]}" "${list[@]:1:2}" "${list[-1]}"
unset 'list[1]'
echo "${!list[@]}"
for item in "${list[@]}"; do echo "<$item>"; done
declare -A map=([red]=1 [green]=2)
map[blue]=3
for key in $(printf '%s\n' "${!map[@]}" | sort); do echo "$key ${map[$key]}"; done
mapfile -t lines < <(printf 'x\ny\nz\n')
echo "${#lines[@]} ${lines[2]}"
read -r -a words <<<"some words here"
echo "${words[1]}"

section loops
for ((i = 0; i < 5; i++)); do
    ((i == 3)) && continue
    echo -n "$i "
done
echo
i=0
while true; do
    ((++i > 4)) && break
    until ((i % 2)); do
        echo "even $i"
        break
    done
done
for outer in a b; do
    for inner in 1 2 3; do
        [ "$inner" = 2 ] && continue 2
        echo "$outer$inner"
    done
done
select_from() {
    case $1 in
    [0-9]*) echo number ;;
    a | b) echo letter ;;&
    a*) echo "starts with a" ;;
    ?) echo single ;&
    fall) echo "fell" ;;
    *) echo other ;;
    esac
}
for word in 42 a x abc "" fall; do select_from "$word"; done
echo {a..e} {1..10..3} pre{x,y,z}post {01..03}

section functions
factorial() {
    local n=$1
    if ((n < 2)); then
        echo 1
    else
        echo $((n * $(factorial $((n - 1)))))
    fi
}
factorial 10
outer() {
    local hidden=inner
    inner
}
inner() { echo "sees ${hidden:-nothing}"; }
outer
inner
status() { return "$1"; }
status 7
echo $?
status 0 && echo yes || echo no
variadic() {
    echo "$# $*"
    shift 2
    echo "$# $1"
    set -- "$@" last
    echo "$#: ${*: -1}"
}
variadic a b "c d" e

section pipelines
printf '%s\n' pear apple fig apple | sort | uniq -c | sed 's/^ *//'
seq 1 100 | grep 7 | wc -l | tr -d ' '
false | true
echo "${PIPESTATUS[@]}"
set -o pipefail
false | true
echo $?
set +o pipefail
echo "one two three" | { read -r first rest; echo "$rest"; }
seq 1 20000 | tail -n 1
yes | head -n 3
exec 5>&1
captured=$(echo to-captured; echo to-screen >&5)
echo "$captured"
exec 5>&-
tee copy <<<"through tee" | rev
cat copy
sum=0
seq 5 | while read -r n; do ((sum += n)); echo "$sum"; done 2>&1 | tail -n 1

section here-documents
cat <<END
a is $a, sum is $((1 + 2)), command says $(echo hi)
END
cat <<'END'
no $expansion here `either`
END
cat <<-END
	tabs are gone
	END
while read -r line; do echo "[$line]"; done <<END
first
second
END
{
    cat
    cat <&3
} <<ONE 3<<TWO
from one
ONE
from two
TWO

section redirection
echo one >file
echo two >>file
{ echo out; echo err >&2; } >both 2>&1
cat file both
exec 3<file
read -r line <&3
read -r line2 <&3
echo "$line2 $line"
exec 3<&-
exec 4<>file
echo replaced >&4
exec 4>&-
cat file
echo clobber >|file
set -C
(echo refused >file) 2>/dev/null || echo "not overwritten"
set +C
cat <(echo substituted) <(echo twice)
echo into > >(cat >sub)
sleep 0.5
cat sub
wc -c <file
ls nowhere 2>/dev/null || echo "status $?"

section traps
trap 'echo "got USR1"' USR1
kill -USR1 $$
kill -USR1 $BASHPID
trap 'echo "got USR2"; caught=1' USR2
(sleep 0.1; kill -USR2 $$) &
caught=0
wait
echo "caught $caught"
wait
trap - USR1 USR2
(
    trap 'echo "subshell ends with $?"' EXIT
    exit 4
)
echo "status $?"
(trap 'echo error on line' ERR; false; true)
trap 'echo "returned"' RETURN
status 0
trap - RETURN
(trap '' TERM; kill -TERM $BASHPID; echo survived)
(kill -TERM $BASHPID; echo not reached)
echo "status $?"

section jobs
sleep 0.1 &
first=$!
(exit 3) &
second=$!
wait "$second"
echo "second $?"
wait "$first"
echo "first $?"
sleep 30 &
sleep 0.3
kill %%
wait $! 2>/dev/null
echo "killed $?"
set -m
sleep 30 &
sleep 0.3
kill -STOP $!
sleep 0.3
jobs -s | grep -c 'Stopped.*sleep 30'
{
    kill -CONT $!
    sleep 0.3
    kill $!
    wait $!
} 2>/dev/null
echo "stopped, continued, killed: $?"
set +m
(for n in 2 0 1; do (sleep 0.$n; echo "job $n") & done; wait) | sort
coproc upper { while read -r line; do echo "${line^^}"; done; }
echo shout >&"${upper[1]}"
read -r answer <&"${upper[0]}"
echo "$answer"
eval "exec ${upper[1]}>&-"
wait
mkfifo fifo
echo "through the fifo" >fifo &
cat fifo
wait

section tests
[[ abc == a* ]] && echo glob
[[ abc =~ ^(a)(.*)$ ]] && echo "${BASH_REMATCH[2]}"
[[ -d . && ! -e nowhere ]] && echo files
[ 5 -gt 3 -a abc \< abd ] && echo order
test -z "" && echo empty
(( 5 > 3 )) && echo arithmetic
[ -p fifo ] && echo fifo
touch -d '2001-01-01' old
[ file -nt old ] && echo newer
ln -s file link
[ -L link ] && [ file -ef link ] && readlink link

section globbing
touch g1.txt g2.txt g3.log .hidden
echo g*.txt
echo g?.* [!g]*
shopt -s nullglob extglob dotglob
echo nothing*here
echo !(g*|both|copy)
shopt -u nullglob dotglob
set -f
echo *
set +f

section options
(set -e; false; echo not reached)
echo "status $?"
(set -u; echo "$undefined") 2>/dev/null
echo "status $?"
IFS=: read -r user rest <<<"root:x:0"
echo "$user $rest"
IFS=,
joined="${list[*]}"
unset IFS
echo "$joined"
getopt_test() {
    local OPTIND option
    while getopts ab:c option; do
        echo "$option ${OPTARG-}"
    done
    shift $((OPTIND - 1))
    echo "rest $*"
}
getopt_test -a -b value -c operand
echo "$(type -t echo) $(type -t ls) $(type -t factorial) $(type -t if)"
command -v nosuchcommand || echo "no such command"
nosuchcommand 2>/dev/null
echo "status $?"
eval 'echo "evaluated $((6 * 7))"'
source /dev/stdin <<<'sourced=yes'
echo "$sourced"
bash -c 'echo "$0 $1"; exit 6' zero one
echo "status $?"
time_format=$( { TIMEFORMAT=%R; time sleep 0.1; } 2>&1 )
[[ $time_format == 0.* ]] && echo timed
ulimit -n 100
ulimit -n
umask 027
touch masked
stat -c %a masked
exit 9
