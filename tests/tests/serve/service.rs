//! A running service, and its clients.

use hartline_tests::process::{self, Outcome};
use hartline_tests::{Result, hartline};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

/// The port of the host.
pub const PORT: u16 = 7080;
/// The server's port.
pub const GUEST: u16 = 8080;
/// How long a client waits.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the command that serves a snapshot.
///
/// # Errors
/// There is no binary.
pub fn command(snapshot: &Path, options: &[&str]) -> Result<Command> {
    let mut command = hartline::command("serve")?;
    command.arg("--from").arg(snapshot);
    command.args(["--stats=json", "-p", &format!("{PORT}:{GUEST}")]);
    command.args(options).stdin(Stdio::null());
    Ok(command)
}

/// A service that is ready.
pub struct Service {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Service {
    /// Starts a service of a snapshot, and waits until it says that it is ready.
    ///
    /// # Errors
    /// It does not.
    pub fn start(snapshot: &Path, options: &[&str]) -> Result<Self> {
        let mut child = command(snapshot, options)?
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let errors = child.stderr.take().ok_or("no standard error")?;
        let mut service = Self {
            child,
            errors: BufReader::new(errors),
        };
        let mut line = String::new();
        service.errors.read_line(&mut line)?;
        match line.starts_with("hartline: serving 127.0.0.1:7080 with ") {
            true => Ok(service),
            false => Err(format!("{line:?}").into()),
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it by a signal.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn end(self, signal: i32) -> Result<Outcome> {
        process::signal(self.id(), signal);
        self.wait()
    }

    /// Waits for its end. Result: how it ended, with the output since it was ready.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn wait(mut self) -> Result<Outcome> {
        let status = process::wait(&mut self.child)?.ok_or("the service does not end")?;
        let mut outcome = Outcome {
            code: process::shell_code(status),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        self.errors.read_to_end(&mut outcome.stderr)?;
        if let Some(output) = &mut self.child.stdout {
            output.read_to_end(&mut outcome.stdout)?;
        }
        Ok(outcome)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A failed test leaves it; otherwise it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The statistics of a service that has ended well.
///
/// # Errors
/// It has not, or there are no statistics.
pub fn statistics(outcome: &Outcome) -> Result<Value> {
    let text = outcome.stderr_text();
    match (outcome.code, text.lines().count()) {
        (0, 1) => Ok(serde_json::from_str(&text)?),
        _ => Err(format!("{outcome:?}").into()),
    }
}

/// A connection to the service.
///
/// # Errors
/// It is refused.
pub fn connect() -> io::Result<TcpStream> {
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT))?;
    client.set_read_timeout(Some(PATIENCE))?;
    Ok(client)
}

/// What the server answers.
///
/// # Errors
/// It does not.
pub fn get(path: &str) -> Result<String> {
    Ok(request(path).map_err(|error| format!("{path}: {error}"))?)
}

/// As [`get`].
///
/// # Errors
/// The connection's; `InvalidData`: the answer is not whole.
pub fn request(path: &str) -> io::Result<String> {
    let mut client = connect()?;
    client.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::InvalidData)?;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    match length.and_then(|length| length.parse().ok()) == Some(body.len()) {
        true => Ok(body.to_owned()),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}
