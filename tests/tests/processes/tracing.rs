//! Processes that trace others with `ptrace`, and Debian's strace. The reference has no `ptrace`, so programs
//! themselves know each status.

use super::{alone, as_on_this_machine};
use hartline_tests::Result;
use hartline_tests::dynamic::Root;
use hartline_tests::process;
use hartline_tests::suite::Suite;

/// Rows that run on one vCPU, on several, and interpreted.
const WAYS: [(&str, &[&str]); 3] = [
    ("", &[]),
    (", several vCPUs", &["--cpus", "3"]),
    (", interpreted", &["--interpret"]),
];

/// What the programs print.
const PTRACE: &str = "privileges\nmemory and registers\nsystem calls\nsignals\nbreakpoint and step\n\
    events of processes\nseize a task that waits\nseize a task that computes\nlistens\npending signals\n\
    killed in a system call\ntracer ends\ntracer ends and kills\n";
const TRACERS: &str = "filters ask the tracer\na tracer that was asked leaves\na thread executes a program\n\
    group-stops of threads\nrights to attach\ntracer ends, state 0\ntracer ends, state 1\n\
    tracer ends, state 2\ntracer ends, state 3\ntracer ends, state 4\ntracer ends, state 5\n";

pub fn add(suite: &mut Suite) {
    for (way, options) in WAYS {
        suite.add_kvm(format!("ptrace{way}"), || says("ptrace", PTRACE, options));
        suite.add_kvm(format!("ptrace of threads{way}"), || {
            says("tracers", TRACERS, options)
        });
        suite.add_kvm(format!("ptrace of calls and filters{way}"), || {
            as_on_this_machine("traced_calls", options)
        });
        suite.add_kvm(format!("strace{way}"), || strace(&[], options));
        suite.add_kvm(format!("strace of a program that is stopped{way}"), || {
            strace_of_stops(options)
        });
        suite.add_kvm(format!("strace --seccomp-bpf{way}"), || {
            strace(&["--seccomp-bpf"], options)
        });
    }
    for cpus in ["1", "3"] {
        suite.add_kvm(format!("{cpus} vCPUs: many tracees"), move || tracees(cpus));
    }
}

fn says(program: &str, expected: &str, options: &[&str]) -> Result<()> {
    let outcome = alone(program, &[], options)?;
    let (output, errors) = (outcome.stdout_text(), outcome.stderr_text());
    match output == expected && outcome.code == 0 {
        true => Ok(()),
        false => Err(format!("exit code {}, {output}{errors}", outcome.code).into()),
    }
}

/// Traces many processes at once, and makes random requests.
fn tracees(cpus: &str) -> Result<()> {
    for seed in ["1", "2", "3"] {
        let outcome = alone("tracees", &[seed], &["--cpus", cpus])?;
        let (output, errors) = (outcome.stdout_text(), outcome.stderr_text());
        if output != "1000 tracees, 0 wrong\nrandom requests\n" || outcome.code != 0 {
            let code = outcome.code;
            return Err(format!("seed {seed}: exit code {code}, {output}{errors}").into());
        }
    }
    Ok(())
}

/// Debian's `strace` in the VM shows the calls of a shell and its children.
fn strace(how: &[&str], options: &[&str]) -> Result<()> {
    const CALLS: &str = "exit_group(0) = ?\nwrite(1, \"one\\n\", 4) = 4\nwrite(1, \"two\\n\", 4) = 4\n\
        exit_group(3) = ?\nwrite(1, \"3\\n\", 2) = 2\nexit_group(0) = ?\n";
    let name = format!("strace{}{}", how.concat(), options.concat());
    let root = Root::new(&name, ["dash", "sleep", "strace"].into_iter())?;
    let script = "/usr/bin/sleep 0; echo one; (echo two; exit 3); echo $?";
    let traced = "-f -qq -e trace=write,exit_group -e signal=none /usr/bin/dash -c";
    let arguments: Vec<&str> = how
        .iter()
        .copied()
        .chain(traced.split(' '))
        .chain([script])
        .collect();
    let run = root.run("strace", &arguments);
    let outcome = process::run(&mut run.hartline_command(options)?, b"")?;
    // Each line without the number of its process, the padding, and calls that strace has no name for.
    let errors = outcome.stderr_text();
    let calls = errors.lines().filter(|line| !line.contains("syscall_0x"));
    let calls: String = calls
        .map(|line| {
            let call = match line.strip_prefix("[pid") {
                Some(rest) => rest.split_once("] ").map_or(rest, |(_, call)| call),
                None => line,
            };
            let words: Vec<&str> = call.split_whitespace().collect();
            words.join(" ") + "\n"
        })
        .collect();
    match calls == CALLS && outcome.stdout_text() == "one\ntwo\n3\n" && outcome.code == 0 {
        true => Ok(()),
        false => Err(format!("exit code {}, {errors}", outcome.code).into()),
    }
}

/// Debian's `strace` in the VM follows a program that is stopped and continues: the lines of Linux. The shell
/// continues the program when its own wait has shown that the program has stopped: an earlier `SIGCONT` would
/// end the stop before it begins.
fn strace_of_stops(options: &[&str]) -> Result<()> {
    const SIGNALS: &str = "SIGSTOP {si_signo=SIGSTOP, si_code=SI_USER\nstopped by SIGSTOP ---\n\
        SIGCONT {si_signo=SIGCONT, si_code=SI_USER\n";
    const SCRIPT: &str = "set -m; bash -c 'kill -STOP $$; echo on'; echo stopped $?; \
        fg %1 >/dev/null; echo $?";
    let root = Root::new(
        &format!("strace-stops{}", options.concat()),
        ["bash", "strace"].into_iter(),
    )?;
    let traced = "-f -qq -e trace=none -e signal=SIGSTOP,SIGCONT /usr/bin/bash -c";
    let arguments: Vec<&str> = traced.split(' ').chain([SCRIPT]).collect();
    let run = root.run("strace", &arguments);
    let outcome = process::run(&mut run.hartline_command(options)?, b"")?;
    let errors = outcome.stderr_text();
    // Without the numbers of processes, and the shell's message about the job.
    let lines = errors.lines().filter_map(|line| line.split_once("--- "));
    let signals = lines.map(|(_, what)| what.split(", si_pid").next().unwrap_or_default());
    let signals: String = signals.map(|signal| format!("{signal}\n")).collect();
    let output = outcome.stdout_text();
    match signals == SIGNALS && output == "stopped 147\non\n0\n" && outcome.code == 0 {
        true => Ok(()),
        false => Err(format!("exit code {}, {output}{errors}", outcome.code).into()),
    }
}
