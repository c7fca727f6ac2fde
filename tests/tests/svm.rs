//! Tests on other kinds of KVM, without this machine's `/dev/kvm`. A few cases run on SVM with
//! nested paging under QEMU emulation (`tests/svm/run.sh`). On request, the interrupt tests run
//! there, and on VT-x with extended page tables under bochs emulation. So does the Debian package's
//! service, with systemd and with cgroups that limit it.

use hartline_tests::compare::Run;
use hartline_tests::compile::{self, VARIANTS};
use hartline_tests::elf::Elf;
use hartline_tests::operations::Extension;
use hartline_tests::process::{Outcome, run_for};
use hartline_tests::sequence::Program;
use hartline_tests::suite::Suite;
use hartline_tests::tree::{self, Scratch};
use hartline_tests::{Result, hartline, paths};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Longer than the emulated machine takes, which is slow.
const DEADLINE: Duration = Duration::from_secs(280);
/// The deadline of cases that take minutes there.
const LONG_DEADLINE: Duration = Duration::from_secs(1600);

/// The text that the machine prints after the last case.
const DONE: &str = "svm: done";

/// Parts of the output of `hartline doctor --json` there: the CPU has nested paging, no AVIC, and
/// instructions up to AVX2.
const DOCTOR: &str = r#""can_run":true
"kvm":"kvm_amd"
"nested_paging":true
"interrupt_virtualization":false
{"name":"avx2","works":true
{"name":"avx512f","works":false
"interrupts":"safepoint","interrupt_modes":["safepoint","injected"]
"#;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add("small suite in emulated SVM", small_suite);
    let reason = "takes minutes: make test-emulated";
    for (machine, name) in [("svm", "SVM"), ("ept", "VT-x")] {
        let name = format!("interrupts in emulated {name}");
        suite.add_unless(name, reason, move || interrupts(machine));
    }
    suite.add_unless("the package's service in emulated SVM", reason, service);
    suite.run()
}

fn small_suite() -> Result<()> {
    let folder = Scratch::new()?;
    let cases = Cases::prepare(folder.path())?;
    let outcome = boot("svm", folder.path(), DEADLINE)?;
    judge(&cases.names, &outcome, "svm: npt Y")
}

/// Runs the tests that depend most on the CPU's virtualisation.
fn interrupts(machine: &str) -> Result<()> {
    let folder = Scratch::new()?;
    let mut cases = Cases::new(folder.path());
    cases.add_interrupts()?;
    fs::write(folder.path().join("list"), &cases.list)?;
    let outcome = boot(machine, folder.path(), LONG_DEADLINE)?;
    judge(
        &cases.names,
        &outcome,
        if machine == "svm" {
            "svm: npt Y"
        } else {
            "svm: ept Y"
        },
    )
}

/// Tests the Debian package under systemd with cgroups that limit it. `make deb` has built the
/// package.
fn service() -> Result<()> {
    const CASES: [&str; 10] = [
        "installed",
        "run",
        "volumes",
        "limits",
        "processes",
        "disk",
        "restarts",
        "watchdog",
        "memory",
        "purged",
    ];
    let mut packages = fs::read_dir(paths::repository().join("target/deb"))?;
    let package = packages.next().ok_or("no package: make deb")??.path();
    let mut script = Command::new(paths::repository().join("tests/svm/service.sh"));
    script.arg(package).arg(compile::service()?);
    let outcome = run_emulated(&mut script, LONG_DEADLINE)?;
    judge(&CASES, &outcome, "")
}

/// Checks that all cases passed, on a CPU that reports `paging`.
fn judge(cases: &[impl AsRef<str>], outcome: &Outcome, paging: &str) -> Result<()> {
    let console = outcome.stdout_text();
    let all_passed = cases
        .iter()
        .all(|name| console.contains(&format!("svm: passed {} (", name.as_ref())));
    for line in console.lines().filter(|line| line.starts_with("svm:")) {
        println!("{line}");
    }
    if outcome.code == 0 && console.contains(paging) && console.contains(DONE) && all_passed {
        Ok(())
    } else {
        Err(format!(
            "exit code {}\n{console}\n{}",
            outcome.code,
            outcome.stderr_text()
        )
        .into())
    }
}

/// Boots the emulated machine, which runs the cases in `folder`.
fn boot(machine: &str, folder: &Path, deadline: Duration) -> Result<Outcome> {
    let mut script = Command::new(paths::repository().join("tests/svm/run.sh"));
    script.arg(machine).arg(hartline::binary()?).arg(folder);
    run_emulated(&mut script, deadline)
}

fn run_emulated(script: &mut Command, deadline: Duration) -> Result<Outcome> {
    // The script ends a little earlier, so that its output is not lost.
    let time = deadline.saturating_sub(Duration::from_secs(10));
    script.env("EMULATED_SECONDS", time.as_secs().to_string());
    run_for(script, b"", deadline)
}

/// The folder with cases that `run.sh` takes.
struct Cases<'a> {
    folder: &'a Path,
    list: String,
    names: Vec<String>,
}

impl<'a> Cases<'a> {
    fn new(folder: &'a Path) -> Self {
        Self {
            folder,
            list: String::new(),
            names: Vec::new(),
        }
    }

    fn prepare(folder: &'a Path) -> Result<Self> {
        let mut cases = Self::new(folder);
        cases.add("doctor", 0, "doctor --json", None)?;
        fs::write(folder.join("doctor.contains"), DOCTOR)?;
        fs::write(folder.join("tiny"), Elf::good()?.bytes)?;
        cases.add("tiny", 7, "run --stats /cases/tiny", Some(b"ok\n"))?;
        let sequence = folder.join("sequence");
        Program::random(Extension::Mixed, 12, 1).build(&sequence)?;
        let expected = Run::new::<&str>(&sequence, []).reference()?.stdout;
        cases.add(
            "sequence-translated",
            0,
            "run /cases/sequence",
            Some(&expected),
        )?;
        cases.add(
            "sequence-interpreted",
            0,
            "run --interpret /cases/sequence",
            Some(&expected),
        )?;
        cases.add_programs()?;
        cases.add_busybox()?;
        if Path::new("/dev/kvm").exists() {
            cases.add_snapshot()?;
        }
        fs::write(folder.join("list"), &cases.list)?;
        Ok(cases)
    }

    fn add(
        &mut self,
        name: &str,
        code: i32,
        arguments: &str,
        expected: Option<&[u8]>,
    ) -> Result<()> {
        writeln!(self.list, "{name} {code} {arguments}")?;
        self.names.push(name.to_owned());
        if let Some(expected) = expected {
            fs::write(self.folder.join(format!("{name}.expected")), expected)?;
        }
        Ok(())
    }

    /// Adds the interrupt tests, including guests that attack them.
    fn add_interrupts(&mut self) -> Result<()> {
        let program = self.folder.join("interrupts");
        fs::copy(hartline::unit_tests("hostile")?, program)?;
        // The throughput of one VM beside others means nothing in an emulated machine.
        let arguments = "/cases/interrupts --test-threads=1 --skip throughput";
        self.add("interrupts", 0, arguments, None)
    }

    fn add_programs(&mut self) -> Result<()> {
        let program = compile::programs(VARIANTS[1])?;
        fs::copy(&program, self.folder.join("programs"))?;
        let rows: [&[&str]; 6] = [
            &["dispatch"],
            &["signals"],
            &["memory"],
            &["fault", "null-store"],
            &["fault", "stack-overflow"],
            &["fault", "illegal"],
        ];
        for row in rows {
            let expected = Run::new(&program, row.iter().copied()).reference()?;
            let arguments = format!("run --interpret /cases/programs {}", row.join(" "));
            self.add(
                &row.join("-"),
                expected.code,
                &arguments,
                Some(&expected.stdout),
            )?;
        }
        Ok(())
    }

    fn add_busybox(&mut self) -> Result<()> {
        fs::copy(paths::busybox(), self.folder.join("busybox"))?;
        let data = self.folder.join("data.bin");
        fs::write(&data, tree::bytes(20_000, 1))?;
        let run = Run::new(&paths::busybox(), ["sha256sum", "-"]).with_stdin(fs::read(&data)?);
        let digest = run.reference()?.stdout_text().replace('-', "/data.bin");
        let arguments = "run --interpret --volume /cases/data.bin:/data.bin:ro /cases/busybox sha256sum /data.bin";
        self.add("busybox", 0, arguments, Some(digest.as_bytes()))
    }
    /// Adds a program that goes on there from a snapshot of this machine, whose KVM and processor are others. Its standard
    /// input is empty there.
    fn add_snapshot(&mut self) -> Result<()> {
        const SCRIPT: &str = "x=1; mkdir /tmp/d; cd /tmp/d; read y; echo $x $y $PWD; \
            echo hello | /busybox sha256sum; exit 9";
        const EXPECTED: &[u8] = b"1 /tmp/d\n\
            5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03  -\n";
        let snapshot = self.folder.join("snapshot");
        let run = Run::new(&paths::busybox(), ["sh", "-c", SCRIPT]);
        let mut command = run.hartline_command(&[
            "--mem",
            "64M",
            "--snapshot",
            &snapshot.display().to_string(),
            "--snapshot-at",
            "stdin",
            "--snapshot-end",
        ])?;
        let outcome = run_for(&mut command, b"", DEADLINE)?;
        if outcome.code != 0 || !outcome.stdout.is_empty() {
            return Err(format!("{outcome:?}").into());
        }
        let arguments = "run --interpret --from /cases/snapshot";
        self.add("snapshot", 9, arguments, Some(EXPECTED))
    }
}
