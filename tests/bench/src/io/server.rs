//! Starts servers and measures their costs.

use super::Configuration;
use super::pin::Pin;
use super::place::{Place, SERVER};
use super::workload::Workload;
use anyhow::{Context, bail};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The longest wait for the statistics of a VM.
const PATIENCE: Duration = Duration::from_secs(5);

/// The directory made by `tests/bench/build.sh`.
#[derive(Debug)]
pub struct Programs {
    directory: PathBuf,
    hartline: PathBuf,
    pin: Option<Pin>,
}

impl Programs {
    /// Opens the directory. With `pin`, programs started from it are pinned.
    ///
    /// # Errors
    /// The directory or a file in it is missing.
    pub fn open(directory: &Path, pin: Option<Pin>) -> anyhow::Result<Self> {
        let shown = directory.display().to_string();
        let directory = directory
            .canonicalize()
            .with_context(|| format!("{shown}: make bench-programs prepares it"))?;
        Ok(Self {
            directory,
            hartline: crate::beside("hartline")?,
            pin,
        })
    }

    fn root(&self, architecture: &str, name: &str) -> PathBuf {
        self.directory.join("roots").join(architecture).join(name)
    }

    /// Returns the command of a client.
    pub fn client(&self, name: &str) -> Command {
        let mut command = self.native(name);
        if let Some(pin) = self.pin {
            pin.client(&mut command);
        }
        command
    }

    /// Returns the command of an x86-64 program with its own libraries.
    fn native(&self, name: &str) -> Command {
        let root = self.root("amd64", name);
        let mut command = Command::new(root.join("lib64/ld-linux-x86-64.so.2"));
        command.arg("--inhibit-cache").arg("--library-path");
        command.arg(root.join("usr/lib/x86_64-linux-gnu"));
        command.arg(root.join("usr/bin").join(name));
        command
    }

    fn qemu(&self, name: &str) -> Command {
        let root = self.root("riscv64", name);
        let mut command = Command::new(self.directory.join("qemu-riscv64"));
        command.arg("-L").arg(&root);
        command.arg(root.join("usr/bin").join(name));
        command
    }

    /// Returns the directory where a server finds its own files.
    fn files(&self, name: &str, configuration: Configuration) -> PathBuf {
        let root = match configuration {
            Configuration::Native => self.root("amd64", name),
            Configuration::Qemu => self.root("riscv64", name),
            _ => "/".into(),
        };
        root.join("srv")
    }

    /// Translates a program, so that the translation is not measured.
    fn translate(&self, name: &str) -> anyhow::Result<()> {
        let mut command = Command::new(&self.hartline);
        command.args(["build", "--all", "--rootfs"]);
        command.arg(self.root("riscv64", name));
        command.arg(format!("/usr/bin/{name}"));
        match command.stdin(Stdio::null()).stdout(Stdio::null()).status() {
            Ok(status) if status.success() => Ok(()),
            _ => bail!("hartline build {name} failed"),
        }
    }

    fn hartline(&self, name: &str, net: &str, interrupts: &str) -> Command {
        let mut command = Command::new(&self.hartline);
        command.args(["run", "--stats=json", "--interrupts", interrupts]);
        if let Some(pin) = self.pin {
            command.args(["--pin", &pin.option()]);
        }
        command.args(["--net", net, "--rootfs"]);
        command.arg(self.root("riscv64", name));
        command.arg(format!("/usr/bin/{name}"));
        command
    }
}

/// The cost of a server so far.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    at: Instant,
    /// CPU time of all threads of the server.
    pub cpu: Duration,
    /// KVM's counts: all exits, and exits for interrupts of the host.
    pub exits: Option<[u64; 2]>,
}

impl Usage {
    /// Returns the time between two measurements.
    pub fn since(&self, before: &Self) -> Duration {
        self.at.saturating_duration_since(before.at)
    }
}

/// A running server, killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Lines of the VM's statistics; `None` for a server outside a VM.
    lines: Option<Receiver<String>>,
}

impl Server {
    /// Starts a server. A server outside a VM is in a separate network namespace and waits for
    /// [`go`](Self::go).
    ///
    /// # Errors
    /// The server cannot be started.
    /// It cannot be started.
    pub fn start(
        programs: &Programs,
        workload: Workload,
        configuration: Configuration,
        place: &Place,
    ) -> anyhow::Result<Self> {
        let name = workload.server();
        if configuration.is_vm() {
            programs.translate(name)?;
        }
        let net = place.option();
        let mut command = match configuration {
            Configuration::Native => in_namespace(&programs.native(name), place.address()),
            Configuration::Qemu => in_namespace(&programs.qemu(name), place.address()),
            Configuration::Injected => programs.hartline(name, &net, "injected"),
            Configuration::Exitless | Configuration::ExitlessNoPoll => {
                programs.hartline(name, &net, "auto")
            }
        };
        command
            .args(workload.server_arguments(&programs.files(name, configuration)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(match configuration.is_vm() {
                true => Stdio::piped(),
                false => Stdio::null(),
            })
            // The process group contains the server's children, which are killed with it.
            .process_group(0);
        if let Some(pin) = programs.pin.filter(|_| !configuration.is_vm()) {
            pin.server(&mut command);
        }
        let mut child = command.spawn().with_context(|| name.to_owned())?;
        let lines = child.stderr.take().map(|stderr| {
            let (sender, lines) = mpsc::channel();
            thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
            lines
        });
        Ok(Self { child, lines })
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets a server that waits for its interface continue.
    ///
    /// # Errors
    /// The server has ended.
    pub fn go(&mut self) -> io::Result<()> {
        match (&self.lines, &mut self.child.stdin) {
            (None, Some(stdin)) => writeln!(stdin),
            _ => Ok(()),
        }
    }

    /// Returns the costs of the server so far.
    ///
    /// # Errors
    /// The server has ended, or the VM sends no statistics.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        let cpu = family_time(self.id())?;
        let exits = match &self.lines {
            None => None,
            Some(lines) => Some(self.exits(lines)?),
        };
        Ok(Usage {
            at: Instant::now(),
            cpu,
            exits,
        })
    }

    fn exits(&self, lines: &Receiver<String>) -> anyhow::Result<[u64; 2]> {
        // SAFETY: no memory is involved; the child is not reaped yet, so its process id is not
        // reused.
        unsafe { libc::kill(self.id().cast_signed(), libc::SIGUSR1) };
        loop {
            let line = lines
                .recv_timeout(PATIENCE)
                .context("the VM tells no statistics")?;
            if let Ok(object) = serde_json::from_str::<serde_json::Value>(&line) {
                let counter = |name: &str| object["vcpu"][name].as_u64().unwrap_or(0);
                return Ok([counter("exits"), counter("irq_exits")]);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: no memory is involved; the child is not reaped yet, so its process group id is
        // not reused.
        unsafe { libc::kill(-self.id().cast_signed(), libc::SIGKILL) };
        // The child has ended; reap it.
        let _ = self.child.wait();
    }
}

/// Wraps a command: wait for a line, give the interface an address, then run the command.
fn in_namespace(command: &Command, address: Ipv4Addr) -> Command {
    let script = format!(
        "read line && ip link set dev lo up && ip addr add {address}/24 dev {SERVER} && \
         ip link set dev {SERVER} up && exec \"$@\""
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    // SAFETY: the closure makes one system call and allocates nothing, so it may run between fork
    // and exec.
    unsafe {
        shell.pre_exec(|| match libc::unshare(libc::CLONE_NEWNET) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    shell
}

/// Returns the CPU time of a process, its descendants, and the reaped children of all of them.
fn family_time(first: u32) -> anyhow::Result<Duration> {
    // SAFETY: no memory is involved.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }
        .max(1)
        .unsigned_abs();
    // Process id, parent and ticks of each process.
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        // Entries that are not processes have no such file; processes may end meanwhile.
        let stat = fs::read_to_string(entry.path().join("stat"));
        if let (Some(number), Ok(stat)) = (number, stat)
            && let Some((parent, ticks)) = parse_stat(&stat)
        {
            processes.push((number, parent, ticks));
        }
    }
    let mut family: Vec<u32> = vec![first];
    let mut total = 0;
    while let Some(member) = family.pop() {
        for &(number, parent, ticks) in &processes {
            total += if number == member { ticks } else { 0 };
            if parent == member {
                family.push(number);
            }
        }
    }
    Ok(Duration::from_nanos(total * 1_000_000_000 / hz))
}

/// Parses a line of `/proc/PID/stat` (proc_pid_stat(5)). Result: the parent, and user and system
/// time including the reaped children, in ticks.
fn parse_stat(stat: &str) -> Option<(u32, u64)> {
    // The fields from the third on, which follow the name.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let times = fields.get(11..15)?.iter().map(|field| field.parse::<u64>());
    let ticks = times.sum::<Result<u64, _>>().ok()?;
    Some((fields.get(1)?.parse().ok()?, ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_processes_are_understood() {
        let line = "12 (a) b) S 7 12 12 0 -1 0 1 2 3 4 10 20 30 40 20 0 1 0";
        assert_eq!(parse_stat(line), Some((7, 100)));
        assert_eq!(parse_stat("12 (short) S 7"), None);
    }
}
