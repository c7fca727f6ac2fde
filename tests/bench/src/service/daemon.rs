//! A daemon with a separate data directory.

use super::left::Left;
use anyhow::{Context, bail};
use hartline_cli::client::{Connection, Host, Target};
use hyper::Method;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest wait for the daemon to start, or for the resources of runs to be released.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two polls.
const PERIOD: Duration = Duration::from_millis(5);
/// The idle time before resources are counted, in which the daemon's spare threads end and its pool
/// of VMMs fills.
const REST: Duration = Duration::from_secs(12);

/// Limits that let a program run and many machines wait at once, whatever this host has.
const CONFIGURATION: &str = "cpu_overcommit = 1000\nmemory = 1099511627776\n";

/// A daemon and its data, both removed when dropped.
#[derive(Debug)]
pub struct Daemon {
    directory: PathBuf,
    program: PathBuf,
    child: Child,
}

impl Daemon {
    /// Starts the daemon and waits until it answers.
    ///
    /// # Errors
    /// The daemon does not start; its standard error says why.
    pub async fn start() -> anyhow::Result<Self> {
        let name = format!("hartline-bench-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
        fs::write(directory.join("hartlined.toml"), CONFIGURATION)?;
        let program = crate::beside("hartlined")?;
        let child = spawn(&program, &directory)?;
        let mut daemon = Self {
            directory,
            program,
            child,
        };
        daemon.await_answer().await?;
        Ok(daemon)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the data directory.
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Connects to the daemon.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let target = Target {
            host: Host::Unix(self.directory.join("socket")),
            key: None,
            ca: PathBuf::new(),
        };
        Ok(Connection::open(&target).await?)
    }

    /// Kills the daemon and starts it again. Result: the time when the new daemon, which answers by
    /// now, was started.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn restart(&mut self) -> anyhow::Result<Instant> {
        self.child.kill()?;
        self.child.wait()?;
        let start = Instant::now();
        // Only the spawner was killed: its service ends too, but accepts connections until then.
        while self.connect().await.is_ok() {
            if start.elapsed() > PATIENCE {
                bail!("the killed daemon still answers: {}", self.end_of_log());
            }
            tokio::time::sleep(PERIOD).await;
        }
        self.child = spawn(&self.program, &self.directory)?;
        self.await_answer().await?;
        Ok(start)
    }

    async fn await_answer(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        while self.connect().await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "{}: {status}: {}",
                    self.program.display(),
                    self.end_of_log()
                );
            }
            if start.elapsed() > PATIENCE {
                bail!("the daemon does not answer: {}", self.end_of_log());
            }
            tokio::time::sleep(PERIOD).await;
        }
        Ok(())
    }

    /// Uploads a program and waits until it is translated. Result: its id.
    ///
    /// # Errors
    /// The daemon refuses the program.
    pub async fn push(&self, file: &Path) -> anyhow::Result<String> {
        self.upload(file, "service", "").await
    }

    /// Uploads a root file system and waits until a program in it is translated. Result: its id.
    ///
    /// # Errors
    /// The daemon refuses it.
    pub async fn push_root(&self, archive: &Path, program: &str) -> anyhow::Result<String> {
        self.upload(archive, "root", program).await
    }

    async fn upload(&self, file: &Path, name: &str, programs: &str) -> anyhow::Result<String> {
        let mut connection = self.connect().await?;
        let opened = tokio::fs::File::open(file).await;
        let opened = opened.with_context(|| file.display().to_string())?;
        let program = connection.upload(opened, name, programs).await?;
        let program = connection.until_ready(program).await?;
        let text = |field| program.get(field).and_then(Value::as_str);
        match (text("state"), text("message"), text("id")) {
            (Some("ready"), Some(""), Some(id)) => Ok(id.to_owned()),
            _ => bail!("the program was not translated: {program}"),
        }
    }

    /// Counts the resources in use when nothing runs, after a rest. Waits for a limited time until
    /// they do not exceed `before`.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn settle(&self, before: Option<&Left>) -> anyhow::Result<Left> {
        tokio::time::sleep(REST).await;
        let start = Instant::now();
        loop {
            let mut connection = self.connect().await?;
            let ready: Value = connection.json(Method::GET, "/readyz", None).await?;
            drop(connection);
            let left = Left::look(self.pid())?;
            let is_ready = ready.get("ready").and_then(Value::as_bool) == Some(true);
            let is_settled = before.is_none_or(|before| left.more_than(before).is_empty());
            if is_ready && is_settled || start.elapsed() > PATIENCE {
                return Ok(left);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Returns the last lines of the daemon's standard error.
    pub fn end_of_log(&self) -> String {
        let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A failure here cannot be handled.
        let _ = self.child.kill();
        let _ = self.child.wait();
        super::machines::end_all(&self.data());
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn spawn(program: &Path, directory: &Path) -> anyhow::Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(directory.join("log"))?;
    Command::new(program)
        .arg("--config")
        .arg(directory.join("hartlined.toml"))
        .arg("--data-dir")
        .arg(directory.join("data"))
        .arg("--socket")
        .arg(directory.join("socket"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| program.display().to_string())
}
