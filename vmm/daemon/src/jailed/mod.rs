//! The processes in a [jail]: a VMM, or a worker that packs uploads, translates, or measures and
//! empties volumes. The daemon starts its own program for each, as `hartlined jailed ROLE ROOT UID`.

mod find;
mod images;
#[doc(hidden)]
pub mod pack;
mod runs;
mod snapshots;
mod spawn;
mod translate;
mod vmm;
mod volume;

pub mod protocol;

use hartline_devices::net::Batch;
use hartline_jail::{self as jail, CHANNEL_FD, Channel, DEVICE_FD, Jail, Limits, Role, VOLUME_FD};
use hartline_tree::TreeImage;
use hartline_vmm::platform::{Kvm, keep_pagemap};
use protocol::{FromWorker, WorkerJob};
use rustix::io::fcntl_getfd;
use rustix::stdio::{dup2_stderr, stdin};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

/// Why a jailed process ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum JailedError {
    /// The daemon did not start the process.
    #[error("usage: jailed ROLE ROOT UID, by hartlined only")]
    Usage,
    /// The process could not enter its jail.
    #[error(transparent)]
    Jail(#[from] jail::JailError),
    /// The VM could not be made.
    #[error(transparent)]
    Machine(#[from] hartline_vmm::machine::Error),
    /// KVM.
    #[error(transparent)]
    Platform(#[from] hartline_vmm::platform::Error),
    /// The connection to the daemon.
    #[error("connection to the daemon: {0}")]
    Channel(#[from] io::Error),
    /// A message of the daemon cannot be decoded: the daemon is another version.
    #[error("message of the daemon: {0}")]
    Message(#[from] serde_json::Error),
    /// A descriptor did not come with a message.
    #[error("a descriptor is missing")]
    Descriptor,
}

/// Does the work of a jailed process. `arguments` are role, root directory and user.
///
/// # Errors
/// [`JailedError`]; the daemon sees the end of the channel.
pub fn main(arguments: &[String]) -> Result<(), JailedError> {
    let [role, root, uid] = arguments else {
        return Err(JailedError::Usage);
    };
    let role = Role::from_name(role).ok_or(JailedError::Usage)?;
    let uid = uid.parse().map_err(|_| JailedError::Usage)?;
    let channel = Channel::from(inherited(CHANNEL_FD)?);
    let jail = Jail {
        role,
        root: PathBuf::from(root),
        uid,
        limits: Limits::of(role),
        volumes: match role {
            Role::VmmWithVolumes | Role::VolumeWorker => {
                (VOLUME_FD..).map_while(|fd| inherited(fd).ok()).collect()
            }
            Role::Vmm | Role::Worker => Vec::new(),
        },
    };
    // The jail forbids the system call for it.
    let is_vmm = matches!(role, Role::Vmm | Role::VmmWithVolumes);
    let batch = is_vmm.then(Batch::new).and_then(Result::ok);
    if is_vmm {
        // There is no /proc in the jail. Without it, VMs are used once.
        let _ = keep_pagemap();
    }
    if let Some(descriptors) = jail::enter(&jail)? {
        hartline_devices::volume::use_descriptors(descriptors);
    }
    // Files of tenants must not make this process write to the daemon's standard error.
    // Descriptor 0 is /dev/null.
    dup2_stderr(stdin()).map_err(io::Error::from)?;
    match role {
        Role::Vmm | Role::VmmWithVolumes => {
            let kvm = Kvm::from_descriptor(inherited(DEVICE_FD)?)?;
            vmm::serve(kvm, Arc::new(channel), jail.volumes, batch)
        }
        Role::Worker => work(&channel),
        Role::VolumeWorker => volume::work(&channel, &jail.volumes),
    }
}

/// Takes a descriptor that the daemon put at a number.
fn inherited(fd: RawFd) -> Result<OwnedFd, JailedError> {
    // SAFETY: used for one call, which fails if the descriptor is not open.
    let passed = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl_getfd(passed).map_err(|_| JailedError::Usage)?;
    // SAFETY: the descriptor is open, and has no other owner in this process: each number is taken
    // once, before the process opens descriptors that could get it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Does one job.
fn work(channel: &Channel) -> Result<(), JailedError> {
    let (message, descriptors) = channel.receive()?;
    if message.is_empty() {
        return Ok(());
    }
    let [input] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| JailedError::Descriptor)?;
    let tree = |input: OwnedFd| {
        let tree = TreeImage::new(input.into()).map_err(|error| error.to_string());
        tree.map(Arc::new)
    };
    let alone = |answer| (answer, None);
    let (answer, file) = match serde_json::from_slice(&message)? {
        WorkerJob::Pack { kind, limit } => pack::pack(input.into(), kind, limit),
        WorkerJob::Find { kind, programs } => {
            let found = tree(input).and_then(|tree| find::find(&tree, kind, &programs));
            found.map(alone)
        }
        WorkerJob::Digest { inode } => tree(input).map(|tree| alone(find::digest(tree, inode))),
        WorkerJob::Translate { image, features } => {
            tree(input).and_then(|tree| translate::translate(tree, image, features, channel))
        }
    }
    .unwrap_or_else(|message| (FromWorker::Failed { message }, None));
    use std::os::fd::AsFd;
    let descriptors: Vec<_> = file.iter().map(AsFd::as_fd).collect();
    channel.send(&serde_json::to_vec(&answer)?, &descriptors)?;
    Ok(())
}
