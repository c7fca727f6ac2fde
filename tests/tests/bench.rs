//! `hartline bench compute` with two of its quickest benchmarks: it runs them in all three ways,
//! compares their output, and reports errors. `hartline bench syscalls` and `disk` with few
//! operations.

use hartline_tests::compile;
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::{Result, hartline, paths};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_kvm("two benchmarks in three ways", three_ways);
    suite.add_kvm("another output is a failure", another_output);
    suite.add("commands of one benchmark", commands);
    suite.add("programs that are not there", missing_programs);
    suite.add("versions of Debian's packages", versions);
    suite.add_kvm("every system call operation", syscalls);
    suite.add_kvm("threads in three ways", threads);
    suite.add_kvm("first runs", first_runs);
    suite.add_kvm("work in parts", parallel);
    suite.add_kvm("every debugger", debuggers);
    suite.add_kvm("every disk workload", disk);
    suite.add_kvm("snapshots, clones, servers and calls", snapshot);
    suite.run()
}

/// Returns [`programs`], translated before: both tests that run them need the translations, which
/// take longer than a run may.
fn translated() -> Result<&'static Path> {
    let directory = programs()?;
    hartline::translate(&directory.join("riscv64/kernels"))?;
    Ok(directory)
}

/// Makes the part of `make bench-programs` that these tests need.
fn programs() -> Result<&'static Path> {
    static PROGRAMS: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let made = PROGRAMS.get_or_init(|| {
        let directory = paths::work().join("bench");
        let script = paths::repository().join("tests/bench/build.sh");
        compile::check(Command::new(script).arg(&directory).arg("kernels"))
            .map_err(|error| format!("{error:?}"))?;
        Ok(directory)
    });
    made.as_deref().map_err(|error| error.as_str().into())
}

fn bench(programs: &Path, arguments: &[&str]) -> Result<Outcome> {
    let mut command = hartline::bench()?;
    command.args(["compute", "--quick", "--programs"]);
    process::run(command.arg(programs).args(arguments), b"")
}

fn check(condition: bool, outcome: &Outcome) -> Result<()> {
    match condition {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

fn three_ways() -> Result<()> {
    let outcome = bench(
        translated()?,
        &["--json", "--filter", "sieve", "--filter", "matmul"],
    )?;
    let text = outcome.stdout_text();
    check(outcome.code == 0, &outcome)?;
    for part in [
        r#""name":"sieve""#,
        r#""name":"matmul""#,
        r#""group":"floating-point""#,
        r#""not_yet":[],"failed":[]"#,
    ] {
        check(text.contains(part), &outcome)?;
    }
    check(text.matches(r#""native_s":"#).count() == 2, &outcome)
}

/// If the native program prints something else, both the table and the exit code report it.
fn another_output() -> Result<()> {
    let real = translated()?;
    let directory = paths::work().join("bench-changed");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(directory.join("native"))?;
    for name in ["riscv64", "input", "qemu-riscv64"] {
        symlink(real.join(name), directory.join(name))?;
    }
    symlink("/bin/echo", directory.join("native/kernels"))?;
    let outcome = bench(&directory, &["--filter", "sieve"])?;
    let told =
        "failed: sieve: qemu-riscv64: the output differs from the native program's at byte 6";
    check(outcome.code == 125, &outcome)?;
    check(outcome.stdout_text().contains(told), &outcome)?;
    check(
        outcome.stderr_text().contains("1 benchmark(s) failed"),
        &outcome,
    )
}

fn commands() -> Result<()> {
    let outcome = bench(programs()?, &["--commands", "--filter", "sieve"])?;
    let text = outcome.stdout_text();
    check(outcome.code == 0, &outcome)?;
    check(text.starts_with("# sieve\n"), &outcome)?;
    // The native command can be run as printed.
    let line = text.lines().nth(1).unwrap_or_default();
    let native = process::run(Command::new("sh").args(["-c", line]), b"")?;
    check(native.stdout_text().starts_with("sieve "), &native)
}

fn missing_programs() -> Result<()> {
    let outcome = bench(programs()?, &["--filter", "secp256k1-verify"])?;
    check(outcome.code == 125, &outcome)?;
    let told = "secp256k1: missing (make bench-programs prepares it)\n";
    check(outcome.stderr_text().ends_with(told), &outcome)
}

/// Runs `build.sh` with packages of different versions for the two architectures. Their programs do
/// nothing.
fn versions() -> Result<()> {
    let folder = paths::work().join("bench-versions");
    let _ = fs::remove_dir_all(&folder);
    for inner in ["tests/bench", "deploy/setup"] {
        fs::create_dir_all(folder.join(inner))?;
    }
    for name in ["build.sh", "logs.awk", "workloads"] {
        let name = format!("tests/bench/{name}");
        symlink(paths::repository().join(&name), folder.join(&name))?;
    }
    symlink("/bin/true", folder.join("deploy/setup/fetch-debian.sh"))?;
    for arch in ["amd64", "riscv64"] {
        let programs = folder.join(".debian").join(arch).join("usr/bin");
        fs::create_dir_all(&programs)?;
        for name in ["busybox", "qemu-riscv64"] {
            symlink("/bin/true", programs.join(name))?;
        }
    }
    let build = |native: &str, riscv64: &str, mixed: &str| {
        for (arch, version) in [("amd64", native), ("riscv64", riscv64)] {
            let stamps = folder.join(".debian").join(arch).join(".unpacked");
            let _ = fs::remove_dir_all(&stamps);
            fs::create_dir_all(&stamps)?;
            fs::write(stamps.join(format!("busybox-static_{version}")), "")?;
        }
        let mut command = Command::new(folder.join("tests/bench/build.sh"));
        command.arg(folder.join("out")).arg("busybox");
        process::run(command.env("HARTLINE_BENCH_MIXED", mixed), b"")
    };
    let written = || fs::read_to_string(folder.join("out/versions/busybox.json"));

    let same = build("1%3a1.37-6+b9", "1%3a1.37-6", "")?;
    check(same.code == 0 && same.stderr.is_empty(), &same)?;
    let json = "[{\"package\":\"busybox-static\",\"native\":\"1:1.37-6+b9\",\
                \"riscv64\":\"1:1.37-6\"}]\n";
    check(written()? == json, &same)?;

    let revision = build("1.37-6+deb13u2", "1.37-6+deb13u1", "")?;
    let warning = "warning: busybox-static is 1.37-6+deb13u2 for amd64 and 1.37-6+deb13u1 \
                   for riscv64\n";
    check(revision.code == 0, &revision)?;
    check(revision.stderr_text().ends_with(warning), &revision)?;
    check(written()?.contains("1.37-6+deb13u2"), &revision)?;

    let refused = build("1.38-1", "1.37-1", "")?;
    let error = "busybox: the upstream versions differ: try again when Debian has the same for \
                 both, or compare them nevertheless with HARTLINE_BENCH_MIXED=1\n";
    check(refused.code == 1, &refused)?;
    check(refused.stderr_text().ends_with(error), &refused)?;
    check(written()?.contains("1.37-6+deb13u2"), &refused)?;
    let mixed = build("1.38-1", "1.37-1", "1")?;
    check(mixed.code == 0, &mixed)?;
    check(written()?.contains("1.38-1"), &mixed)
}

/// Reads of a small file in both ways.
fn disk() -> Result<()> {
    let directory = paths::work().join("bench-disk");
    let script = paths::repository().join("tests/bench/build.sh");
    compile::check(Command::new(script).arg(&directory).arg("disk"))?;
    let mut command = hartline::bench()?;
    command.args(["disk", "--quick", "--json", "--size", "4", "--directory"]);
    command.arg(&directory).arg("--programs").arg(&directory);
    let outcome = process::run(&mut command, b"")?;
    check(outcome.code == 0, &outcome)?;
    let rows = outcome
        .stdout_text()
        .matches(r#""hartline_per_s":"#)
        .count();
    check(rows == 4, &outcome)
}

/// A program from its snapshot in every way, and its calls.
fn snapshot() -> Result<()> {
    let directory = paths::work().join("bench-snapshot");
    let script = paths::repository().join("tests/bench/build.sh");
    compile::check(Command::new(script).arg(&directory).arg("snapshot"))?;
    let mut command = hartline::bench()?;
    command.args(["snapshot", "--quick", "--json", "--programs"]);
    let outcome = process::run(command.arg(&directory), b"")?;
    check(outcome.code == 0, &outcome)?;
    let text = outcome.stdout_text();
    let counts = ["warm_ms", "warm_per_s", "ephemeral_ms", "hartline_us"]
        .map(|name| text.matches(&format!(r#""{name}":"#)).count());
    check(counts == [1, 1, 1, 5], &outcome)
}

/// Threads run natively, translated and interpreted.
fn threads() -> Result<()> {
    let directory = paths::work().join("bench-threads");
    let script = paths::repository().join("tests/bench/build.sh");
    compile::check(Command::new(script).arg(&directory).arg("threads"))?;
    let mut command = hartline::bench()?;
    command.args(["threads", "--quick", "--json", "--programs"]);
    let outcome = process::run(command.arg(&directory), b"")?;
    check(outcome.code == 0, &outcome)?;
    let text = outcome.stdout_text();
    check(text.matches(r#""speed_up":"#).count() == 3, &outcome)
}

/// A program with each debugger, without one before it: gdb says how the program ended.
fn debuggers() -> Result<()> {
    let directory = paths::work().join("bench-debug");
    let script = paths::repository().join("tests/bench/build.sh");
    compile::check(Command::new(script).arg(&directory).arg("debug"))?;
    let mut command = hartline::bench()?;
    command.args(["debug", "--quick", "--json", "--filter", "static"]);
    let outcome = process::run(command.arg("--programs").arg(&directory), b"")?;
    check(outcome.code == 0, &outcome)?;
    let text = outcome.stdout_text();
    check(text.matches(r#""speed":"#).count() == 5, &outcome)
}

/// First and second runs. The outputs of all ways are compared.
fn first_runs() -> Result<()> {
    let directory = paths::work().join("bench-cold");
    let script = paths::repository().join("tests/bench/build.sh");
    compile::check(Command::new(script).arg(&directory).arg("busybox"))?;
    let mut command = hartline::bench()?;
    command.args(["cold", "--json", "--runs", "1", "--filter", "hello"]);
    command.args(["--filter", "sh", "--programs"]);
    let outcome = process::run(command.arg(&directory), b"")?;
    check(outcome.code == 0, &outcome)?;
    let text = outcome.stdout_text();
    let counts = ["first_s", "second_s", "qemu_s"]
        .map(|name| text.matches(&format!(r#""{name}":"#)).count());
    check(
        counts == [2; 3] && text.contains(r#""failed":[]"#),
        &outcome,
    )
}

/// Work in parts, by threads and by OpenMP, natively and in a VM: the program compares all results.
fn parallel() -> Result<()> {
    let directory = paths::work().join("bench-parallel");
    let script = paths::repository().join("tests/bench/build.sh");
    compile::check(Command::new(script).arg(&directory).arg("parallel"))?;
    let mut command = hartline::bench()?;
    command.args(["parallel", "--quick", "--json", "--programs"]);
    let outcome = process::run(command.arg(&directory), b"")?;
    check(outcome.code == 0, &outcome)?;
    let text = outcome.stdout_text();
    check(text.matches(r#""speed_up":"#).count() == 12, &outcome)
}

/// All operations run in both ways; operations that stay in the guest cause no exits.
fn syscalls() -> Result<()> {
    let directory = paths::work().join("bench-syscalls");
    let script = paths::repository().join("tests/bench/build.sh");
    compile::check(Command::new(script).arg(&directory).arg("syscalls"))?;
    hartline::translate(&directory.join("roots/riscv64/syscalls/syscalls"))?;
    let mut command = hartline::bench()?;
    command.args(["syscalls", "--quick", "--json", "--programs"]);
    let outcome = process::run(command.arg(&directory), b"")?;
    let text = outcome.stdout_text();
    check(outcome.code == 0, &outcome)?;
    check(text.matches(r#""hartline_ns":"#).count() == 17, &outcome)?;
    let calls = text.split(r#""name":"getppid""#).nth(1).unwrap_or_default();
    let exits = calls.split(r#""exits":"#).nth(1).unwrap_or_default();
    let exits = exits.split('}').next().unwrap_or_default();
    // Interrupts of the host may cause a few exits.
    check(
        exits.parse::<f64>().is_ok_and(|exits| exits < 0.01),
        &outcome,
    )
}
