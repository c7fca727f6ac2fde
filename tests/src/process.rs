//! Runs a program with given input and a deadline, and collects its outcome.

use crate::Result;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time of a run: a hang is a failure, not a stuck test. A run takes ten times as long
/// on a busy machine as on an idle one.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// The exit code of a program and its output.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Exit code, or 128 + n after signal n, as a shell shows it.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl Outcome {
    /// Standard error as text.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Standard output as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The end shows what went wrong; outputs may have megabytes.
        let end = |text: String| text.chars().rev().take(600).collect::<Vec<_>>();
        let show = |text| end(text).into_iter().rev().collect::<String>();
        f.debug_struct("Outcome")
            .field("code", &self.code)
            .field("stdout", &show(self.stdout_text()))
            .field("stderr", &show(self.stderr_text()))
            .finish()
    }
}

/// Returns the threads of a process: names, and lists of the CPUs that they may run on. A thread
/// that ends meanwhile is left out.
///
/// # Errors
/// There is no such process.
pub fn places(process: u32) -> Result<Vec<(String, String)>> {
    let threads = fs::read_dir(format!("/proc/{process}/task"))?.flatten();
    // A thread may end after it was listed: ENOENT at open, ESRCH at read.
    let status = |thread: fs::DirEntry| match fs::read_to_string(thread.path().join("status")) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => None,
        status => Some(status),
    };
    let place = |status: std::io::Result<String>| {
        let status = status?;
        let field = |name: &str| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(name));
            value.unwrap_or_default().trim().to_owned()
        };
        Ok((field("Name:"), field("Cpus_allowed_list:")))
    };
    threads.filter_map(status).map(place).collect()
}

/// Runs a command, which must succeed, for at most `deadline`.
///
/// # Errors
/// It fails; the message has its output.
pub fn succeed(command: &mut Command, deadline: Duration) -> Result<Outcome> {
    let outcome = run_for(command, b"", deadline)?;
    let name = Path::new(command.get_program()).display();
    match outcome.code {
        0 => Ok(outcome),
        code => {
            let (output, errors) = (outcome.stdout_text(), outcome.stderr_text());
            Err(format!("{name}: exit code {code}\n{output}{errors}").into())
        }
    }
}

/// Sends a signal to a process of this test, or of its daemon.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: no memory is involved. Only the parent reaps the process, so its number is not used again
    // before the parent has seen its end.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

/// Checks that texts are in the output in this order.
pub fn check_order(output: &str, texts: &[&str]) -> Result<()> {
    let mut rest = output;
    for &text in texts {
        let Some((_, after)) = rest.split_once(text) else {
            return Err(format!("no \"{text}\" in its place in:\n{output}").into());
        };
        rest = after;
    }
    Ok(())
}

/// Returns the exit code as a shell shows it.
pub fn shell_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Returns a command that runs `program` with the signals of a terminal at their defaults. A shell
/// starts background jobs with some of them ignored, and ignored signals stay ignored across exec.
pub fn with_default_signals(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,QUIT,HUP").arg(program);
    command
}

/// Returns the command that `words` begin and another command ends, with the environment of that command.
pub fn within<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>, inner: &Command) -> Command {
    let mut words = words.into_iter();
    let mut command = Command::new(words.next().expect("the name of a program"));
    command.args(words);
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Returns a command that runs a program of the directory `root` with that directory as its root,
/// and the signals of a terminal at their defaults. The caller adds the program and its arguments.
///
/// # Errors
/// There is no `/proc`.
pub fn with_root(root: &Path) -> Result<Command> {
    // Only root may chroot; any user may in a user namespace.
    let mut command = if fs::metadata("/proc/self")?.uid() == 0 {
        with_default_signals("chroot")
    } else {
        let mut command = with_default_signals("unshare");
        command.args(["--map-root-user", "chroot"]);
        command
    };
    command.arg(root);
    Ok(command)
}

/// Runs `command` with `input` on standard input and collects its output.
///
/// # Errors
/// The command could not be started, did not end before [`DEADLINE`] (it is killed then), or left
/// processes behind that keep its output open until then.
pub fn run(command: &mut Command, input: &[u8]) -> Result<Outcome> {
    run_for(command, input, DEADLINE)
}

/// Runs `command` as [`run`] does, with another deadline.
///
/// # Errors
/// As [`run`].
pub fn run_for(command: &mut Command, input: &[u8], deadline: Duration) -> Result<Outcome> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {:?}: {error}", command.get_program()))?;
    let stdout = Collector::new(child.stdout.take());
    let stderr = Collector::new(child.stderr.take());
    let (pipe, input) = (child.stdin.take(), input.to_vec());
    thread::spawn(move || {
        // A program need not read all its input: a closed pipe is not a failure.
        pipe.map(|mut pipe| pipe.write_all(&input))
    });
    let ended = wait_for(&mut child, deadline)?;
    let limit = match ended {
        Some(_) => deadline,
        None => Duration::from_secs(1),
    };
    let outcome = ended.and_then(|status| {
        Some(Outcome {
            code: shell_code(status),
            stdout: stdout.finish(limit)?,
            stderr: stderr.finish(limit)?,
        })
    });
    outcome.ok_or_else(|| {
        let what = match ended {
            Some(_) => "left processes behind that have its output open",
            None => "did not end",
        };
        // A remaining child process keeps the pipe open.
        let text = stderr.so_far();
        let text = String::from_utf8_lossy(&text);
        let seconds = deadline.as_secs();
        format!("{what} within {seconds} s: {command:?}\nstandard error: {text}").into()
    })
}

/// Waits for `child` until [`DEADLINE`], then kills it and returns `None`.
///
/// # Errors
/// Waiting failed.
pub fn wait(child: &mut Child) -> Result<Option<ExitStatus>> {
    wait_for(child, DEADLINE)
}

fn wait_for(child: &mut Child, deadline: Duration) -> Result<Option<ExitStatus>> {
    /// A longer gap between two polls means that the whole machine was paused, as a virtual one may
    /// be: the gap does not count as the program's time.
    const LONGEST_STEP: Duration = Duration::from_secs(1);
    let (mut used, mut last) = (Duration::ZERO, Instant::now());
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let now = Instant::now();
        used += (now - last).min(LONGEST_STEP);
        last = now;
        if used > deadline {
            eprintln!("{}", threads(child.id()));
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Describes the threads of a process that hangs, from `/proc`.
fn threads(process: u32) -> String {
    let folder = format!("/proc/{process}/task");
    let threads = fs::read_dir(&folder).into_iter().flatten().flatten();
    let describe = |thread: fs::DirEntry| {
        let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let files = ["stat", "wchan", "syscall", "stack"].map(read);
        format!("{}:\n{}", thread.path().display(), files.join("\n"))
    };
    threads.map(describe).collect::<Vec<_>>().join("\n")
}

/// Collects the output of a pipe.
struct Collector {
    bytes: Arc<Mutex<Vec<u8>>>,
    end: Receiver<()>,
}

impl Collector {
    fn new(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (at_end, end) = mpsc::channel();
        let collected = Arc::clone(&bytes);
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            let mut pipe = pipe;
            // The output before an error is still worth showing.
            while let Some(Ok(count @ 1..)) = pipe.as_mut().map(|pipe| pipe.read(&mut buffer)) {
                let mut bytes = collected.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&buffer[..count]);
            }
            // The receiver may be gone.
            let _ = at_end.send(());
        });
        Self { bytes, end }
    }

    /// Returns the whole output, unless its end does not come within `limit`.
    fn finish(&self, limit: Duration) -> Option<Vec<u8>> {
        self.end.recv_timeout(limit).ok()?;
        Some(self.so_far())
    }

    fn so_far(&self) -> Vec<u8> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut *bytes)
    }
}
