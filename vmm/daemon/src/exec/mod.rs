//! Processes in running machines (`hartline exec`), copies of files (`hartline cp`) and debuggers
//! (`hartline attach --gdb`): the daemon's end of their streams.
//!
//! The VMM gets the other ends ([`SpawnJob`]). A process is of interest as long as its [`Exec`]
//! exists: dropping it closes the streams, and a terminal hangs up.

use crate::jailed::protocol::{
    CopyJob, DebugJob, DebuggerLost, FromProcess, Request, SpawnJob, TerminalJob, ToProcess,
};
use crate::process::Line;
use hartline_abi::copy;
use hartline_abi::spawn::{Header, MAX_PROGRAM, MAX_STRING, Window};
use hartline_jail::Channel;
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::watch;

/// Most bytes that are read of an output at a time.
const PIECE: usize = 64 << 10;

/// The limits of a command.
pub const TOO_LONG: &str = "each string has less than 128 KiB and no NUL, and all together, with the \
    environment, at most 2 MiB";

/// Exit code for a command that was not found, as in shells and docker.
const NOT_FOUND: u8 = 127;
/// Exit code for a command that cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit code for failures of Hartline.
const FAILURE: u8 = 125;
/// Exit code of a process that ended with its machine: 128 + SIGKILL.
const KILLED: u8 = 137;

/// What a new process executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments, at least one.
    pub arguments: Vec<String>,
    /// `NAME=value` strings.
    pub environment: Vec<String>,
    /// User and group.
    pub user: (u32, u32),
    /// Working directory.
    pub directory: String,
    /// Size of its terminal; `None`: it has pipes.
    pub terminal: Option<Window>,
}

impl Command {
    /// The command as the guest reads it.
    ///
    /// # Errors
    /// `InvalidInput`: it is longer than Linux allows, or has a NUL.
    fn encode(&self) -> io::Result<Vec<u8>> {
        let strings = std::iter::once(&self.directory)
            .chain(&self.arguments)
            .chain(&self.environment);
        let count = |strings: &[String]| u32::try_from(strings.len()).unwrap_or(u32::MAX);
        let header = Header {
            uid: self.user.0,
            gid: self.user.1,
            terminal: self.terminal,
            arguments: count(&self.arguments),
            environment: count(&self.environment),
        };
        let mut bytes = header.encode().to_vec();
        for string in strings {
            if string.len() >= MAX_STRING || string.contains('\0') {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            bytes.extend_from_slice(string.as_bytes());
            bytes.push(0);
        }
        match bytes.len() <= MAX_PROGRAM {
            true => Ok(bytes),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

/// The end of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The exit code that the client uses.
    pub code: u8,
    /// Why it is not the process's own; empty if it is.
    pub message: String,
}

/// A process in a machine, a copy, or a debugger.
#[derive(Debug)]
pub struct Exec {
    /// Standard input. Shutting it down, or dropping it, ends the input.
    pub input: UnixStream,
    /// Standard output and standard error.
    pub outputs: [Output; 2],
    /// Everything else.
    pub control: Control,
}

/// The control of a process.
#[derive(Debug)]
pub struct Control {
    line: Line,
    ended: watch::Sender<bool>,
    /// The program's name, for messages.
    name: String,
}

/// An output of a process.
#[derive(Debug)]
pub struct Output {
    stream: UnixStream,
    ended: watch::Receiver<bool>,
}

/// The daemon's ends of the standard streams of a program.
#[derive(Debug)]
pub struct Streams {
    /// Standard input. Shutting it down, or dropping it, ends the input.
    pub input: UnixStream,
    /// Standard output and standard error.
    pub outputs: [Output; 2],
    /// Whether the program has ended. Then the outputs have everything that it wrote.
    pub ended: watch::Sender<bool>,
}

impl Streams {
    /// Makes streams. Result: also the other ends, by descriptor, which do not block either. Must run
    /// inside a runtime.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn open() -> io::Result<(Self, [StdUnixStream; 3])> {
        let [(input, stdin), (output, stdout), (error, stderr)] = [pair()?, pair()?, pair()?];
        let (ended, _) = watch::channel(false);
        let outputs = [output, error].map(|stream| Output {
            stream,
            ended: ended.subscribe(),
        });
        let own = Self {
            input,
            outputs,
            ended,
        };
        Ok((own, [stdin, stdout, stderr]))
    }
}

/// Both ends of a stream, of which neither blocks.
fn pair() -> io::Result<(UnixStream, StdUnixStream)> {
    let (own, other) = StdUnixStream::pair()?;
    own.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok((UnixStream::from_std(own)?, other))
}

/// A file in memory with these bytes, at its start.
fn file_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"command", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    seek(&file, SeekFrom::Start(0))?;
    Ok(file.into())
}

impl Exec {
    /// Starts a process in a VM whose VMM takes requests through `requests`. Must run inside a
    /// runtime.
    ///
    /// # Errors
    /// `InvalidInput`: the command is too long or has a NUL. Otherwise any I/O error of the host.
    pub fn start(requests: &Channel, command: &Command) -> io::Result<Self> {
        let request = |length| Request::Process(SpawnJob { length });
        let name = command.arguments.first().cloned().unwrap_or_default();
        Self::request(requests, request, &command.encode()?, name)
    }

    /// Starts a copy of files in such a VM. Must run inside a runtime.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn copy(requests: &Channel, copy: copy::Request<'_>) -> io::Result<Self> {
        let request = |length| Request::Copy(CopyJob { copy: length });
        let program = [&copy.encode()[..], copy.path].concat();
        Self::request(requests, request, &program, String::new())
    }

    /// Connects a debugger with the processes of such a VM. Must run inside a runtime.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn debug(requests: &Channel, debugger_lost: DebuggerLost) -> io::Result<Self> {
        let request = |_| Request::Debug(DebugJob { debugger_lost });
        Self::request(requests, request, &[], "debugger".to_owned())
    }

    /// Sends a request, which gets the length of the program.
    fn request(
        requests: &Channel,
        request: impl FnOnce(u64) -> Request,
        program: &[u8],
        name: String,
    ) -> io::Result<Self> {
        let length = program.len() as u64;
        let program = file_of(program)?;
        let (control, other) = Channel::pair()?;
        control.set_nonblocking()?;
        other.set_nonblocking()?;
        let (streams, [stdin, stdout, stderr]) = Streams::open()?;
        let message = serde_json::to_vec(&request(length))?;
        let descriptors = [
            other.as_fd(),
            stdin.as_fd(),
            stdout.as_fd(),
            stderr.as_fd(),
            program.as_fd(),
        ];
        requests.send(&message, &descriptors)?;
        Ok(Self {
            input: streams.input,
            outputs: streams.outputs,
            control: Control {
                line: Line::new(control)?,
                ended: streams.ended,
                name,
            },
        })
    }
}

/// Changes the size of the terminal of the program of a VM whose VMM takes requests through `requests`.
///
/// # Errors
/// Any I/O error of the host.
pub fn resize(requests: &Channel, window: Window) -> io::Result<()> {
    let Window { rows, columns } = window;
    let request = Request::Terminal(TerminalJob { rows, columns });
    requests.send(&serde_json::to_vec(&request)?, &[])
}

impl Control {
    /// Tells the process the size of its terminal.
    ///
    /// # Errors
    /// The process has ended.
    pub async fn resize(&self, window: Window) -> io::Result<()> {
        let Window { rows, columns } = window;
        let message = serde_json::to_vec(&ToProcess::Resize { rows, columns })?;
        self.line.send(&message, &[]).await
    }

    /// Waits for the last message of the VMM; `None` if the machine has ended. Then the outputs have
    /// everything that was written.
    pub async fn last(&self) -> Option<serde_json::Result<FromProcess>> {
        let message = self.line.receive().await;
        // The outputs may have been dropped.
        let _ = self.ended.send(true);
        let (message, _) = message.ok()?;
        Some(serde_json::from_slice(&message))
    }

    /// Waits for the end of the process. Then the outputs have everything that it wrote.
    pub async fn end(&self) -> Ended {
        let ended = self.last().await;
        let name = &self.name;
        let because = |code, message| Ended { code, message };
        match ended {
            Some(Ok(FromProcess::Exited(code))) => because(code, String::new()),
            Some(Ok(FromProcess::Failed(error))) => {
                let (code, why) = why_not(error);
                because(code, format!("{name}: {why}"))
            }
            Some(Ok(FromProcess::TooMany)) => {
                let why = "too many processes of this kind run in the machine";
                because(FAILURE, format!("{name}: {why}"))
            }
            Some(Err(_)) => because(FAILURE, "the VMM sent an invalid message".to_owned()),
            None => because(KILLED, "the machine has ended".to_owned()),
        }
    }
}

/// The exit code and the message for a program that could not be executed.
fn why_not(error: i32) -> (u8, String) {
    // The guest chooses the number: it may be none of Linux's.
    match error {
        libc::ENOENT | libc::ENOTDIR => (NOT_FOUND, "not found".to_owned()),
        libc::EACCES => (NOT_EXECUTABLE, "permission denied".to_owned()),
        libc::ENOEXEC => (NOT_EXECUTABLE, "not an executable file".to_owned()),
        // Of debuggers.
        libc::EBUSY => (FAILURE, "another one is connected".to_owned()),
        error => (
            NOT_EXECUTABLE,
            io::Error::from_raw_os_error(error).to_string(),
        ),
    }
}

impl Output {
    /// Waits for the next bytes; none at the end, which is at the latest the end of the process.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub async fn next(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; PIECE];
        let count = tokio::select! {
            count = self.stream.read(&mut bytes) => count,
            _ = self.ended.wait_for(|&ended| ended) => {
                // Not through the reactor, which may not know yet what is there.
                match rustix::io::read(&self.stream, &mut bytes) {
                    Err(Errno::AGAIN) => Ok(0),
                    count => count.map_err(Into::into),
                }
            }
        };
        let count = match count {
            // The VMM has ended with bytes that it had not read.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            count => count?,
        };
        bytes.truncate(count);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
