//! Jailed processes as the daemon sees them: having them started, talking to them, and making
//! sure that they end.

use super::network::Lease;
use super::violations::Violations;
use crate::spawner::{Process, Spawner};
use hartline_jail::spawner::protocol::Start;
use hartline_jail::{Channel, Violation};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

/// How long the kernel takes at most to end a process.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// Has the spawner start jailed processes, and find them again.
#[derive(Debug)]
pub struct Launcher {
    spawner: Arc<Spawner>,
    violations: Violations,
}

impl Launcher {
    /// By this spawner.
    #[must_use]
    pub fn new(spawner: Arc<Spawner>) -> Self {
        let violations = Violations::default();
        Self {
            spawner,
            violations,
        }
    }

    /// The spawner.
    #[must_use]
    pub fn spawner(&self) -> &Arc<Spawner> {
        &self.spawner
    }

    /// Where system calls that jails do not allow are counted.
    #[must_use]
    pub fn violations(&self) -> &Violations {
        &self.violations
    }

    /// Starts a process.
    ///
    /// # Errors
    /// The host refuses, or there are as many as there are users.
    pub async fn start(&self, start: Start) -> io::Result<Jailed> {
        let (process, channel) = self.spawner.start(start).await?;
        channel.set_nonblocking()?;
        Ok(Jailed {
            process: Some(Watched::new(process)?),
            line: Line::new(channel)?,
            lease: None,
            violations: self.violations.clone(),
            runtime: Handle::current(),
        })
    }

    /// The process of a tenant's VM that runs still, by its number and start time.
    ///
    /// # Errors
    /// It is none that this daemon may take.
    pub fn find(&self, identity: (i32, u64), tenant: &str) -> io::Result<Option<Process>> {
        self.spawner.adopt(identity, tenant)
    }
}

/// A process whose end can be awaited.
#[derive(Debug)]
pub struct Watched {
    process: Process,
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
    pub fn new(process: Process) -> io::Result<Self> {
        let descriptor = RawDescriptor(process.descriptor().try_clone_to_owned()?);
        // SAFETY: the descriptor is owned, and stays the same.
        let end = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
        Ok(Self { process, end })
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
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
                Ok(error) => return error,
                Err(_would_block) => {}
            }
        }
    }
}

/// A jailed process and the channel to it. Dropping this ends it.
#[derive(Debug)]
pub struct Jailed {
    process: Option<Watched>,
    line: Line,
    lease: Option<Arc<Lease>>,
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
    /// Its address, which nobody else gets before its end.
    pub lease: Option<Arc<Lease>>,
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
        let process = self.process.as_ref();
        process.is_none_or(|watched| watched.process().wait(Duration::ZERO))
    }

    /// Whether the kernel has ended it for the limit of its memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.known().is_ok_and(Process::is_out_of_memory)
    }

    /// The system call that its jail does not allow and that ended it, if that was its end:
    /// logged, as that of `who`, and counted. `told` is what the process told of it.
    pub async fn violation(&self, who: &str, told: Option<Violation>) -> Option<Violation> {
        let process = self.process.as_ref()?;
        let ended = tokio::time::timeout(LAST_BREATH, process.ended());
        ended.await.ok()?;
        self.violations.find(who, process.process(), told)
    }

    /// The process: number and start time.
    ///
    /// # Errors
    /// It is gone.
    pub fn identity(&self) -> io::Result<(i32, u64)> {
        let process = self.known()?;
        Ok((process.pid(), process.start_time()?))
    }

    /// Processor time that it has used so far.
    ///
    /// # Errors
    /// It is gone.
    pub fn processor_time(&self) -> io::Result<Duration> {
        self.known()?.processor_time()
    }

    fn known(&self) -> io::Result<&Process> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        Ok(self.process.as_ref().ok_or_else(gone)?.process())
    }

    /// Limits a VMM, where that can be done, to what a tenant's VM with so much memory may
    /// use, and to the tenant's cores. `weight` is the tenant's share of the processors.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub fn limit(&self, tenant: &str, weight: u32, memory: u64) -> io::Result<()> {
        self.known()?.limit(tenant, weight, memory)
    }

    /// Keeps an address until the process has ended.
    pub fn keep(&mut self, lease: Arc<Lease>) {
        self.lease = Some(lease);
    }

    /// The process, which from now on is not ended by dropping anything.
    #[must_use]
    pub fn release(mut self) -> Option<Released> {
        let mut process = self.process.take()?;
        process.process.release();
        Some(Released {
            process,
            line: self.line.clone(),
            lease: self.lease.take(),
        })
    }
}

impl Drop for Jailed {
    fn drop(&mut self) {
        let (Some(watched), Some(lease)) = (self.process.take(), self.lease.take()) else {
            // The spawner ends it, and frees its user when nothing of it is left.
            return;
        };
        let Watched { process, end } = watched;
        drop(process);
        // Its address is free when nothing of it is left.
        self.runtime.spawn(async move {
            let _ = end.readable().await;
            drop(lease);
        });
    }
}
