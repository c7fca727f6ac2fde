//! Programs that a debugger controls (`hartline run --gdb`): their build, their start and their end.

mod changes;
mod crashes;
mod entries;
mod lost;
mod packets;
mod sessions;
mod with_qemu;

use hartline_tests::compile::{self, Variant};
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline, reference};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a socket or an answer. It is reached only if the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Output of `session.c`.
const OUTPUT: &str = "sum 15, half 7.5\n";

pub fn add(suite: &mut Suite) {
    sessions::add(suite);
    with_qemu::add(suite);
    packets::add(suite);
    lost::add(suite);
    changes::add(suite);
    entries::add(suite);
    crashes::add(suite);
}

/// A program of `tests/programs/debugged`, in a folder that is removed at the end.
struct Program {
    folder: Scratch,
    path: PathBuf,
}

impl Program {
    /// Builds the program of a source file.
    fn build(source: &str, variant: Variant) -> Result<Self> {
        let folder = Scratch::new()?;
        let path = compile::debugged(folder.path(), source, variant)?;
        Ok(Self { folder, path })
    }

    /// Starts it in a VM, in which it waits for a debugger.
    fn start(&self, options: &[&str], arguments: &[&str]) -> Result<Waiting> {
        let mut command = hartline::command("run")?;
        let socket = self.socket("hartline");
        command.arg(format!("--gdb={}", socket.display()));
        command
            .args(options)
            .arg("--")
            .arg(&self.path)
            .args(arguments);
        Waiting::start(command, socket, &self.path)
    }

    /// Starts it at qemu's server.
    fn start_qemu(&self) -> Result<Waiting> {
        let socket = self.socket("qemu");
        let mut command = Command::new(reference::binary()?);
        command.env_clear().args(["-cpu", reference::CPU, "-g"]);
        command.arg(&socket).arg(&self.path);
        Waiting::start(command, socket, &self.path)
    }

    fn socket(&self, server: &str) -> PathBuf {
        self.folder.path().join(format!("{server}.socket"))
    }

    /// The address of a function.
    fn address_of(&self, function: &str) -> Result<u64> {
        let mut command = Command::new("riscv64-linux-gnu-nm");
        let symbols = command.arg(&self.path).output()?;
        let symbols = String::from_utf8(symbols.stdout)?;
        let mut symbols = symbols
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let found = symbols.find_map(|parts| match parts.as_slice() {
            [address, _, name] if *name == function => Some(u64::from_str_radix(address, 16)),
            _ => None,
        });
        Ok(found.ok_or("no such function")??)
    }
}

/// A program that waits for a debugger. It is killed when this is dropped.
struct Waiting {
    child: Option<Child>,
    socket: PathBuf,
    /// The file that gdb reads.
    program: PathBuf,
}

impl Waiting {
    fn start(mut command: Command, socket: PathBuf, program: &Path) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let waiting = Self {
            child: Some(child),
            socket,
            program: program.to_owned(),
        };
        let start = Instant::now();
        while !waiting.socket.exists() {
            if start.elapsed() > PATIENCE {
                return Err("nothing listens".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(waiting)
    }

    /// The process of the VM.
    fn id(&self) -> Result<u32> {
        Ok(self.child.as_ref().ok_or("no child")?.id())
    }

    /// The program's output, as far as nothing has read it.
    fn output(&mut self) -> Result<&mut ChildStdout> {
        let child = self.child.as_mut().ok_or("no child")?;
        Ok(child.stdout.as_mut().ok_or("no output")?)
    }

    /// Waits for the program's end, and checks its exit code and its output.
    fn end(mut self, code: i32, output: &str) -> Result<Outcome> {
        let child = self.child.take().ok_or("no child")?;
        let ended = child.wait_with_output()?;
        let outcome = Outcome {
            code: process::shell_code(ended.status),
            stdout: ended.stdout,
            stderr: ended.stderr,
        };
        match outcome.code == code && outcome.stdout_text() == output {
            true => Ok(outcome),
            false => Err(format!("{outcome:?}").into()),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It fails if the program has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
