//! Snapshots of `hartline run`: written at a checkpoint, and continued with `--from`.

use super::Guest;
use super::network::Net;
use super::options::parse_seconds;
use anyhow::{Context, anyhow};
use hartline_aot::cache::Cache;
use hartline_vmm::boot;
use hartline_vmm::program::{Program, TreeFile};
use hartline_vmm::snapshot::{Error, Request, Snapshot, Summary, TABLE, Then, Trigger};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Options of snapshots.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Write a snapshot of the VM to the new directory DIR once, when --snapshot-at says; the program
    /// then goes on. The VM must have one vCPU, and no TAP interface, volumes, disks or vsock
    #[arg(long = "snapshot", value_name = "DIR", requires = "at")]
    directory: Option<PathBuf>,

    /// When the snapshot is written
    #[arg(
        long = "snapshot-at",
        value_enum,
        value_name = "WHEN",
        requires = "directory"
    )]
    at: Option<At>,

    /// End the VM after its snapshot, with exit code 0
    #[arg(long = "snapshot-end", requires = "directory")]
    end: bool,

    /// Give the snapshot up if its time has not come after so many seconds. The program then goes on
    /// without it, or with --snapshot-end the VM ends with exit code 125
    #[arg(
        long = "snapshot-within",
        value_name = "SECONDS",
        value_parser = parse_seconds,
        requires = "directory"
    )]
    within: Option<Duration>,

    /// Continue the program of a snapshot in a new VM, with new standard streams, instead of starting a
    /// program. Memory, files, tasks and timers are those of the snapshot. If its VM has --net user, the
    /// new one has it too, with its own ports (-p). The program finds ARGS in /run/hartline/arguments, each
    /// with a NUL after it
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = [
            "rootfs", "volumes", "given", "files", "user", "workdir", "hostname",
            "read_only", "memory", "cpus", "net", "vsock", "precise", "check",
        ]
    )]
    pub from: Option<PathBuf>,
}

/// Values of `--snapshot-at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum At {
    /// Before the program first reads standard input
    Stdin,
    /// When the program first waits in accept, epoll_wait, poll or select, and nothing else can run
    Listen,
    /// When hartline receives SIGUSR2; the program does not receive it
    Signal,
    /// When the program first waits for a call of the host (hartline_serve of hartline.h)
    Call,
}

impl At {
    fn trigger(self) -> Trigger {
        match self {
            Self::Stdin => Trigger::Stdin,
            Self::Listen => Trigger::Listen,
            Self::Signal => Trigger::Signal,
            Self::Call => Trigger::Call,
        }
    }

    /// What did not happen if there is no snapshot. `program` is the program's name in the sentence,
    /// and `has` is a word between subject and verb, with a space.
    fn missed(self, program: &str, has: &str) -> String {
        let (subject, verb) = match self {
            Self::Stdin => (program, "read standard input"),
            Self::Listen => (program, "waited in accept, epoll_wait, poll or select"),
            Self::Signal => ("hartline", "received SIGUSR2"),
            Self::Call => (program, "waited for a call"),
        };
        format!("{subject} {has}{verb}")
    }
}

impl Options {
    /// The snapshot to write, if there is one, of a VM with this network.
    ///
    /// # Errors
    /// It cannot be written there, or the VM has an interface of the host.
    pub fn writing(&self, net: &Net) -> anyhow::Result<Option<Writing>> {
        let (Some(directory), Some(at)) = (&self.directory, self.at) else {
            return Ok(None);
        };
        if matches!(net, Net::Tap(_)) {
            return Err(Error::State("a TAP interface").into());
        }
        let is_reported = Arc::new(AtomicBool::new(false));
        let reported = Arc::clone(&is_reported);
        let request = Request {
            directory: directory.clone(),
            trigger: at.trigger(),
            within: self.within,
            then: if self.end { Then::End } else { Then::Continue },
            report: Arc::new(move |written| {
                reported.store(true, Ordering::Relaxed);
                report(written, at);
            }),
        };
        request.check().context("--snapshot")?;
        Ok(Some(Writing {
            request,
            at,
            is_reported,
        }))
    }

    /// The snapshot to continue, if there is one.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn open(&self) -> anyhow::Result<Option<Snapshot>> {
        self.from.as_deref().map(open).transpose()
    }
}

/// Opens the snapshot of `--from`.
///
/// # Errors
/// It cannot be used.
pub fn open(directory: &Path) -> anyhow::Result<Snapshot> {
    // Without a cache, the snapshot is checked at each start.
    let cache = Cache::from_environment().ok();
    let table = cache.map(|cache| cache.directory().join(TABLE));
    Snapshot::open(directory, table.as_deref()).context("--from")
}

/// Says why a snapshot was not written.
fn report(written: &Result<Summary, Error>, at: At) {
    match written {
        Ok(_) => {}
        Err(Error::Late { path, within }) => {
            let within = within.as_secs_f64();
            let missed = at.missed("the program", "has not ");
            crate::say(&not_written(
                path,
                &format!("within {within} s {missed} (--snapshot-within)"),
            ));
        }
        Err(error) => crate::say(&format!("--snapshot: {error}")),
    }
}

/// The message for a snapshot whose time has not come.
fn not_written(directory: &Path, why: &str) -> String {
    format!("--snapshot {}: not written: {why}", directory.display())
}

/// A snapshot to write.
pub struct Writing {
    pub request: Request,
    at: At,
    /// Whether there was a checkpoint.
    is_reported: Arc<AtomicBool>,
}

impl Writing {
    /// Fails if the program ended before the snapshot was due.
    ///
    /// # Errors
    /// There is no snapshot.
    pub fn finish(&self) -> anyhow::Result<()> {
        if self.is_reported.load(Ordering::Relaxed) {
            return Ok(());
        }
        let why = format!("the program ended before {}", self.at.missed("it", ""));
        Err(anyhow!(not_written(&self.request.directory, &why)))
    }
}

/// The program and root file system of a snapshot.
///
/// # Errors
/// The snapshot has no root file system.
pub fn guest(snapshot: &Snapshot) -> anyhow::Result<Guest> {
    let tree = snapshot
        .tree()
        .context("--from: the snapshot has no root file system")?;
    let program = (snapshot.inode() != 0).then(|| {
        let file = TreeFile::new(Arc::clone(tree), snapshot.inode());
        let bytes = file.bytes().ok()?;
        Some(Program { file, bytes })
    });
    Ok(Guest {
        // Without its file, the program runs; only messages have less to tell.
        program: program.flatten(),
        path: snapshot.program().into(),
        tree: Arc::clone(tree),
        kept: None,
    })
}

/// What a VM that continues a snapshot still uses of the arguments, with those that the program finds in
/// `/run/hartline/arguments`.
pub fn arguments(snapshot: &Snapshot, given: &[OsString]) -> boot::Arguments {
    let given = given.iter().map(|argument| argument.as_bytes().to_vec());
    boot::Arguments {
        arguments: given.collect(),
        program: snapshot.inode(),
        path: snapshot.program().as_bytes().to_vec(),
        user: snapshot.user(),
        ..Default::default()
    }
}
