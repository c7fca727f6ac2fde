//! Snapshots: programs go on from them with all their state, and what is damaged, unfinished or not
//! supported gives an error.

#[path = "snapshot/clocks.rs"]
mod clocks;
#[path = "snapshot/damaged.rs"]
mod damaged;
#[path = "snapshot/debugger.rs"]
mod debugger;
#[path = "snapshot/interrupted.rs"]
mod interrupted;
#[path = "snapshot/limits.rs"]
mod limits;
#[path = "snapshot/memory.rs"]
mod memory;
#[path = "snapshot/network.rs"]
mod network;
#[path = "snapshot/processors.rs"]
mod processors;

use hartline_tests::compare::Run;
use hartline_tests::dynamic::Root;
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline, paths};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time for which a step of a running program is awaited.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for cpus in [1, 3] {
        let named = |name: &str| match cpus {
            1 => name.to_owned(),
            _ => format!("{name}, {cpus} vCPUs"),
        };
        suite.add_kvm(named("every kind of state"), move || everything(cpus, &[]));
        let name = named("the program goes on after its snapshot");
        suite.add_kvm(name, move || goes_on(cpus));
        suite.add_kvm(named("busybox sh"), move || shell(cpus));
        let name = named("python3 in a root directory");
        suite.add_kvm(name, move || python(cpus, None));
        let name = named("at a signal, while the program computes");
        suite.add_kvm(name, move || at_a_signal(cpus));
        let name = named("at a signal, in the middle of everything");
        suite.add_kvm(name, move || while_busy(cpus));
        suite.add_kvm(named("at accept"), move || listening(cpus, "accept"));
        suite.add_kvm(named("at epoll_wait"), move || listening(cpus, "epoll"));
        let name = named("a snapshot of a program from a snapshot");
        suite.add_kvm(name, move || again(cpus));
        let name = named("freed memory is left out");
        suite.add_kvm(name, move || memory::freed(cpus));
        let name = named("a network: two VMs go on");
        suite.add_root_kvm(name, move || network::goes_on(cpus));
        let name = named("a network: the program itself");
        suite.add_root_kvm(name, move || network::original(cpus));
    }
    suite.add_kvm("every kind of state, interpreted", || {
        everything(1, &["--interpret"])
    });
    suite.add_kvm("python3 in a tar file", || {
        python(1, Some(("tar", &["tar", "-cf"])))
    });
    suite.add_kvm("python3 in an EROFS image", || {
        python(1, Some(("erofs", &["mkfs.erofs", "--quiet"])))
    });
    suite.add_kvm("a core dump of a program from a snapshot", core_dump);
    suite.add_kvm("a debugger of a program from a snapshot", debugger::of_read);
    suite.add_kvm("a debugger of threads that wait", debugger::of_threads);
    suite.add_kvm(
        "a debugger of a program that computes",
        debugger::of_computing,
    );
    suite.add_kvm("a debugger that does not come", debugger::of_nobody);
    suite.add_kvm("random numbers and the boot id are new", numbers);
    suite.add_kvm("two VMs at once", at_once);
    suite.add_kvm("many megabytes", memory::large);
    suite.add_kvm("free and zero memory takes no room", memory::holes);
    suite.add_kvm("arguments of the new VM", arguments);
    suite.add_kvm("what a snapshot cannot contain", refused);
    suite.add_kvm("the program ends before", limits::too_late);
    suite.add_kvm("the time limit: the program goes on", limits::late_and_on);
    suite.add_kvm("the time limit: the VM ends", limits::late_and_end);
    suite.add_kvm("the time limit is not reached", limits::in_time);
    suite.add_kvm("damaged: description", damaged::description);
    suite.add_kvm("damaged: memory and tree", damaged::contents);
    suite.add_kvm("damaged after it was checked", damaged::later);
    suite.add_kvm("killed while it is written", interrupted::killed);
    suite.add_kvm("killed while it is restored", interrupted::killed_restoring);
    suite.add_root_kvm("the host's clocks are ahead", clocks::ahead);
    suite.add_root_kvm("the host's clocks are behind", clocks::behind);
    suite.add_root_kvm(
        "the host's clocks jump there and back",
        clocks::there_and_back,
    );
    suite.add_kvm("a processor with fewer extensions", processors::fewer);
    suite.add_kvm("a processor with more extensions", processors::more);
    suite.add_root_kvm("no room on the disk", interrupted::full);
    suite.add_root_kvm("a network: many snapshots", network::again);
    suite.add_root_kvm("a network: many clients", network::clients_at_once);
    suite.add_root_kvm("a network: what is refused", network::refused);
    suite.run()
}

/// A directory for snapshots, and the program that makes them.
struct Place {
    folder: Scratch,
    program: PathBuf,
    /// Number of vCPUs of the VMs that write snapshots.
    cpus: u32,
}

impl Place {
    fn new() -> Result<Self> {
        Self::on(1)
    }

    fn on(cpus: u32) -> Result<Self> {
        Ok(Self {
            cpus,
            folder: Scratch::new()?,
            program: compile::alone("snapshot", "riscv64-linux-gnu-gcc")?,
        })
    }

    /// The path of the snapshot `name`.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the command that runs a part of the program and writes the snapshot `name` when `at`
    /// says.
    fn writing(&self, name: &str, at: &str, part: &[&str], options: &[&str]) -> Result<Command> {
        let run = Run::new(&self.program, part.iter().copied());
        self.writing_of(&run, name, at, options)
    }

    /// As [`writing`](Self::writing), of any program.
    fn writing_of(&self, run: &Run, name: &str, at: &str, options: &[&str]) -> Result<Command> {
        let cpus = format!("--cpus={}", self.cpus);
        writing(run, &self.path(name), at, &[options, &[&cpus]].concat())
    }

    /// Writes the snapshot `name` of a part of the program at its first read, and ends the VM.
    fn write(&self, name: &str, part: &[&str]) -> Result<Outcome> {
        let mut command = self.writing(name, "stdin", part, &["--snapshot-end"])?;
        let outcome = process::run(&mut command, b"")?;
        match outcome.code {
            0 => Ok(outcome),
            _ => Err(format!("{outcome:?}").into()),
        }
    }

    /// Continues the snapshot `name` with `input`.
    fn from(&self, name: &str, input: &str, options: &[&str]) -> Result<Outcome> {
        process::run(&mut from(&self.path(name), options)?, input.as_bytes())
    }
}

/// Returns the command of a run that writes a snapshot when `at` says.
fn writing(run: &Run, snapshot: &Path, at: &str, options: &[&str]) -> Result<Command> {
    let snapshot = snapshot.display().to_string();
    let own = ["--snapshot", &snapshot, "--snapshot-at", at];
    run.hartline_command(&[&own[..], options].concat())
}

/// Returns the command that continues a snapshot.
fn from(snapshot: &Path, options: &[&str]) -> Result<Command> {
    let mut command = hartline::command("run")?;
    command.args(options).arg("--from").arg(snapshot);
    Ok(command)
}

fn expect(outcome: &Outcome, code: i32, stdout: &str) -> Result<()> {
    match outcome.code == code && outcome.stdout_text() == stdout && outcome.stderr.is_empty() {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// Fails unless hartline refuses with one line that contains `message`.
fn expect_refusal(outcome: &Outcome, message: &str) -> Result<()> {
    let text = outcome.stderr_text();
    let is_line = text.lines().count() == 1 && text.starts_with("hartline: ");
    match outcome.code == 125 && outcome.stdout.is_empty() && is_line && text.contains(message) {
        true => Ok(()),
        false => Err(format!("expected {message:?}: {outcome:?}").into()),
    }
}

fn everything(cpus: u32, options: &[&str]) -> Result<()> {
    let place = Place::on(cpus)?;
    let options = [options, &["--snapshot-end"]].concat();
    let mut command = place.writing("one", "stdin", &["everything"], &options)?;
    expect(&process::run(&mut command, b"0 not read")?, 0, "before\n")?;
    let options = &options[..options.len() - 1];
    for (code, word) in [(3, "first"), (4, "second")] {
        let outcome = place.from("one", &format!("{code} {word}\n"), options)?;
        let text = format!("after {word}\nwiped 1 0\nall there\n");
        expect(&outcome, code, &text)?;
    }
    Ok(())
}

fn goes_on(cpus: u32) -> Result<()> {
    let place = Place::on(cpus)?;
    let mut command = place.writing("one", "stdin", &["everything"], &[])?;
    let outcome = process::run(&mut command, b"5 original\n")?;
    expect(
        &outcome,
        5,
        "before\nafter original\nwiped 0 0\nall there\n",
    )?;
    let outcome = place.from("one", "6 copy\n", &[])?;
    expect(&outcome, 6, "after copy\nwiped 1 0\nall there\n")
}

fn shell(cpus: u32) -> Result<()> {
    let place = Place::on(cpus)?;
    let run = Run::new(
        &paths::busybox(),
        [
            "sh",
            "-c",
            "x=1; mkdir /tmp/d; cd /tmp/d; (read y; echo $x $y $PWD; /busybox sha256sum) | /busybox tr a-z A-Z; exit 9",
        ],
    );
    let mut command = place.writing_of(&run, "sh", "stdin", &["--snapshot-end"])?;
    expect(&process::run(&mut command, b"")?, 0, "")?;
    let outcome = place.from("sh", "word\nhello\n", &[])?;
    let sum = "5891B5B522D5DF086D0FF0B110FBD9D21BB4FC7163AF34D08286A2E846F6BE03";
    expect(&outcome, 9, &format!("1 WORD /TMP/D\n{sum}  -\n"))
}

/// Runs Python in a root directory, or in a file that a command makes of it, given its name.
fn python(cpus: u32, file: Option<(&str, &[&str])>) -> Result<()> {
    let place = Place::on(cpus)?;
    let name = file.map_or("directory", |(name, _)| name);
    let root = format!("snapshot-{name}-{cpus}");
    let root = Root::new(&root, ["python3.13"].into_iter())?;
    root.add_python()?;
    let text = "import json, os, sys\n\
        values = [n * n for n in range(1000)]\n\
        line = sys.stdin.readline().strip()\n\
        import fractions\n\
        print(line, sum(values), json.dumps({'a': [1, 2]}), fractions.Fraction(3, 9), \
              len(open('/data/words.txt').read()) > 0, os.getpid())\n\
        sys.exit(11)";
    let mut run = root.run("python3.13", &["-c", text]);
    if let Some((name, make)) = file {
        let file = place.path(name);
        let mut command = Command::new(make[0]);
        command.args(&make[1..]).arg(&file);
        match name {
            "tar" => command.arg("-C").arg(root.path()).arg("."),
            _ => command.arg(root.path()),
        };
        let made = process::run(&mut command, b"")?;
        if made.code != 0 {
            return Err(format!("{made:?}").into());
        }
        run = run.in_root(&file, "/usr/bin/python3.13");
    }
    let mut command = place.writing_of(&run, "py", "stdin", &["--snapshot-end"])?;
    expect(&process::run(&mut command, b"")?, 0, "")?;
    // The snapshot has the root file system.
    drop(root);
    if let Some((name, _)) = file {
        fs::remove_file(place.path(name))?;
    }
    for word in ["one", "two"] {
        let outcome = place.from("py", &format!("{word}\n"), &[])?;
        expect(
            &outcome,
            11,
            &format!("{word} 332833500 {{\"a\": [1, 2]}} 1/3 True 1\n"),
        )?;
    }
    Ok(())
}

/// A run whose output and input are pipes of the test.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        Ok(Self {
            child,
            output: BufReader::new(output),
        })
    }

    fn expect_line(&mut self, expected: &str) -> Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim_end() == expected {
            true => Ok(()),
            false => Err(format!("{line:?}, expected {expected:?}").into()),
        }
    }

    /// The output to the end of the program.
    fn rest(&mut self) -> Result<String> {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest)?;
        Ok(rest)
    }

    fn signal(&self, signal: i32) -> Result<()> {
        let pid = libc::pid_t::try_from(self.child.id()).map_err(|_| "process number")?;
        // SAFETY: the child has not been waited for, so the number is its own.
        match unsafe { libc::kill(pid, signal) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds.
fn until(what: &str, condition: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return Err(format!("{what}: not after {PATIENCE:?}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn at_a_signal(cpus: u32) -> Result<()> {
    let place = Place::on(cpus)?;
    let mut command = place.writing("one", "signal", &["compute"], &[])?;
    let mut running = Running::start(&mut command)?;
    running.expect_line("ready")?;
    running.signal(libc::SIGUSR2)?;
    let snapshot = place.path("one");
    until("a snapshot", || snapshot.exists())?;
    // The program itself computes on, and a second signal changes nothing.
    running.signal(libc::SIGUSR2)?;
    running
        .child
        .stdin
        .take()
        .ok_or("no input")?
        .write_all(b"x")?;
    running.expect_line("computed")?;
    // Nor do more signals, to the end of the VMM.
    let status = loop {
        running.signal(libc::SIGUSR2)?;
        if let Some(status) = running.child.try_wait()? {
            break status;
        }
    };
    if status.code() != Some(4) {
        return Err(format!("{status}").into());
    }
    expect(&place.from("one", "x", &[])?, 4, "computed\n")
}

/// A snapshot in the middle of a thousand threads, forks, file and pipe I/O, timers and signals, at different moments.
fn while_busy(cpus: u32) -> Result<()> {
    let place = Place::on(cpus)?;
    for (number, pause) in [0, 61].into_iter().enumerate() {
        let name = format!("busy-{number}");
        let mut command = place.writing(&name, "signal", &["busy"], &[])?;
        let mut running = Running::start(&mut command)?;
        running.expect_line("ready")?;
        thread::sleep(Duration::from_millis(pause));
        running.signal(libc::SIGUSR2)?;
        let snapshot = place.path(&name);
        until("a snapshot", || snapshot.exists())?;
        let mut input = running.child.stdin.take().ok_or("no input")?;
        input.write_all(b"x")?;
        running.expect_line("all ended")?;
        let status = process::wait(&mut running.child)?.ok_or("it does not end")?;
        if status.code() != Some(3) {
            return Err(format!("the program itself: {status}").into());
        }
        expect(&place.from(&name, "x", &[])?, 3, "all ended\n")?;
    }
    Ok(())
}

fn listening(cpus: u32, part: &str) -> Result<()> {
    let place = Place::on(cpus)?;
    let mut command = place.writing("one", "listen", &[part], &["--snapshot-end"])?;
    expect(&process::run(&mut command, b"")?, 0, "listening\n")?;
    expect(&place.from("one", "", &[])?, 6, "served hello\n")
}

fn again(cpus: u32) -> Result<()> {
    let place = Place::on(cpus)?;
    let run = Run::new(
        &paths::busybox(),
        ["sh", "-c", "x=1; read y; read z; echo $x $y $z"],
    );
    let mut command = place.writing_of(&run, "one", "stdin", &["--snapshot-end"])?;
    expect(&process::run(&mut command, b"")?, 0, "")?;
    let two = place.path("two").display().to_string();
    let options = ["--snapshot", &two, "--snapshot-at", "stdin"];
    expect(&place.from("one", "a\nb\n", &options)?, 0, "1 a b\n")?;
    expect(&place.from("two", "c\nd\n", &[])?, 0, "1 c d\n")
}

/// The registers in the core dump are exact, although the program began without one.
fn core_dump() -> Result<()> {
    const SIGSEGV: i32 = 11;
    let place = Place::new()?;
    place.write("crash", &["crash"])?;
    let core = place.path("core");
    let name = core.to_string_lossy();
    let outcome = place.from("crash", "x", &["--core", &name])?;
    let text = outcome.stderr_text();
    if outcome.code != 128 + SIGSEGV || !text.contains("load page fault at 0x8") {
        return Err(format!("{outcome:?}").into());
    }
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex", "bt", "-ex", "info registers pc"]);
    let shown = process::run(gdb.arg(&place.program).arg(&core), b"")?.stdout_text();
    process::check_order(
        &shown,
        &["Core was generated by", "falls", "main", "<falls"],
    )
}

fn numbers() -> Result<()> {
    let place = Place::new()?;
    place.write("one", &["numbers"])?;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let outcome = place.from("one", "x", &[])?;
        let text = outcome.stdout_text();
        let lines: Vec<&str> = text.lines().collect();
        let [random, id, time, generation] = lines[..] else {
            return Err(format!("{outcome:?}").into());
        };
        let host = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        if host.as_secs().abs_diff(time.parse()?) > PATIENCE.as_secs() {
            return Err(format!("the time is {time}").into());
        }
        if generation.parse::<i64>()? <= 0 {
            return Err(format!("the generation is {generation}").into());
        }
        seen.extend([random, id, generation].map(str::to_owned));
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    match seen.len() == count {
        true => Ok(()),
        false => Err(format!("{seen:?}").into()),
    }
}

/// The arguments of `--from` are in a file of the new VM, and those of an earlier VM are not.
fn arguments() -> Result<()> {
    let place = Place::new()?;
    place.write("one", &["arguments"])?;
    let run = |name: &str, options: &[&str], arguments: &[&str]| {
        let mut command = from(&place.path(name), options)?;
        process::run(command.args(arguments), b"x")
    };
    let many = ["a b", "", "--from", "\u{e4}"];
    expect(&run("one", &[], &many)?, 0, "[a b][][--from][\u{e4}]\n")?;
    expect(&run("one", &[], &[])?, 0, "none\n")?;
    let two = place.path("two").display().to_string();
    let again = [
        "--snapshot",
        &two,
        "--snapshot-at",
        "stdin",
        "--snapshot-end",
    ];
    expect(&run("one", &again, &["earlier"])?, 0, "")?;
    expect(&run("two", &[], &[])?, 0, "\n")?;
    expect(&run("two", &[], &["later"])?, 0, "[later]\n")
}

fn at_once() -> Result<()> {
    let place = Place::new()?;
    place.write("one", &["everything"])?;
    let place = &place;
    thread::scope(|scope| {
        let runs = [3, 4, 5].map(|code| {
            scope.spawn(move || {
                let outcome = place.from("one", &format!("{code} together\n"), &[])?;
                let text = "after together\nwiped 1 0\nall there\n";
                expect(&outcome, code, text)
            })
        });
        runs.into_iter()
            .try_for_each(|run| run.join().map_err(|_| "panic")?)
    })
}

fn refused() -> Result<()> {
    let place = Place::new()?;
    let disk = place.path("disk");
    fs::write(&disk, vec![0; 1 << 20])?;
    let folder = place.folder.path().display();
    let volume = format!("{folder}:/volume");
    let disk = format!("{}:/dev/vda", disk.display());
    let vsock = format!("cid=77,socket={folder}/socket");
    let options: [(&[&str], &str); 3] = [
        (&["--volume", &volume], "volumes"),
        (&["--volume", &disk], "block devices"),
        (&["--vsock", &vsock], "a vsock device"),
    ];
    for (options, part) in options {
        let mut command = place.writing("one", "stdin", &["numbers"], options)?;
        let message = format!("a snapshot cannot contain {part}");
        expect_refusal(&process::run(&mut command, b"x")?, &message)?;
    }
    let exists = place.path("exists");
    fs::create_dir(&exists)?;
    let mut command = place.writing("exists", "stdin", &["numbers"], &[])?;
    expect_refusal(&process::run(&mut command, b"x")?, "exists already")?;
    let mut command = place.writing("no/where", "stdin", &["numbers"], &[])?;
    expect_refusal(&process::run(&mut command, b"x")?, "No such file")?;
    expect_refusal(
        &place.from("nothing", "", &[])?,
        "config.json: open: No such file",
    )?;
    // Mistakes of the command line.
    place.write("one", &["numbers"])?;
    let one = place.path("one").display().to_string();
    let mistakes: [&[&str]; 7] = [
        &[
            "--gdb",
            "--snapshot",
            "x",
            "--snapshot-at",
            "stdin",
            "/bin/true",
        ],
        &["--from", &one, "--mem", "1G"],
        &["--from", &one, "--rootfs", "/"],
        &["--snapshot", "x", "/bin/true"],
        &["--snapshot-at", "stdin", "/bin/true"],
        &["--snapshot-within", "5", "/bin/true"],
        &[
            "--snapshot",
            "x",
            "--snapshot-at",
            "stdin",
            "--snapshot-within",
            "0",
            "/bin/true",
        ],
    ];
    for mistake in mistakes {
        let outcome = process::run(hartline::command("run")?.args(mistake), b"")?;
        if outcome.code != 2 || outcome.stderr_text().lines().count() != 1 {
            return Err(format!("{mistake:?}: {outcome:?}").into());
        }
    }
    Ok(())
}
