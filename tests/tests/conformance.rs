//! The system calls, area by area: C programs that count assertions, which must hold on this
//! machine's Linux, under the reference and in Hartline. Random calls, which the VM must survive.

use hartline_tests::compare::Run;
use hartline_tests::compile::{self, Set, VARIANTS, Variant};
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// The build to run.
const BUILD: Variant = VARIANTS[1];

/// The least sum of assertions on each of the systems.
const FEWEST: u32 = 400;

fn main() -> ExitCode {
    let mut suite = Suite::of_waiting_tests();
    let areas = Set::Conformance.names().unwrap_or_default();
    suite.add("this machine: at least 400 assertions", native);
    suite.add("reference: at least 400 assertions", || {
        // The reference itself rejects most bad arguments. Its `semid_ds` is not that of riscv64, and
        // it faults in operations on semaphores. It supports few combinations of flags of `clone`, and
        // neither asynchronous I/O, `mq_notify`, filters of ICMP, `SO_TIMESTAMPNS`, `seccomp`,
        // `userfaultfd`, `rseq` nor most options of multicast groups. It would mount on the host.
        let except = [
            "aio",
            "clones",
            "groups",
            "hostile",
            "icmp",
            "ipc",
            "mounts",
            "mqueue",
            "overlays",
            "packets",
            "rseq",
            "seccomp",
            "userfaults",
        ];
        count(&except, |area| {
            let folder = Scratch::new()?;
            let run = Run::new(&Set::Conformance.build(BUILD)?, [area, path(&folder)?]);
            run.with_env("EMULATED", "1").reference()
        })
    });
    suite.add_kvm("Hartline: at least 400 assertions", || {
        count(&[], |area| in_hartline(area, &["--interpret"]))
    });
    for area in areas {
        suite.add_kvm(format!("--cpus 2: {area}"), move || {
            passed(&area, &in_hartline(&area, &["--cpus", "2"])?).map(drop)
        });
    }
    suite.add_kvm("every system call has hostile arguments", || {
        let run = Run::new(
            &Set::Conformance.build(BUILD)?,
            ["hostile", "/tmp", "complete"],
        );
        passed("hostile", &run.interpreted()?).map(drop)
    });
    for area in ["ipc", "mqueue"] {
        suite.add_kvm(
            format!("{area}: full message queues in a small VM"),
            move || {
                let run = Run::new(&Set::Conformance.build(BUILD)?, [area, "/tmp", "full"]);
                let mut command = run.hartline_command(&["--mem", "192M"])?;
                passed(area, &process::run(&mut command, b"")?).map(drop)
            },
        );
    }
    suite.add_kvm("random system calls", random_calls);
    suite.run()
}

fn path(folder: &Scratch) -> Result<&str> {
    let path = folder.path().to_str();
    path.ok_or_else(|| "the folder's name is no text".into())
}

fn in_hartline(area: &str, options: &[&str]) -> Result<Outcome> {
    let program = Set::Conformance.build(BUILD)?;
    hartline::binary()?;
    let run = Run::new(&program, [area, "/tmp"]).with_env("HAS_XATTR", "1");
    process::run(&mut run.hartline_command(options)?, b"")
}

/// Returns how many assertions a program made; fails unless all of them held.
fn passed(area: &str, outcome: &Outcome) -> Result<u32> {
    let text = outcome.stdout_text();
    let last = text.lines().last().unwrap_or_default();
    let number = last
        .strip_prefix(&format!("{area}: "))
        .and_then(|rest| rest.strip_suffix(" assertions, 0 failed"))
        .and_then(|number| number.parse().ok());
    match number {
        Some(number) if outcome.code == 0 => Ok(number),
        _ => Err(format!(
            "{area}: exit code {}\n{text}{}",
            outcome.code,
            outcome.stderr_text()
        )
        .into()),
    }
}

/// Runs all areas except some, and prints how many assertions held.
fn count(except: &[&str], run: impl Fn(&str) -> Result<Outcome>) -> Result<()> {
    let mut sum = 0;
    let areas = Set::Conformance.names()?;
    for area in areas.iter().filter(|area| !except.contains(&area.as_str())) {
        let number = passed(area, &run(area)?)?;
        println!("{area}: {number}");
        sum += number;
    }
    println!("{sum} assertions");
    match sum >= FEWEST {
        true => Ok(()),
        false => Err(format!("only {sum} assertions").into()),
    }
}

/// Runs the programs natively: their assertions hold on Linux.
fn native() -> Result<()> {
    let program = Set::Conformance.build_here()?;
    count(&[], |area| {
        let folder = Scratch::new()?;
        process::run(Command::new(&program).arg(area).arg(folder.path()), b"")
    })
}

/// Makes random calls for a minute: they may end the program, but not the VM. `HARTLINE_SEED`
/// repeats a run, `HARTLINE_FUZZ_SECONDS` sets its duration.
fn random_calls() -> Result<()> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let program = compile::alone("fuzzer", "riscv64-linux-gnu-gcc")?;
    let limit = Duration::from_secs(number("HARTLINE_FUZZ_SECONDS").unwrap_or(20));
    let first = number("HARTLINE_SEED").unwrap_or(1);
    let started = Instant::now();
    let mut seed = first;
    while started.elapsed() < limit {
        random_run(&program, seed)?;
        seed += 1;
    }
    println!("seeds {first} to {}", seed - 1);
    Ok(())
}

fn random_run(program: &Path, seed: u64) -> Result<()> {
    const MILLISECONDS: &str = "3000";
    let seed_text = seed.to_string();
    let run = Run::new(program, [seed_text.as_str(), MILLISECONDS]);
    let cpus = if seed.is_multiple_of(2) { "2" } else { "1" };
    let options = [
        "--interpret",
        "--mem",
        "256M",
        "--timeout",
        "300",
        "--cpus",
        cpus,
    ];
    let outcome = process::run(&mut run.hartline_command(&options)?, b"")?;
    let message = outcome.stderr_text();
    let is_told = match outcome.code {
        // Random calls may have written to the terminal before this line.
        0 => outcome.stdout_text().contains("made "),
        // The VM reports why it ended: only lack of memory is allowed.
        125 => message.contains("memory"),
        124 => false,
        code => code > 128,
    };
    match is_told && !message.contains("panicked") {
        true => Ok(()),
        false => Err(format!("HARTLINE_SEED={seed}: {outcome:?}").into()),
    }
}
