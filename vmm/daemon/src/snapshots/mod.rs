//! Snapshots of machines:
//!
//! ```text
//! DATA/snapshots/ID/config.json   description, which only jailed VMMs read
//! DATA/snapshots/ID/memory        RAM
//! DATA/snapshots/ID/tree          the tree of its program: a link to the library's file
//! ```
//! The VMM of the machine sends a snapshot through a socket, and the service writes the files: so the
//! VMM needs no right to write files, and the service bounds them. A snapshot is found when its row in
//! the database says that it is complete; its files are on the disk then. What an earlier daemon did
//! not complete is deleted at the start.
//!
//! The tree is that of the program, which cannot be deleted meanwhile. The link keeps its inode: the
//! number shows whether a VM has the same tree.

mod checked;
mod receive;
mod suspend;
mod uses;

use super::auth::random_hex;
use super::events::{Events, SnapshotEvent, SnapshotState};
use super::library::{Files, Library};
use super::spawner::Process;
use super::store::{
    CpuClass, KeptSnapshot, Machine, NewSnapshot, Reserved, Restart, Spec, Store, StoreError,
    now_ms,
};
use crate::execute::NotRunnable;
use crate::jailed::protocol::{Request, SnapshotJob};
pub use checked::Check;
use checked::Checked;
use receive::{Received, receive};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uses::Holder;
use uses::Uses;

/// How long the guest may take to its next safepoint.
const SAFEPOINT: Duration = Duration::from_secs(20);
/// How long the VMM and the service may wait for each other while a snapshot is sent.
const STALL: Duration = Duration::from_secs(30);
/// Names of the files.
const CONFIG: &str = "config.json";
const MEMORY: &str = "memory";
const TREE: &str = "tree";

/// The reason why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The machine has state that a snapshot cannot have.
    #[error("a snapshot cannot contain {0}")]
    State(&'static str),
    /// Another snapshot of the machine is being made.
    #[error("another snapshot of the machine is being made")]
    Busy,
    /// The tenant has a snapshot of this name.
    #[error("another snapshot has this name")]
    NameInUse,
    /// The machine's program was deleted.
    #[error("the machine's program was deleted")]
    NoProgram,
    /// The guest does not come to a safepoint.
    #[error("the program did not come to a point at which it can be stopped within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The VMM sends the snapshot too slowly, or has stopped.
    #[error("the machine's VMM does not send all of its memory in time")]
    Stalled,
    /// The VMM has ended, or does not know snapshots.
    #[error("the machine has ended, or its VMM is one of an earlier version: start it again first")]
    Gone,
    /// The VMM has a reason.
    #[error("{0}")]
    Refused(String),
    /// The VMM sent something else, or too much.
    #[error("the VMM sent an invalid snapshot")]
    Invalid,
    /// The host returns no random bytes.
    #[error("random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// An operation of the host failed.
    #[error("{0}")]
    Host(#[from] io::Error),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SnapshotError {
    /// Whether the request was one that cannot be granted.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::State(_)
                | Self::Busy
                | Self::NameInUse
                | Self::NoProgram
                | Self::Refused(_)
                | Self::Store(StoreError::Quota { .. })
        )
    }

    /// The reason for the tenant. Faults of the host are in the daemon's log only.
    fn for_tenant(&self) -> String {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Host(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => {
                "the disk is full".to_owned()
            }
            Self::Store(error) if error.is_full() => "the disk is full".to_owned(),
            Self::Host(_) | Self::Store(_) | Self::Random(_) | Self::Invalid => {
                "the daemon failed: its log has the reason".to_owned()
            }
            error => error.to_string(),
        }
    }
}

/// The device of a machine that a snapshot cannot have, if there is one.
///
/// # Errors
/// [`SnapshotError::State`].
pub fn check(spec: &Spec) -> Result<(), SnapshotError> {
    let parts = [
        (!spec.volumes.is_empty(), "volumes"),
        (spec.terminal.is_some(), "a terminal"),
        // Files of snapshots are not encrypted.
        (!spec.secrets.is_empty(), "secrets"),
    ];
    match parts.into_iter().find(|(is_there, _)| *is_there) {
        Some((_, part)) => Err(SnapshotError::State(part)),
        None => Ok(()),
    }
}

/// Most bytes of the files of a snapshot of a machine with `memory` bytes: its memory, and a description
/// of each of its parts.
fn most(memory: u64) -> u64 {
    memory.saturating_add(memory / 64).saturating_add(4 << 20)
}

/// The open files of a snapshot that a VM continues. The snapshot is not deleted for its age meanwhile.
#[derive(Debug)]
pub struct Opened {
    /// Description and memory.
    pub files: [File; 2],
    /// Whether their checksums were right before.
    pub check: Check,
    _holder: Holder,
}

/// All snapshots.
#[derive(Debug)]
pub struct Snapshots {
    store: Arc<Store>,
    library: Arc<Library>,
    directory: PathBuf,
    events: Events,
    uses: Uses,
    checked: Checked,
    /// Machines of which a snapshot is being made.
    busy: Mutex<BTreeSet<String>>,
}

impl Snapshots {
    /// Snapshots in `directory`. What an earlier daemon did not complete, or did not delete, is
    /// deleted.
    ///
    /// # Errors
    /// The directory or the database cannot be used.
    pub fn open(
        store: Arc<Store>,
        library: Arc<Library>,
        directory: PathBuf,
        events: Events,
    ) -> Result<Self, SnapshotError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory);
        made?;
        store.forget_incomplete_snapshots()?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let id = entry.file_name().to_string_lossy().into_owned();
            if !store.has_snapshot(&id)? {
                let path = entry.path();
                // What is left only takes room: the service must start nevertheless.
                match fs::remove_dir_all(&path) {
                    Ok(()) => tracing::info!("{}: deleted, it is not complete", path.display()),
                    Err(error) => tracing::error!("{}: not deleted: {error}", path.display()),
                }
            }
        }
        Ok(Self {
            store,
            library,
            directory,
            events,
            uses: Uses::default(),
            checked: Checked::default(),
            busy: Mutex::default(),
        })
    }

    /// Makes a snapshot of a running machine, whose process is given. The machine goes on, whether
    /// there is a snapshot or not. The work is completed, or undone, also if this is cancelled. Must run
    /// inside a runtime.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub async fn make(
        self: &Arc<Self>,
        machine: &Machine,
        process: &Process,
        name: Option<String>,
    ) -> Result<KeptSnapshot, SnapshotError> {
        check(&machine.spec)?;
        let turn = Turn::take(self, &machine.id)?;
        let requests = process.requests().map_err(|_| SnapshotError::Gone)?;
        let (snapshots, machine) = (Arc::clone(self), machine.clone());
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            snapshots.make_now(&machine, &requests, name.as_deref())
        });
        work.await.map_err(io::Error::other)?
    }

    fn make_now(
        &self,
        machine: &Machine,
        requests: &hartline_jail::Channel,
        name: Option<&str>,
    ) -> Result<KeptSnapshot, SnapshotError> {
        let id = random_hex::<16>()?;
        let spec = &kept_spec(&machine.spec);
        let most = most(spec.memory);
        let reserved = self.store.reserve_snapshot(NewSnapshot {
            id: &id,
            tenant: &machine.tenant,
            name,
            machine: &machine.id,
            spec,
            most,
            suspends: false,
        });
        done(reserved?)?;
        let new = KeptSnapshot {
            id: id.clone(),
            tenant: machine.tenant.clone(),
            name: name.map(str::to_owned),
            machine: machine.id.clone(),
            spec: spec.clone(),
            size: 0,
            created_ms: now_ms(),
        };
        let written = self.write(&id, machine, requests, |tree| {
            Request::Snapshot(SnapshotJob { tree })
        });
        let made = written.and_then(|(received, _)| {
            let completed = self.store.complete_snapshot(&id, received.size)?;
            // Only this task deletes it before.
            completed.ok_or(SnapshotError::NoProgram)
        });
        if made.is_err()
            && let Err(error) = self.undo(&id)
        {
            // The first error is reported. The snapshot counts as long as its files may be there; the
            // next start deletes them.
            tracing::error!(
                "snapshot {id} of machine {}: not undone: {error}",
                machine.id
            );
        }
        let (state, reason) = match &made {
            Ok(_) => (SnapshotState::Created, None),
            Err(error) => (SnapshotState::Failed, Some(error.for_tenant())),
        };
        self.publish(&new, state, reason);
        made
    }

    fn undo(&self, id: &str) -> Result<(), SnapshotError> {
        self.remove_files(id)?;
        self.store.forget_snapshot(id)?;
        Ok(())
    }

    /// Writes the files of a snapshot, which `request` requests for a tree. They are on the disk when
    /// this returns. Result: also the socket to the VMM.
    fn write(
        &self,
        id: &str,
        machine: &Machine,
        requests: &hartline_jail::Channel,
        request: impl FnOnce((u64, u64)) -> Request,
    ) -> Result<(Received, UnixStream), SnapshotError> {
        let directory = self.directory.join(id);
        DirBuilder::new().mode(0o700).create(&directory)?;
        let tree = self
            .library
            .tree_path(&machine.tenant, &machine.spec.program);
        fs::hard_link(tree, directory.join(TREE))?;
        let tree = identity(&fs::metadata(directory.join(TREE))?);
        let (own, other) = UnixStream::pair()?;
        // The vCPU of the machine must not wait for ever.
        other.set_write_timeout(Some(STALL))?;
        let message = serde_json::to_vec(&request(tree)).map_err(io::Error::from)?;
        let sent = requests.send(&message, &[other.as_fd()]);
        sent.map_err(|_| SnapshotError::Gone)?;
        drop(other);
        let received = receive(own.try_clone()?, &directory, machine.spec.memory)?;
        File::open(&directory)?.sync_all()?;
        File::open(&self.directory)?.sync_all()?;
        Ok((received, own))
    }

    /// Notes that a snapshot is being used: it is not deleted for its age soon.
    ///
    /// # Errors
    /// The database failed. A full disk is no error: a run from a snapshot needs no room.
    pub fn note_use(&self, id: &str) -> Result<(), StoreError> {
        if !self.uses.is_to_be_noted(id) {
            return Ok(());
        }
        match self.store.use_snapshot(id) {
            Err(error) if error.is_full() => {
                tracing::warn!("snapshot {id}: its use is not noted: {error}");
                Ok(())
            }
            noted => noted,
        }
    }

    /// The files of a snapshot for a VMM. `files` are those of the library for the snapshot's program.
    ///
    /// # Errors
    /// [`NotRunnable`]: the snapshot is gone, or the program's tree is another one now.
    pub fn files(&self, id: &str, files: &Files) -> Result<Opened, NotRunnable> {
        let holder = self.uses.hold(id);
        let directory = self.directory.join(id);
        let open = |name| File::open(directory.join(name));
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => NotRunnable::Failed("its snapshot was deleted".to_owned()),
            _ => NotRunnable::Failed(format!("its snapshot: {error}")),
        };
        let tree = fs::metadata(directory.join(TREE)).map_err(failed)?;
        let now = files.tree.metadata().map_err(failed)?;
        if identity(&tree) != identity(&now) {
            let why = "its program was packed again since the snapshot: make another snapshot";
            return Err(NotRunnable::Failed(why.to_owned()));
        }
        let files = [open(CONFIG).map_err(failed)?, open(MEMORY).map_err(failed)?];
        Ok(Opened {
            check: self.checked.look(id, &files),
            files,
            _holder: holder,
        })
    }

    /// Deletes a snapshot that no machine continues. VMs that have its files open keep them. Result:
    /// whether it was deleted.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn delete(&self, snapshot: &KeptSnapshot) -> Result<bool, SnapshotError> {
        let (tenant, id) = (&snapshot.tenant, &snapshot.id);
        let deleted = self.store.delete_snapshot(tenant, id, i64::MAX)?;
        if deleted {
            self.publish(snapshot, SnapshotState::Deleted, None);
            self.remove_files(id)?;
        }
        Ok(deleted)
    }

    /// Deletes snapshots that no VM continues, and that were neither made nor used for `keep`, at most
    /// `limit`. Result: their number.
    ///
    /// # Errors
    /// The database failed.
    pub fn collect(&self, keep: Duration, limit: u32) -> Result<usize, SnapshotError> {
        self.uses.tidy();
        let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        let before_ms = now_ms().saturating_sub(keep_ms);
        let mut collected = 0;
        for snapshot in self.store.unused_snapshots(before_ms, limit)? {
            let KeptSnapshot { tenant, id, .. } = &snapshot;
            let delete = || self.store.delete_snapshot(tenant, id, before_ms);
            match self.uses.unless_held(id, delete).transpose()? {
                Some(true) => {
                    collected += 1;
                    let reason = format!("not used for {} s", keep.as_secs());
                    self.publish(&snapshot, SnapshotState::Deleted, Some(reason));
                    self.remove_files(id)?;
                }
                // It was used, or deleted, meanwhile.
                Some(false) => {}
                // A run that is not kept. The next collection does not find the snapshot, but others.
                None => self.store.use_snapshot(id)?,
            }
        }
        Ok(collected)
    }

    fn publish(&self, snapshot: &KeptSnapshot, state: SnapshotState, reason: Option<String>) {
        let event = SnapshotEvent::new(snapshot, state, reason);
        self.events.publish_snapshot(&snapshot.tenant, event);
    }

    fn remove_files(&self, id: &str) -> io::Result<()> {
        self.checked.forget(id);
        match fs::remove_dir_all(self.directory.join(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of a reservation, as an error if there is none.
fn done(reserved: Reserved) -> Result<(), SnapshotError> {
    match reserved {
        Reserved::Done => Ok(()),
        Reserved::NameInUse => Err(SnapshotError::NameInUse),
        Reserved::NoProgram => Err(SnapshotError::NoProgram),
    }
}

/// Device and inode of a file.
fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The part of a machine's specification that is true for every VM that continues its snapshot.
fn kept_spec(spec: &Spec) -> Spec {
    Spec {
        timeout_ms: None,
        labels: BTreeMap::new(),
        interactive: false,
        cpu_class: CpuClass::default(),
        ports: Vec::new(),
        restart: Restart::No,
        snapshot: None,
        idle_timeout_s: None,
        ..spec.clone()
    }
}

/// The only task that makes a snapshot of a machine.
#[derive(Debug)]
struct Turn {
    snapshots: Arc<Snapshots>,
    machine: String,
}

impl Turn {
    fn take(snapshots: &Arc<Snapshots>, machine: &str) -> Result<Self, SnapshotError> {
        match snapshots.lock().insert(machine.to_owned()) {
            true => Ok(Self {
                snapshots: Arc::clone(snapshots),
                machine: machine.to_owned(),
            }),
            false => Err(SnapshotError::Busy),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.snapshots.lock().remove(&self.machine);
    }
}
