//! Processes and threads: C programs under Hartline and under the reference, programs
//! that execute others under Hartline and on this machine, and scripts for Debian's
//! riscv64 busybox and its amd64 one.

#[path = "processes/tracing.rs"]
mod tracing;

use hartline_tests::compare::{Run, check_equal};
use hartline_tests::compile::{self, Set, VARIANTS};
use hartline_tests::dynamic::Root;
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::{self, Scratch};
use hartline_tests::{Result, hartline, paths, reference};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;

/// Programs of `tests/programs`.
const PROGRAMS: &[&str] = &["processes", "threads", "litmus", "order", "parallel"];
/// Options for several vCPUs: as many as the machines that run the tests have, and more.
const SEVERAL: [&[&str]; 2] = [&["--cpus", "2"], &["--cpus", "4"]];

/// Name and text of scripts. Each works in its own folder.
const SCRIPTS: &[(&str, &str)] = &[
    ("pipeline", "echo a b c | tr a-c x-z | sed s/y/Y/"),
    (
        "long pipeline",
        "seq 1 2000 | cat | cat | cat | sort -rn | uniq | head -3 | cat",
    ),
    (
        "reader ends first",
        "yes | head -2; seq 1 100000 | head -1; echo $?",
    ),
    ("much through a pipe", "seq 1 300000 | wc -c"),
    (
        "status of a pipeline",
        "false | true; echo $?; true | false; echo $?",
    ),
    (
        "substitution",
        "x=$(echo one; echo two); echo \"[$x]\"; echo $(echo $(echo deep))",
    ),
    ("backquotes", "echo `echo a; exit 3` $?"),
    ("much substituted", "x=$(seq 1 20000); echo ${#x}"),
    (
        "subshell",
        "a=1; (a=2; cd /; echo $a $PWD); echo $a; (exit 7); echo $?",
    ),
    (
        "loop in a pipeline",
        "for i in 1 2 3; do echo $i; done | while read n; do echo got $n; done",
    ),
    (
        "background",
        "mkfifo p; { read x <p; echo late; } & echo early; echo >p; wait; echo $?",
    ),
    (
        "status of a job",
        "(exit 9) & wait $!; echo $?; sleep 0.02 & wait %1; echo $?",
    ),
    (
        "many jobs",
        "(for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.0$i; echo $i) & done; wait) | sort; echo all",
    ),
    (
        "kill a job",
        // On Linux too, the message about the first job depends on whether the job began before it
        // was killed.
        "exec 2>/dev/null; sleep 60 & kill $!; wait $!; echo $?; \
         sleep 60 & kill -9 $!; wait $!; echo $?",
    ),
    (
        "no such job",
        "kill -0 99999 2>/dev/null; echo $?; wait 99999; echo $?",
    ),
    (
        "trap",
        "trap 'echo trapped' USR1; kill -USR1 $$; echo after",
    ),
    ("trap at exit", "trap 'echo bye $?' EXIT; exit 5"),
    (
        "trap while waiting",
        // Sent again until one interrupts `wait`, because the first may come before it. If the last
        // one comes with the end of the process, the next `wait` finds no child (127).
        "trap 'echo hup >told' HUP; (until [ -e code ]; do sleep 0.05; kill -HUP $$; done) & \
         wait $!; echo $? >code; until wait $! || [ $? = 127 ]; do :; done; cat told code",
    ),
    (
        "ignored signals",
        "trap '' TERM; sh -c 'kill -TERM $$; echo alive'; trap - TERM; sh -c 'kill -TERM $$; echo no'; echo $?",
    ),
    (
        "here-document",
        "x=5; cat <<EOF\nvalue $x $((x * 2)) $(echo sub)\nEOF\ncat <<'EOF'\n$x\nEOF",
    ),
    (
        "here-document in a pipeline",
        "cat <<EOF | sort | tr '\\n' ' '\nb\nc\na\nEOF\necho",
    ),
    (
        "large here-document",
        "f() { sed -n '$p' <<EOF\n$(seq 1 20000)\nEOF\n}; f",
    ),
    (
        "redirection",
        "echo one >f; echo two >>f; cat <f; { echo out; echo err >&2; } >o 2>e; cat o e; cat f f >g 2>&1; wc -l <g",
    ),
    (
        "waiting after exec",
        "exec sh -c 'sleep 0.1; (sleep 0.1; exit 3) & wait $!; echo $?; exec sh -c \"sleep 0.1; echo end\"'",
    ),
    (
        "descriptors",
        "exec 3>f; echo three >&3; exec 3>&-; cat f; { echo x >&3; } 2>/dev/null; echo $?; exec 4<f; read l <&4; echo $l",
    ),
    (
        "FIFO",
        "mkfifo p; cat p & echo through >p; wait; (echo a; echo b) >p & while read x; do echo $x; done <p; wait",
    ),
    (
        "and, or, not",
        "true && echo 1 || echo 2; false && echo 3 || echo 4; ! false; echo $?",
    ),
    (
        "not found",
        "nosuch; echo $?; ./nosuch; echo $?; /; echo $?",
    ),
    (
        "scripts",
        "echo '#!/bin/sh\necho script $0 $# $*' >s; chmod +x s; ./s a 'b c'; ./s | cat; PATH=.:$PATH; s x",
    ),
    (
        "awk as an interpreter",
        "printf '#!/bin/awk -f\nBEGIN { print ARGC, 6 * 7 }\n' >s; chmod +x s; ./s",
    ),
    ("not executable", "echo 'echo no' >s; ./s; echo $?; . ./s"),
    (
        "killed by signals",
        "for s in TERM KILL SEGV PIPE; do sh -c \"kill -$s \\$\\$\" 2>/dev/null; echo $?; done",
    ),
    (
        "environment",
        "A=1 sh -c 'echo $A'; export B=2; env | grep ^B=; env -i C=3 /bin/env; unset B; sh -c 'echo [$B]'",
    ),
    (
        "exec",
        "sh -c 'exec echo replaced; echo no'; (exec 2>&1; ls nothing); exec sh -c 'echo last; exit 4'",
    ),
    (
        "find and xargs",
        "mkdir -p d/e; for i in 1 2 3; do echo $i >d/e/$i; done; find d -type f | sort | xargs cat; find d -name 2 -exec echo found {} \\;; seq 1 500 | xargs -n 100 echo | wc -l",
    ),
    (
        "tar through a pipe",
        "mkdir t; seq 1 5000 >t/a; echo b >t/b; tar c t | gzip | gunzip | (mkdir u; cd u; tar x); cat u/t/a u/t/b | md5sum",
    ),
    (
        "timeout",
        "timeout 0.05 sleep 60; echo $?; timeout 60 true; echo $?; timeout -s KILL 0.05 sleep 60; echo $?",
    ),
    (
        "stop and continue",
        "sleep 0.1 & kill -STOP $!; kill -CONT $!; wait $!; echo $?",
    ),
    (
        "recursion",
        "f() { [ $1 -gt 0 ] && (echo $1; f $(($1 - 1))); }; f 12 | tail -1",
    ),
    (
        "two that compute",
        "f() { i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo $1 $i; }; (f a >x) & (f b >y) & wait; cat x y",
    ),
    (
        "tee and groups",
        "seq 1 10 | tee a b | wc -l; cat a b | wc -l; { echo 1; { echo 2; (echo 3); } | cat; } | tail -1",
    ),
    (
        "case and arithmetic",
        "n=0; ls /bin | while read f; do case $f in s*) n=$((n+1));; esac; echo $n; done | tail -1",
    ),
    (
        "time is counted",
        "times >t; wc -l <t; (i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done); echo $?",
    ),
    (
        "processes of a session",
        "sh -c 'setsid sh -c \"echo own session\" | cat'; nohup echo hup 2>/dev/null; nice -n 0 echo nice",
    ),
];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add("every program is used", every_program_is_used);
    for program in PROGRAMS {
        for variant in VARIANTS {
            suite.add_kvm(format!("{}: {program}", variant.name), move || {
                let run = Run::new(&Set::Programs.build(variant)?, [*program]);
                check_equal(&run.reference()?, &run.hartline(&[])?)
            });
        }
        for options in SEVERAL {
            let name = format!("{}: {program}", options.join(" "));
            suite.add_kvm(name, move || several(program, options));
        }
        let name = format!("interpreted, --cpus 2: {program}");
        suite.add_kvm(name, move || {
            several(program, &["--cpus", "2", "--interpret"])
        });
        suite.add_kvm(format!("interpreted: {program}"), move || {
            let run = Run::new(&Set::Programs.build(VARIANTS[1])?, [*program]);
            check_equal(&run.reference()?, &run.interpreted()?)
        });
    }
    suite.add_kvm("execve", execve);
    suite.add_kvm("pseudo-terminals", || as_on_this_machine("ptys", &[]));
    for (name, options) in [
        ("waits for input", &[][..]),
        ("waits for input, two vCPUs", &["--cpus", "2"]),
        ("waits for input, several vCPUs", &["--cpus", "3"]),
        ("waits for input, interpreted", &["--interpret"]),
    ] {
        suite.add_kvm(name, || input(options));
    }
    tracing::add(&mut suite);
    suite.add_kvm("clocks", || as_on_this_machine("clocks", &[]));
    suite.add_kvm("--cpus 2: clocks", || {
        as_on_this_machine("clocks", &["--cpus", "2"])
    });
    for options in [
        &["--interpret"][..],
        &[],
        &["--cpus", "2"],
        &["--baseline", "only", "--cpus", "2"],
    ] {
        let name = format!("code that a child patches {}", options.join(" "));
        suite.add_kvm(name.trim_end().to_owned(), || patches(options));
    }
    suite.add_kvm("random numbers", random);
    suite.add_kvm("order of standard output and standard error", order);
    const REFUSED: &str = "Resource temporarily unavailable";
    suite.add_kvm("too many processes of a user", || {
        let text = format!("processes many, {REFUSED}\nended all\n");
        limits("processes", &text, "512M")
    });
    suite.add_kvm("fork bomb", || {
        limits("bomb", &format!("bomb, {REFUSED}\nwent on\n"), "512M")
    });
    suite.add_kvm("10,000 threads", || {
        limits("threads", &format!("threads many, {REFUSED}\n"), "512M")
    });
    suite.add_kvm("full file system", || {
        limits("space", "space much, No space", "64M")
    });
    suite.add_kvm("too many files", || {
        limits("inodes", "inodes many, No space", "64M")
    });
    suite.add_kvm("too many files, two vCPUs", || {
        limits_with("inodes", "inodes many, No space", &["64M", "--cpus", "2"])
    });
    suite.add_kvm("too many open files", || {
        let text = "sockets many, Too many open files in system\nfiles many, Too many open files in system\nwent on\n";
        limits("files", text, "1G")
    });
    suite.add_kvm("memory of many processes", || {
        killed(
            "memory",
            "ended 9\n",
            "killed process 2 (limits), which had ",
        )
    });
    suite.add_kvm("the largest process is killed", || {
        let text = "largest ended 9\nsmall lives\n";
        killed("largest", text, "killed process 2 (large), which had 2")
    });
    for (name, text) in SCRIPTS {
        suite.add_kvm(format!("script: {name}"), || script(text));
    }
    suite.add_kvm("procps", procps);
    suite.add_kvm("truncated shared library", truncated_library);
    suite.add_kvm(
        "signals to the VM are those of its processes",
        outside_signals,
    );
    suite.run()
}

/// Runs a program with more than one vCPU. A few tries take long enough, because threads wait for
/// one another all the time, and vCPUs for CPUs.
fn several(program: &str, options: &[&str]) -> Result<()> {
    const TRIES: &str = "100";
    let run = Run::new(&Set::Programs.build(VARIANTS[0])?, [program, TRIES]);
    let outcome = match options.contains(&"--interpret") {
        true => process::run(&mut run.hartline_command(options)?, b"")?,
        false => run.hartline(options)?,
    };
    check_equal(&run.reference()?, &outcome)
}

/// Checks that a row runs each program of the folder.
fn every_program_is_used() -> Result<()> {
    let names = compile::alone_names()?;
    match names.iter().map(String::as_str).eq([
        "calls",
        "clock_jumps",
        "clocks",
        "converge",
        "crash",
        "disk",
        "exec",
        "fuzzer",
        "input",
        "limits",
        "moved",
        "parts",
        "patches",
        "ptrace",
        "ptys",
        "random",
        "snapshot",
        "traced_calls",
        "tracees",
        "tracers",
        "visited",
        "volumes",
        "vsock",
        "warm",
        "wire",
    ]) {
        true => Ok(()),
        false => Err(format!("not all of {names:?} are run").into()),
    }
}

/// A child patches its parent's code, which no `fence.i` announces. The reference cannot do that.
fn patches(options: &[&str]) -> Result<()> {
    let outcome = alone("patches", &[], options)?;
    match outcome.code {
        0 => Ok(()),
        _ => Err(format!("{outcome:?}").into()),
    }
}

/// Tests the entropy device, and the kernel's generator that it seeds.
fn random() -> Result<()> {
    let outcome = alone("random", &[], &["--stats=json"])?;
    let stats = outcome.stderr_text();
    let stats: Option<serde_json::Value> = stats
        .lines()
        .find_map(|line| serde_json::from_str(line).ok());
    let stats = stats.ok_or_else(|| format!("{outcome:?}"))?;
    let count = |name: &str| stats["rng"][name].as_u64().unwrap_or(0);
    // One page for the seed, one for the five bytes, the others for 128 KiB.
    let right = outcome.code == 0
        && outcome.stdout_text() == "random\n"
        && count("requests") >= 34
        && count("bytes") >= 33 * 4096;
    match right {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// Standard output and standard error go to one pipe, which shows their order.
fn order() -> Result<()> {
    const LINES: usize = 2000;
    let text =
        format!("n=0; while [ $n -lt {LINES} ]; do echo $n; echo $n >&2; n=$((n + 1)); done");
    let run = Run::new(&paths::busybox(), ["sh", "-c", &text]);
    let (mut reader, writer) = io::pipe()?;
    let mut command = run.hartline_command(&["--stats=json"])?;
    command.stdin(Stdio::null());
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // Close this process's ends of the pipe.
    drop(command);
    let mut output = String::new();
    reader.read_to_string(&mut output)?;
    let status = child.wait()?;
    let mut lines = output.lines();
    let in_order = (0..LINES).all(|n| {
        let n = n.to_string();
        lines.next() == Some(&n) && lines.next() == Some(&n)
    });
    let stats = lines.next().map(serde_json::from_str::<serde_json::Value>);
    let stats = stats.and_then(|stats| stats.ok()).unwrap_or_default();
    let sent = stats["console"]["sent_buffers"] == 2 * LINES;
    match status.success() && in_order && sent {
        true => Ok(()),
        false => Err(format!("{status}, {output}").into()),
    }
}

/// Runs the same program natively and, built for riscv64, in a VM.
fn execve() -> Result<()> {
    let native = compile::alone("exec", "cc")?;
    let folder = Scratch::new()?;
    let mut command = Command::new(&native);
    let expected = process::run(command.arg(folder.path()).arg(&native), b"")?;
    let run = alone("exec", &["/scratch", "/bin/exec"], &["--interpret"])?;
    check_equal(&expected, &run)?;
    let run = alone("exec", &["/scratch", "/bin/exec"], &[])?;
    check_equal(&expected, &run)
}

/// Runs a program of `tests/programs/alone` that must behave as on this machine. The host's kernel
/// supports calls that the reference does not pass on.
fn as_on_this_machine(name: &str, options: &[&str]) -> Result<()> {
    let native = compile::alone(name, "cc")?;
    let expected = process::run(&mut process::with_default_signals(native), b"")?;
    check_equal(&expected, &alone(name, &[], options)?)
}

/// Waits for standard input with `poll` and its relatives, as the reference does.
fn input(options: &[&str]) -> Result<()> {
    const INPUT: &[u8] = b"abcde";
    let program = compile::alone("input", "riscv64-linux-gnu-gcc")?;
    let run = Run::new(&program, [""; 0]);
    let outcome = process::run(&mut run.hartline_command(options)?, INPUT)?;
    let expected = process::run(&mut reference::command(&program)?, INPUT)?;
    match outcome.stdout == expected.stdout && outcome.code == 0 {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// Runs a program of `tests/programs/alone` in a separate root directory.
fn alone(name: &str, arguments: &[&str], options: &[&str]) -> Result<Outcome> {
    let program = compile::alone(name, "riscv64-linux-gnu-gcc")?;
    let root = Scratch::new()?;
    for folder in ["bin", "scratch"] {
        fs::create_dir(root.path().join(folder))?;
    }
    fs::copy(&program, root.path().join("bin").join(name))?;
    let inside = format!("/bin/{name}");
    let run = Run::new(&program, arguments.iter().copied()).in_root(root.path(), &inside);
    process::run(&mut run.hartline_command(options)?, b"")
}

/// Uses up memory: one line names the killed process.
fn killed(what: &str, expected: &str, told: &str) -> Result<()> {
    let outcome = alone("limits", &[what], &["--interpret", "--mem", "512M"])?;
    let message = outcome.stderr_text();
    let text = format!("{expected}went on\n");
    match outcome.stdout_text() == text && message.lines().count() == 1 && message.contains(told) {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// Uses up the resource `what`; the program reports that it was refused and went on.
fn limits(what: &str, expected: &str, memory: &str) -> Result<()> {
    limits_with(what, expected, &[memory])
}

/// As [`limits`]; the RAM may be followed by other options.
fn limits_with(what: &str, expected: &str, memory: &[&str]) -> Result<()> {
    let options = [&["--interpret", "--mem"], memory].concat();
    let outcome = alone("limits", &[what], &options)?;
    let text = outcome.stdout_text();
    match outcome.code == 0 && text.starts_with(expected) && text.ends_with("went on\n") {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// Makes a root directory with the file `busybox` under all names of its applets.
fn busybox_root(busybox: &Path) -> Result<Scratch> {
    let root = Scratch::new()?;
    tree::populate(root.path())?;
    let inside = root.path().join("bin/busybox");
    fs::remove_file(&inside)?;
    fs::copy(busybox, &inside)?;
    let reference = paths::debian_amd64().join("usr/bin/busybox");
    let list = process::run(Command::new(reference).arg("--list"), b"")?;
    for applet in list.stdout_text().lines().filter(|name| *name != "busybox") {
        let link = root.path().join("bin").join(applet);
        if !link.exists() {
            symlink("busybox", link)?;
        }
    }
    fs::create_dir_all(root.path().join("tmp"))?;
    Ok(root)
}

/// Returns the root directories of all scripts: for this machine and for the VM.
fn roots() -> Result<&'static [Scratch; 2]> {
    static ROOTS: OnceLock<std::result::Result<[Scratch; 2], String>> = OnceLock::new();
    let make = || -> Result<[Scratch; 2]> {
        let native = busybox_root(&paths::debian_amd64().join("usr/bin/busybox"))?;
        let dev = native.path().join("dev");
        fs::create_dir_all(&dev)?;
        let null = dev.join("null");
        let mut make = Command::new("mknod");
        let made = make.args(["-m", "666"]).arg(&null).args(["c", "1", "3"]);
        if !made.output()?.status.success() {
            // An empty file replaces the device node, which only root may make.
            fs::write(null, "")?;
        }
        hartline::translate(&paths::busybox())?;
        Ok([native, busybox_root(&paths::busybox())?])
    };
    let roots = ROOTS.get_or_init(|| {
        make().map_err(|error| error.message().unwrap_or("no root directories").to_owned())
    });
    roots.as_ref().map_err(|error| error.as_str().into())
}

/// Debian's `ps`, `pgrep` and `top` see the processes of the VM.
fn procps() -> Result<()> {
    let root = Root::new(
        "procps",
        ["dash", "sleep", "ps", "pgrep", "top"].into_iter(),
    )?;
    let terminals = root.path().join("usr/share");
    fs::create_dir_all(&terminals)?;
    let mut copy = Command::new("cp");
    let from = paths::debian_riscv64().join("usr/share/terminfo");
    compile::check(copy.arg("-a").arg(from).arg(&terminals))?;
    let text = "sleep 60 & one=$!; sleep 61 & ps -eo pid,ppid,stat,args; pgrep -f 'sleep 61'; \
                ps -o comm= -p $$; top -b -n 1; kill $! $one; wait; ps -eo pid=";
    let run = root.run("dash", &["-c", text]).with_env("TERM", "vt100");
    let outcome = process::run(&mut run.hartline_command(&["--interpret"])?, b"")?;
    let output = outcome.stdout_text();
    let lines: Vec<Vec<&str>> = output
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let expected: [&[&str]; 7] = [
        &["PID", "PPID", "STAT", "COMMAND"],
        &["2", "1", "S+", "sleep", "60"],
        &["3", "1", "S+", "sleep", "61"],
        &["4", "1", "R+", "ps", "-eo", "pid,ppid,stat,args"],
        &["3"],
        &["dash"],
        &["Tasks:", "4", "total,", "1", "running,", "3", "sleeping,"],
    ];
    for words in expected {
        if !lines.iter().any(|line| line.starts_with(words)) {
            return Err(format!("no line {words:?}: {outcome:?}").into());
        }
    }
    // Processes that have ended are gone.
    let left = lines.iter().rev().take_while(|line| line.len() == 1);
    match left.count() == 2 {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// The loader's message about a truncated library is the same as on Linux.
fn truncated_library() -> Result<()> {
    let root = Root::new("truncated", ["ps"].into_iter())?;
    let library = root
        .path()
        .join("usr/lib/riscv64-linux-gnu/libproc2.so.0.0.2");
    let whole = fs::read(&library)?;
    for length in [0, 1, 63, 64, 500, 5000, whole.len() / 2] {
        fs::write(&library, &whole[..length])?;
        let run = root.run("ps", &["--version"]);
        let outcome = process::run(&mut run.hartline_command(&["--interpret"])?, b"")?;
        check_equal(&run.reference()?, &outcome)
            .map_err(|error| format!("{length} bytes: {}", error.message().unwrap_or_default()))?;
    }
    Ok(())
}

fn script(text: &str) -> Result<()> {
    let [native, root] = roots()?;
    let text = format!("mkdir -p /tmp/$$; cd /tmp/$$; export LC_ALL=C\n{text}");
    let mut command = process::with_root(native.path())?;
    command
        .args(["/bin/busybox", "sh", "-c", &text])
        .env_clear()
        .envs(hartline::ENVIRONMENT);
    let expected = process::run(&mut command, b"")?;
    let run = Run::new(&paths::busybox(), ["sh", "-c", &text]);
    let run = run.in_root(root.path(), "/bin/busybox");
    check_equal(
        &expected,
        &process::run(&mut run.hartline_command(&[])?, b"")?,
    )
}

/// Signals sent to `hartline` reach the first process; `SIGINT` reaches its whole process group.
fn outside_signals() -> Result<()> {
    let [_, root] = roots()?;
    let text = "trap 'echo told; exit 3' TERM; trap 'echo parent' INT; \
                (trap 'echo child; exit 0' INT; echo ready; while :; do sleep 0.01; done); \
                while :; do sleep 0.01; done";
    let run = Run::new(&paths::busybox(), ["sh", "-c", text]);
    let run = run.in_root(root.path(), "/bin/busybox");
    let mut wrapper = Command::new("sh");
    let hartline = run.hartline_command(&[])?;
    // Each signal is sent when the previous one has taken effect.
    let folder = Scratch::new()?;
    let output = folder.path().join("output");
    let script = "output=$1; shift; \"$@\" >$output & pid=$!
        await() { until grep -q $1 $output || ! kill -0 $pid; do sleep 0.1; done; }
        await ready; kill -INT $pid; await child; await parent; kill -TERM $pid; wait $pid
        code=$?; cat $output; exit $code";
    wrapper
        .args(["-c", script, "sh"])
        .arg(output)
        .arg(hartline.get_program());
    wrapper.args(hartline.get_args()).env_clear();
    for (name, value) in hartline.get_envs() {
        if let Some(value) = value {
            wrapper.env(name, value);
        }
    }
    let outcome = process::run(&mut wrapper, b"")?;
    let mut lines: Vec<_> = outcome.stdout_text().lines().map(str::to_owned).collect();
    lines.sort();
    match outcome.code == 3 && lines == ["child", "parent", "ready", "told"] {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}
