//! A daemon for one test, and requests to it.

mod client;
mod images;

use crate::tree::Scratch;
use crate::{Result, hartline, process};
use serde_json::Value;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub use client::{Answer, Client};

/// The longest wait for an event, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A tmpfs mounted at a directory, unmounted when dropped.
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts a tmpfs of `bytes` bytes.
    ///
    /// # Errors
    /// The mount fails.
    pub fn mount(directory: &Path, bytes: usize) -> Result<Self> {
        mount(directory, &format!("size={bytes}"))?;
        Ok(Self(directory.to_path_buf()))
    }

    /// Resizes the tmpfs, to no less than its contents need.
    ///
    /// # Errors
    /// The host refuses.
    pub fn resize(&self, bytes: usize) -> Result<()> {
        mount(&self.0, &format!("remount,size={bytes}"))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        // If this fails, only memory remains in use.
        let _ = unmount.arg("-l").arg(&self.0).status();
    }
}

fn mount(directory: &Path, options: &str) -> Result<()> {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", options, "none"]);
    match mount.arg(directory).status()?.success() {
        true => Ok(()),
        false => Err(format!("{}: no disk with {options}", directory.display()).into()),
    }
}

/// A daemon with a separate data directory and socket. Dropping it ends it and its machines.
pub struct Daemon {
    /// Before `directory`, so that the disk is unmounted before the directory is deleted.
    disk: Option<Disk>,
    directory: Scratch,
    options: Vec<String>,
    environment: Vec<(String, String)>,
    network: Option<Arc<File>>,
    child: Child,
}

impl Daemon {
    /// Starts a daemon with these lines of configuration, and waits until it can run programs.
    ///
    /// # Errors
    /// The daemon does not start; the error has its standard error.
    pub fn start(configuration: &str) -> Result<Self> {
        Self::start_in(Scratch::new()?, configuration, None)
    }

    /// Starts a daemon as [`start`](Self::start) does, in a network namespace.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_in_network(configuration: &str, network: &Arc<File>) -> Result<Self> {
        Self::start_in(Scratch::new()?, configuration, Some(Arc::clone(network)))
    }

    /// Starts a daemon as [`start`](Self::start) does, with a tmpfs of `bytes` bytes for its data.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on_disk(configuration: &str, bytes: usize) -> Result<Self> {
        let directory = Scratch::new()?;
        let data = directory.path().join("data");
        fs::create_dir(&data)?;
        let disk = Disk::mount(&data, bytes)?;
        let mut daemon = Self::start_in(directory, configuration, None)?;
        daemon.disk = Some(disk);
        Ok(daemon)
    }

    /// Returns the disk that the daemon was started on.
    ///
    /// # Errors
    /// The daemon was not started on a disk.
    pub fn disk(&self) -> Result<&Disk> {
        self.disk
            .as_ref()
            .ok_or_else(|| "no disk of its own".into())
    }

    fn start_in(
        directory: Scratch,
        configuration: &str,
        network: Option<Arc<File>>,
    ) -> Result<Self> {
        let file = directory.path().join("hartlined.toml");
        fs::write(&file, configuration)?;
        let options = ["--config", &path_text(&file)].map(str::to_owned).to_vec();
        let child = spawn(directory.path(), &options, &[], network.clone())?;
        let mut daemon = Self {
            disk: None,
            directory,
            options,
            environment: Vec::new(),
            network,
            child,
        };
        daemon.await_ready()?;
        Ok(daemon)
    }

    fn await_ready(&mut self) -> Result<()> {
        let mut is_ready = false;
        // A daemon that has refused its configuration never becomes ready.
        let _ = until(|| {
            let answer = self.request("GET", "/readyz", b"");
            is_ready = answer.is_ok_and(|answer| answer.status == 200);
            is_ready || matches!(self.child.try_wait(), Ok(Some(_)))
        });
        match is_ready {
            true => Ok(()),
            false => Err(format!("the daemon is not ready: {}", self.log()).into()),
        }
    }

    /// Returns the daemon's standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Returns the data directory.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Returns the process id of the spawner, the daemon's first process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process id of the service, which serves requests.
    ///
    /// # Errors
    /// There is no such process.
    pub fn service(&self) -> Result<u32> {
        let mut children = children(self.pid()).into_iter();
        let service = children.find(|&child| is_service(child));
        service.ok_or_else(|| format!("there is no service: {}", self.log()).into())
    }

    /// Returns the jailed processes that the daemon has started.
    pub fn jailed(&self) -> Vec<u32> {
        let mut children = children(self.pid());
        children.retain(|&child| !is_service(child));
        children
    }

    /// Returns the jailed processes that pack or translate.
    pub fn workers(&self) -> Vec<u32> {
        let mut jailed = self.jailed();
        jailed.retain(|&process| is_ended_first(process));
        jailed
    }

    /// Waits until the daemon's first process has ended. Result: its exit status.
    ///
    /// # Errors
    /// The process does not end in time.
    pub fn await_end(&mut self) -> Result<ExitStatus> {
        let child = &mut self.child;
        until(|| child.try_wait().is_ok_and(|status| status.is_some()))?;
        Ok(self.child.wait()?)
    }

    /// Ends the daemon by SIGKILL.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends the daemon by SIGTERM, as a service manager does.
    ///
    /// # Errors
    /// Any I/O error of the host; the daemon does not end, or not with exit code 0.
    pub fn terminate(&mut self) -> Result<()> {
        // SAFETY: no memory is involved.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        match process::wait(&mut self.child)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("{status}: {}", self.log()).into()),
            None => Err(format!("it does not end: {}", self.log()).into()),
        }
    }

    /// Makes the daemon read its configuration again, by SIGHUP.
    pub fn hang_up(&self) {
        // SAFETY: no memory is involved.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGHUP) };
    }

    /// Sets environment variables for the next start of the daemon.
    pub fn set_environment(&mut self, variables: &[(&str, &str)]) {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        self.environment = variables.iter().map(owned).collect();
    }

    /// Sets the lines of configuration for the next start of the daemon.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn configure(&self, configuration: &str) -> Result<()> {
        let file = self.directory.path().join("hartlined.toml");
        Ok(fs::write(file, configuration)?)
    }

    /// Starts the daemon again after [`kill`](Self::kill).
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn restart(&mut self) -> Result<()> {
        let (options, environment) = (&self.options, &self.environment);
        let network = self.network.clone();
        self.child = spawn(self.directory.path(), options, environment, network)?;
        self.await_ready()
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Returns a client, which can be used while the daemon is killed and restarted.
    pub fn client(&self) -> Client {
        Client::new(self.socket())
    }

    /// Connects to the socket.
    ///
    /// # Errors
    /// The daemon does not listen.
    pub fn connect(&self) -> Result<UnixStream> {
        self.client().connect()
    }

    /// Sends bytes unchanged and reads the answer to the end of the connection.
    ///
    /// # Errors
    /// There is no answer.
    pub fn raw(&self, request: &[u8]) -> Result<Answer> {
        let answer = self.client().raw(request)?;
        if answer.status == 500 {
            eprintln!("the daemon failed: {}", self.log());
        }
        Ok(answer)
    }

    /// Sends a request with additional headers.
    ///
    /// # Errors
    /// As [`raw`](Self::raw).
    pub fn request_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer> {
        self.raw(&client::request(method, path, headers, body))
    }

    /// Sends a request as root, with JSON if it has a body.
    ///
    /// # Errors
    /// As [`raw`](Self::raw).
    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        self.request_with(method, path, &[client::JSON], body)
    }

    /// Uploads a program and waits until it is prepared. Result: the program.
    ///
    /// # Errors
    /// The daemon refuses the program.
    pub fn push(&self, query: &str, bytes: &[u8]) -> Result<Value> {
        self.push_until(query, bytes, &["packing", "translating"])
    }

    /// Uploads a program and waits until it can be run, translated or not. Tests that run little of a
    /// large program end earlier than its translation.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_packed(&self, query: &str, bytes: &[u8]) -> Result<Value> {
        self.push_until(query, bytes, &["packing"])
    }

    fn push_until(&self, query: &str, bytes: &[u8], busy: &[&str]) -> Result<Value> {
        let path = format!("/v1/programs?{query}");
        let mut program = self.request_with("POST", &path, &[], bytes)?;
        if program.status != 200 {
            program = program.expect(201)?;
        }
        let path = format!("/v1/programs/{}", program.text("id"));
        let busy = |program: &Value| busy.contains(&program["state"].as_str().unwrap_or_default());
        let mut program = program.json();
        let start = Instant::now();
        while busy(&program) {
            if start.elapsed() > PATIENCE {
                return Err(format!("not prepared within {PATIENCE:?}: {program}").into());
            }
            thread::sleep(Duration::from_millis(50));
            program = self.request("GET", &path, b"")?.expect(200)?.json();
        }
        Ok(program)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end_machines();
        let _ = self.kill();
        // VMMs of a daemon that did not answer, or was just starting them.
        for pid in users_of(&self.data()) {
            // SAFETY: no memory is involved.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
        }
    }
}

impl Daemon {
    /// Ends the machines and runs of all tenants, which outlive the daemon.
    fn end_machines(&self) {
        let names = |path: &str, tenant: &str, field: &str| -> Vec<String> {
            let headers = [("Hartline-Tenant", tenant)];
            let list = self.request_with("GET", path, &headers, b"");
            let list = list.map(|list| list.json()).unwrap_or_default();
            let names = list.as_array().into_iter().flatten();
            let names = names.filter_map(|entry| entry[field].as_str());
            names.map(str::to_owned).collect()
        };
        for tenant in names("/v1/tenants", "default", "name") {
            let headers = [("Hartline-Tenant", tenant.as_str())];
            for id in names("/v1/machines?limit=1000", &tenant, "id") {
                let path = format!("/v1/machines/{id}/kill");
                // A machine that has ended cannot be killed.
                let _ = self.request_with("POST", &path, &headers, b"");
            }
            for id in names("/v1/runs?limit=1000", &tenant, "id") {
                let _ = self.request_with("DELETE", &format!("/v1/runs/{id}"), &headers, b"");
            }
        }
    }
}

/// Whether the kernel ends a process before others if the host has no memory left.
pub fn is_ended_first(pid: u32) -> bool {
    let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj"));
    score.is_ok_and(|score| score.trim() == "1000")
}

/// Returns the processes that have a file of a directory open.
pub fn users_of(directory: &Path) -> Vec<u32> {
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_path_buf());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let uses = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"));
        let files = files.into_iter().flatten().flatten();
        let mut files = files.filter_map(|file| fs::read_link(file.path()).ok());
        files.any(|file| file.starts_with(&directory))
    };
    numbers.filter(uses).collect()
}

fn spawn(
    directory: &Path,
    options: &[String],
    environment: &[(String, String)],
    network: Option<Arc<File>>,
) -> Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(directory.join("log"))?;
    let mut command = Command::new(hartline::daemon()?);
    let prepare = move || {
        // A test run that is killed leaves no daemon. Tests end their daemons in the thread that
        // starts them.
        // SAFETY: no memory is involved.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let Some(network) = &network else {
            return Ok(());
        };
        // SAFETY: no memory is involved.
        match unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: `prepare` makes system calls only, which may run between fork and exec.
    unsafe { command.pre_exec(prepare) };
    let child = command
        .args(options)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .arg("--data-dir")
        .arg(directory.join("data"))
        .arg("--socket")
        .arg(directory.join("socket"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    Ok(child)
}

/// Returns the child processes of a process.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let lists = threads.into_iter().flatten().flatten();
    let lists = lists.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers = |list: String| -> Vec<u32> {
        let words = list.split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    lists.flat_map(numbers).collect()
}

fn is_service(pid: u32) -> bool {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    arguments.split(|&byte| byte == 0).nth(1) == Some(b"service")
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// Waits until a condition holds.
///
/// # Errors
/// The condition does not hold in time.
pub fn until(mut condition: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return Err("what should happen did not".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
