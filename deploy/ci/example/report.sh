# Functions for test scripts: run cases, and write their results as a JUnit file.
# shellcheck shell=sh
cases=0 failed=0 lines=

# Run a command as the test NAME.
#   check NAME COMMAND [ARGUMENT]...
check() {
    name=$1
    shift
    cases=$((cases + 1))
    if "$@" >/tmp/output 2>&1; then
        echo "ok $cases - $name"
        lines="$lines<testcase name=\"$name\"/>"
    else
        failed=$((failed + 1))
        echo "not ok $cases - $name"
        sed 's/^/  /' /tmp/output
        lines="$lines<testcase name=\"$name\"><failure/></testcase>"
    fi
}

# Write the results of all cases to a file, and exit with 1 if a case has failed.
#   finish SUITE FILE
finish() {
    echo "1..$cases"
    printf '<testsuite name="%s" tests="%d" failures="%d">%s</testsuite>\n' \
        "$1" "$cases" "$failed" "$lines" >"$2"
    [ "$failed" -eq 0 ] || exit 1
    exit 0
}
