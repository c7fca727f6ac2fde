//! Jailed processes as the daemon sees them: starting them, talking to them, and making
//! sure that they end.

use super::cgroup::{Cgroups, Group};
use super::network::Lease;
use super::violations::Violations;
use crate::affinity;
use crate::jail::{self, Channel, Child, Role, Violation};
use crate::jailed::{VMM, VOLUME_WORKER, WORKER};
use crate::platform::{CoreMember, CoreScheduling, Kvm};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How long the kernel takes at most to end a process.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// Starts jailed processes, on a thread of its own: the kernel ends them when the thread
/// that started them does, so that must last as long as the daemon.
#[derive(Debug)]
pub struct Launcher {
    orders: mpsc::Sender<Order>,
    uids: Uids,
    /// Limits, if they can be enforced.
    cgroups: Option<Arc<Cgroups>>,
    /// Keeps tenants off each other's cores, if that can be done.
    cores: Option<CoreScheduling>,
    violations: Violations,
}

/// A directory of the host that a VMM may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedDirectory {
    /// The directory. What is in it belongs to its owner.
    pub directory: PathBuf,
    /// The VMM may change nothing in it.
    pub read_only: bool,
}

/// A process that is to be started.
struct Order {
    role: Role,
    uid: u32,
    shared: Vec<SharedDirectory>,
    answer: oneshot::Sender<io::Result<(Child, Channel)>>,
}

/// What the thread works with.
struct Starter {
    /// This program.
    program: File,
    /// `/dev/kvm`.
    device: File,
    /// An empty directory.
    root: PathBuf,
}

impl Launcher {
    /// Uses the empty directory `root`, which is made, users of a range, and limits if they
    /// can be enforced. Processes run on the processors `shared`, unless they move themselves.
    ///
    /// # Errors
    /// The device, the directory or this program's file cannot be opened; `root` is not
    /// empty.
    pub fn new(
        root: &Path,
        uids: Range<u32>,
        (cgroups, cores): (Option<Cgroups>, Option<CoreScheduling>),
        shared: Vec<u32>,
    ) -> io::Result<Self> {
        let named = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        fs::create_dir_all(root).map_err(|error| named(root, error))?;
        fs::set_permissions(root, fs::Permissions::from_mode(0o555))?;
        if fs::read_dir(root)?.next().is_some() {
            return Err(named(root, io::ErrorKind::DirectoryNotEmpty.into()));
        }
        let device = Path::new(Kvm::DEVICE);
        let mut options = File::options();
        options.read(true).write(true);
        let starter = Starter {
            program: File::open("/proc/self/exe")?,
            device: options.open(device).map_err(|error| named(device, error))?,
            root: root.to_path_buf(),
        };
        let (orders, received) = mpsc::channel::<Order>();
        let work = move || {
            // Its children are where it is. Those processors were there just now.
            if let Err(error) = affinity::run_on(&shared) {
                tracing::error!("processors: {error}");
            }
            for order in received {
                let started = starter.start(order.role, order.uid, &order.shared);
                if let Err(Ok((child, _))) = order.answer.send(started) {
                    // Nobody wants it any more. It can be sent that: it has not been waited for.
                    let _ = child.signal(libc::SIGKILL);
                    let _ = child.wait(LAST_BREATH);
                }
            }
        };
        thread::Builder::new().name("launcher".into()).spawn(work)?;
        Ok(Self {
            orders,
            uids: Uids {
                range: uids,
                taken: Arc::default(),
            },
            cgroups: cgroups.map(Arc::new),
            cores,
            violations: Violations::default(),
        })
    }

    /// Starts a process, which may use directories if its role says so.
    ///
    /// # Errors
    /// The host refuses, or there are as many as there are users.
    pub async fn start(&self, role: Role, shared: Vec<SharedDirectory>) -> io::Result<Jailed> {
        let mut uid = self.uids.take()?;
        let (answer, started) = oneshot::channel();
        let order = Order {
            role,
            uid: uid.uid,
            shared,
            answer,
        };
        let gone = || io::Error::other("the thread that starts processes is gone");
        self.orders.send(order).map_err(|_| gone())?;
        let (child, channel) = started.await.map_err(|_| gone())??;
        let limits = match role {
            // Once the tenant is known.
            Role::Vmm | Role::VmmWithVolumes => None,
            Role::Worker => Some(WORKER),
            Role::VolumeWorker => Some(VOLUME_WORKER),
        };
        if let (Some(limits), Some(cgroups)) = (limits, &self.cgroups) {
            let (memory, threads) = (limits.address_space, limits.threads);
            let group = cgroups.limit_worker(child.pid(), uid.uid, memory, threads);
            uid.group = Some(group?);
        }
        Ok(Jailed {
            child: Some(Watched::new(child)?),
            line: Line::new(channel)?,
            uid: Some(uid),
            cgroups: self.cgroups.clone(),
            cores: self.cores.clone(),
            violations: self.violations.clone(),
            runtime: Handle::current(),
        })
    }

    /// Where system calls that jails do not allow are counted.
    #[must_use]
    pub fn violations(&self) -> &Violations {
        &self.violations
    }

    /// Takes the user, the limits, and the address, of a tenant's VMM that was found again, so
    /// that nobody else gets them.
    #[must_use]
    pub fn adopt_uid(
        &self,
        (pid, uid): (i32, u32),
        tenant: &str,
        lease: Option<Arc<Lease>>,
    ) -> Option<Uid> {
        let mut uid = self.uids.take_this(uid)?;
        let core = self.cores.as_ref().map(|cores| cores.adopt(tenant, pid));
        uid.core = core.and_then(|adopted| {
            let failed = |error| tracing::warn!("core scheduling of process {pid}: {error}");
            adopted.map_err(failed).ok()
        });
        uid.lease = lease;
        let cgroups = self.cgroups.as_ref();
        uid.group = cgroups.and_then(|cgroups| cgroups.adopt(uid.uid, tenant));
        Some(uid)
    }
}

impl Starter {
    fn start(
        &self,
        role: Role,
        uid: u32,
        shared: &[SharedDirectory],
    ) -> io::Result<(Child, Channel)> {
        let device = match role {
            Role::Vmm | Role::VmmWithVolumes => Some(self.device.as_fd()),
            Role::Worker | Role::VolumeWorker => None,
        };
        let volumes = shared
            .iter()
            .map(|shared| jail::mount(&shared.directory, uid, shared.read_only));
        let volumes = volumes.collect::<io::Result<Vec<_>>>()?;
        let (root, program) = (&self.root, &self.program);
        let (child, channel) = jail::spawn(program, role, root, uid, device, &volumes)?;
        channel.set_nonblocking()?;
        Ok((child, channel))
    }
}

/// Users that are free.
#[derive(Debug)]
struct Uids {
    range: Range<u32>,
    taken: Arc<Mutex<BTreeSet<u32>>>,
}

impl Uids {
    fn take(&self) -> io::Result<Uid> {
        let free = {
            let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            self.range.clone().find(|uid| !taken.contains(uid))
        };
        free.and_then(|uid| self.take_this(uid))
            .ok_or_else(|| io::Error::other("no user is left for another jailed process"))
    }

    fn take_this(&self, uid: u32) -> Option<Uid> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let taken_now = self.range.contains(&uid) && taken.insert(uid);
        // Not made otherwise: its end would free the user.
        taken_now.then(|| Uid {
            uid,
            group: None,
            core: None,
            lease: None,
            taken: Arc::clone(&self.taken),
        })
    }
}

/// A user that one process has, its limits, and its address; free again when dropped.
#[derive(Debug)]
pub struct Uid {
    uid: u32,
    group: Option<Group>,
    core: Option<CoreMember>,
    lease: Option<Arc<Lease>>,
    taken: Arc<Mutex<BTreeSet<u32>>>,
}

impl Uid {
    /// Whether the kernel has ended its process for the limit of its memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.group.as_ref().is_some_and(Group::is_out_of_memory)
    }
}

impl Drop for Uid {
    fn drop(&mut self) {
        // Before the user is somebody else's, whose group will have the same name.
        self.group = None;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&self.uid);
    }
}

/// A process whose end can be awaited.
#[derive(Debug)]
pub struct Watched {
    child: Child,
    end: AsyncFd<RawDescriptor>,
}

/// A duplicate of the process's descriptor, for the reactor.
#[derive(Debug)]
struct RawDescriptor(OwnedFd);

impl AsRawFd for RawDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Watched {
    /// Watches a process; inside a runtime only.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub fn new(child: Child) -> io::Result<Self> {
        let descriptor = RawDescriptor(child.descriptor().try_clone_to_owned()?);
        // SAFETY: the descriptor is owned, and stays the same.
        let end = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
        Ok(Self { child, end })
    }

    /// The process.
    #[must_use]
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Returns when it has ended.
    pub async fn ended(&self) {
        // An error is the end of the reactor, and with it of the daemon.
        let _ = self.end.readable().await;
    }
}

/// The channel to a jailed process. Clones are the same.
#[derive(Debug, Clone)]
pub struct Line(Arc<AsyncFd<Channel>>);

impl Line {
    fn new(channel: Channel) -> io::Result<Self> {
        // SAFETY: the channel owns its descriptor, which stays the same.
        let channel = unsafe { AsyncFd::register(channel) }?;
        Ok(Self(Arc::new(channel)))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The process has ended, or whatever else the host answers.
    pub async fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            let mut ready = self.0.writable().await?;
            match ready.try_io(|channel| channel.get_ref().send(message, descriptors)) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Receives a message; `UnexpectedEof` when the process has ended, with the [`Violation`] that
    /// ended it if it told one. A call that is cancelled has received nothing.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub async fn receive(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|channel| channel.get_ref().receive()) {
                Ok(Ok((message, _))) if message.is_empty() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(Ok((message, descriptors))) => {
                    return match Violation::from_report(&message) {
                        None => Ok((message, descriptors)),
                        Some(told) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, told)),
                    };
                }
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }
}

/// A jailed process and the channel to it. Dropping this ends it.
#[derive(Debug)]
pub struct Jailed {
    child: Option<Watched>,
    line: Line,
    uid: Option<Uid>,
    cgroups: Option<Arc<Cgroups>>,
    cores: Option<CoreScheduling>,
    violations: Violations,
    runtime: Handle,
}

/// A jailed process that is not ended by dropping anything.
#[derive(Debug)]
pub struct Released {
    /// The process.
    pub process: Watched,
    /// The channel to it.
    pub line: Line,
    /// Its user.
    pub uid: Option<Uid>,
}

impl Jailed {
    /// The channel to it.
    #[must_use]
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let child = self.child.as_ref();
        child.is_none_or(|watched| watched.child().wait(Duration::ZERO))
    }

    /// Whether the kernel has ended it for the limit of its memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.uid.as_ref().is_some_and(Uid::is_out_of_memory)
    }

    /// The system call that its jail does not allow and that ended it, if that was its end:
    /// logged, as that of `who`, and counted. `told` is what the process told of it.
    pub async fn violation(&self, who: &str, told: Option<Violation>) -> Option<Violation> {
        let process = self.child.as_ref()?;
        let ended = tokio::time::timeout(LAST_BREATH, process.ended());
        ended.await.ok()?;
        self.violations.find(who, process.child(), told)
    }

    /// The process: number and start time.
    ///
    /// # Errors
    /// It is gone.
    pub fn identity(&self) -> io::Result<(i32, u64)> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let child = self.child.as_ref().ok_or_else(gone)?.child();
        Ok((child.pid(), child.start_time()?))
    }

    /// Processor time that it has used so far.
    ///
    /// # Errors
    /// It is gone.
    pub fn processor_time(&self) -> io::Result<Duration> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let child = self.child.as_ref().ok_or_else(gone)?.child();
        child.processor_time()
    }

    /// Limits a VMM, where that can be done, to what a tenant's VM with so much memory may
    /// use, and to the tenant's cores. `weight` is the tenant's share of the processors.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub fn limit(&mut self, tenant: &str, weight: u32, memory: u64) -> io::Result<()> {
        self.keep_to_cores_of(tenant)?;
        if let (Some(cgroups), Some(child), Some(uid)) = (&self.cgroups, &self.child, &mut self.uid)
        {
            let process = (child.child().pid(), uid.uid);
            let group = cgroups.limit_vm(process, (tenant, weight), memory, VMM.threads);
            uid.group = Some(group?);
        }
        Ok(())
    }

    /// Keeps it off the cores of other tenants than this, where that can be done.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub fn keep_to_cores_of(&mut self, tenant: &str) -> io::Result<()> {
        if let (Some(cores), Some(child), Some(uid)) = (&self.cores, &self.child, &mut self.uid) {
            uid.core = Some(cores.assign(tenant, child.child().pid())?);
        }
        Ok(())
    }

    /// Keeps an address until the process has ended.
    pub fn keep(&mut self, lease: Arc<Lease>) {
        if let Some(uid) = &mut self.uid {
            uid.lease = Some(lease);
        }
    }

    /// The process, which from now on is not ended by dropping anything.
    #[must_use]
    pub fn release(mut self) -> Option<Released> {
        Some(Released {
            process: self.child.take()?,
            line: self.line.clone(),
            uid: self.uid.take(),
        })
    }
}

impl Drop for Jailed {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else {
            return;
        };
        // That it cannot be sent means that it has ended.
        let _ = child.child().signal(libc::SIGKILL);
        let uid = self.uid.take();
        // Its user is free when nothing of it is left.
        self.runtime.spawn(async move {
            child.ended().await;
            drop((child, uid));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_nobody_elses() {
        let uids = Uids {
            range: 5000..5002,
            taken: Arc::default(),
        };
        let first = uids.take().unwrap();
        let second = uids.take().unwrap();
        assert_ne!(first.uid, second.uid);
        assert!(uids.take().is_err());
        assert!(uids.take_this(first.uid).is_none());
        let free = first.uid;
        drop(first);
        assert_eq!(uids.take().unwrap().uid, free);
        assert!(uids.take_this(4999).is_none());
    }
}
