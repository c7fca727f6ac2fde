//! TAP interfaces of the tests, and servers in VMs behind them.

use super::COMPILER;
use hartline_tests::{Result, compile, hartline, process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

/// Moves this process into a new network namespace.
pub fn enter_namespace() -> std::result::Result<(), String> {
    if !PathBuf::from("/dev/net/tun").exists() {
        return Err("skipped: no /dev/net/tun".into());
    }
    // SAFETY: no memory is involved; there are no other threads yet.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(format!(
            "skipped: a network namespace: {}",
            std::io::Error::last_os_error()
        )),
    }
}

/// Runs `ip`.
pub fn ip(arguments: &str) -> Result<()> {
    let outcome = process::run(Command::new("ip").args(arguments.split(' ')), b"")?;
    match outcome.code {
        0 => Ok(()),
        _ => Err(format!("ip {arguments}: {}", outcome.stderr_text()).into()),
    }
}

/// A TAP interface with a separate subnet, deleted when dropped.
pub struct Tap {
    pub name: String,
    number: u8,
    /// The number of queue pairs of a VM.
    pub queues: u16,
}

impl Tap {
    pub fn new() -> Result<Tap> {
        Self::with_queues(1)
    }

    pub fn with_queues(queues: u16) -> Result<Tap> {
        static NUMBER: AtomicU8 = AtomicU8::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let tap = Tap {
            name: format!("tap{number}"),
            number,
            queues,
        };
        let name = &tap.name;
        let several = if queues > 1 { " multi_queue" } else { "" };
        ip(&format!("tuntap add dev {name} mode tap{several}"))?;
        ip(&format!("addr add {}/24 dev {name}", tap.host()))?;
        ip(&format!("addr add {}/64 dev {name} nodad", tap.host_v6()))?;
        ip(&format!("link set dev {name} up"))?;
        Ok(tap)
    }

    pub fn host(&self) -> IpAddr {
        [10, 77, self.number, 1].into()
    }

    pub fn guest(&self) -> IpAddr {
        [10, 77, self.number, 2].into()
    }

    pub fn host_v6(&self) -> IpAddr {
        [0xfd77, self.number.into(), 0, 0, 0, 0, 0, 1].into()
    }

    pub fn guest_v6(&self) -> IpAddr {
        [0xfd77, self.number.into(), 0, 0, 0, 0, 0, 2].into()
    }

    /// Returns the option of `hartline run` for this interface.
    pub fn option(&self) -> String {
        let (v4, v6) = (self.guest(), self.guest_v6());
        let queues = self.queues;
        format!("tap:{},ip={v4}/24,ip={v6}/64,queues={queues}", self.name)
    }

    /// Returns `hartline run` of `wire.c` over this interface.
    pub fn wire(&self, options: &[&str], arguments: &[&str]) -> Result<Command> {
        let program = compile::alone("wire", COMPILER)?;
        let mut command = hartline::command("run")?;
        command.args(["--net", &self.option()]).args(options);
        command.arg(program).args(arguments);
        Ok(command)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // The test may have deleted the interface.
        let _ = ip(&format!("link del dev {}", self.name));
    }
}

/// A server in a VM, which has printed that it is ready.
pub struct Server {
    pub child: Child,
    pub output: BufReader<ChildStdout>,
}

impl Server {
    pub fn start(mut command: Command) -> Result<Server> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no output")?;
        let mut server = Server {
            child,
            output: BufReader::new(stdout),
        };
        let mut line = String::new();
        server.output.read_line(&mut line)?;
        match line.as_str() {
            "ready\n" => Ok(server),
            _ => Err(format!("{line:?}, {}", server.errors()).into()),
        }
    }

    pub fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            // The output before an error is still worth showing.
            let _ = stderr.read_to_string(&mut text);
        }
        text
    }

    /// Waits for the end of the VM. Result: its standard output.
    pub fn finish(mut self) -> Result<String> {
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        match process::wait(&mut self.child)? {
            Some(status) if status.success() => Ok(text),
            status => Err(format!("{status:?}: {text}{}", self.errors()).into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The VM has ended, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The statistics of a running VM.
pub struct Stats(BufReader<ChildStderr>);

impl Stats {
    /// Takes the statistics of a VM that was started with `--stats=json`.
    pub fn of(server: &mut Server) -> Result<Stats> {
        let errors = server.child.stderr.take().ok_or("no stderr")?;
        Ok(Stats(BufReader::new(errors)))
    }

    /// Returns the current statistics.
    pub fn read(&mut self, server: &Server) -> Result<Value> {
        // SAFETY: no memory is involved; the child is not reaped yet, so its process id is not
        // reused.
        unsafe { libc::kill(server.child.id().cast_signed(), libc::SIGUSR1) };
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}
