//! Jailed processes for the daemon: starting them, exchanging messages, and making sure that they
//! end.

use super::network::Lease;
use super::violations::Violations;
use super::volumes;
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

/// The maximum time that the kernel takes to end a process.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// Starts jailed processes, and finds them again, through the spawner.
#[derive(Debug)]
pub struct Launcher {
    spawner: Arc<Spawner>,
    violations: Violations,
}

impl Launcher {
    /// A launcher that uses this spawner.
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

    /// The counters of system calls that jails do not allow.
    #[must_use]
    pub fn violations(&self) -> &Violations {
        &self.violations
    }

    /// Starts a process.
    ///
    /// # Errors
    /// The host refuses, or all users are taken.
    pub async fn start(&self, start: Start) -> io::Result<Jailed> {
        let (process, channel) = self.spawner.start(start).await?;
        channel.set_nonblocking()?;
        Ok(Jailed {
            process: Some(Watched::new(process)?),
            line: Line::new(channel)?,
            lease: None,
            volumes: None,
            violations: self.violations.clone(),
            runtime: Handle::current(),
        })
    }

    /// Finds a running process of a tenant's VM by its number and start time.
    ///
    /// # Errors
    /// The spawner does not let this daemon adopt the process.
    pub fn find(&self, identity: (i32, u64), tenant: &str) -> io::Result<Option<Process>> {
        self.spawner.adopt(identity, tenant)
    }
}

/// A process whose end can be awaited.
#[derive(Debug)]
pub struct Watched {
    process: Process,
    end: Arc<AsyncFd<RawDescriptor>>,
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
    /// Watches a process. Must run inside a runtime.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn new(process: Process) -> io::Result<Self> {
        let descriptor = RawDescriptor(process.descriptor().try_clone_to_owned()?);
        // SAFETY: `RawDescriptor` owns the descriptor and always returns its number. Tokio keeps the
        // value as long as the descriptor is registered.
        let end = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
        let end = Arc::new(end);
        Ok(Self { process, end })
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Returns when the process has ended.
    pub async fn ended(&self) {
        self.end().await;
    }

    /// A future that is ready when the process has ended. It does not need this value.
    fn end(&self) -> impl Future<Output = ()> + use<> {
        let end = Arc::clone(&self.end);
        // An error is the end of the reactor, and so of the daemon.
        async move { drop(end.readable().await) }
    }
}

/// The channel to a jailed process. Clones are the same.
#[derive(Debug, Clone)]
pub struct Line(Arc<AsyncFd<Channel>>);

impl Line {
    /// Uses a channel that does not block. Must run inside a runtime.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn new(channel: Channel) -> io::Result<Self> {
        // SAFETY: the channel owns its descriptor and always returns its number. Tokio keeps the
        // channel as long as the descriptor is registered.
        let channel = unsafe { AsyncFd::register(channel) }?;
        Ok(Self(Arc::new(channel)))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The process has ended, or any other I/O error of the host.
    pub async fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            let mut ready = self.0.writable().await?;
            match ready.try_io(|channel| channel.get_ref().send(message, descriptors)) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Receives a message. When the process has ended, the error is `UnexpectedEof`, with the
    /// [`Violation`] that ended the process if it reported one. A cancelled call has received
    /// nothing.
    ///
    /// # Errors
    /// Any I/O error of the host.
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
                        Some(reported) => {
                            Err(io::Error::new(io::ErrorKind::UnexpectedEof, reported))
                        }
                    };
                }
                Ok(error) => return error,
                Err(_would_block) => {}
            }
        }
    }
}

/// A jailed process and the channel to it. Dropping this ends the process.
#[derive(Debug)]
pub struct Jailed {
    process: Option<Watched>,
    line: Line,
    lease: Option<Arc<Lease>>,
    volumes: Option<Arc<volumes::Claim>>,
    violations: Violations,
    runtime: Handle,
}

/// A jailed process that continues when this is dropped.
#[derive(Debug)]
pub struct Released {
    /// The process.
    pub process: Watched,
    /// The channel to it.
    pub line: Line,
    /// The process's address, which is not reused before its end.
    pub lease: Option<Arc<Lease>>,
}

impl Jailed {
    /// The channel to the process.
    #[must_use]
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Returns when the process has ended.
    pub async fn ended(&self) {
        if let Some(process) = &self.process {
            process.ended().await;
        }
    }

    /// A future that is ready when the process has ended, also if this has been dropped.
    pub fn end_of_process(&self) -> impl Future<Output = ()> + use<> {
        let end = self.process.as_ref().map(Watched::end);
        async move {
            if let Some(end) = end {
                end.await;
            }
        }
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.known().is_ok_and(Process::has_ended)
    }

    /// Whether the kernel has killed the process because of its memory limit.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.known().is_ok_and(Process::is_out_of_memory)
    }

    /// Whether the process was killed for no reason of its own: by the kernel, because the host had
    /// no memory left, or by the operator.
    pub async fn was_killed(&self) -> bool {
        let Some(process) = &self.process else {
            return false;
        };
        let ended = tokio::time::timeout(LAST_BREATH, process.ended()).await;
        let process = process.process();
        ended.is_ok() && process.ended_by() == Some(libc::SIGKILL) && !process.is_out_of_memory()
    }

    /// The violation of its jail that ended the process, if one did. It is logged with the name
    /// `process_name`, and counted. `reported` is the report of the process itself.
    pub async fn violation(
        &self,
        process_name: &str,
        reported: Option<Violation>,
    ) -> Option<Violation> {
        let process = self.process.as_ref()?;
        let ended = tokio::time::timeout(LAST_BREATH, process.ended());
        ended.await.ok()?;
        self.violations
            .find(process_name, process.process(), reported)
    }

    /// The process's number and start time.
    ///
    /// # Errors
    /// The process is gone.
    pub fn identity(&self) -> io::Result<(i32, u64)> {
        let process = self.known()?;
        Ok((process.pid(), process.start_time()?))
    }

    /// Processor time that the process has used so far.
    ///
    /// # Errors
    /// The process is gone.
    pub fn processor_time(&self) -> io::Result<Duration> {
        self.known()?.processor_time()
    }

    fn known(&self) -> io::Result<&Process> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        Ok(self.process.as_ref().ok_or_else(gone)?.process())
    }

    /// Limits a VMM, if possible, to the resources of a tenant's VM with `memory` bytes, and to the
    /// tenant's cores. `weight` is the tenant's share of the processors.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn limit(&self, tenant: &str, weight: u32, memory: u64) -> io::Result<()> {
        self.known()?.limit(tenant, weight, memory)
    }

    /// Keeps an address until the process has ended.
    pub fn keep(&mut self, lease: Arc<Lease>) {
        self.lease = Some(lease);
    }

    /// Keeps volumes until the process has ended.
    pub fn keep_volumes(&mut self, volumes: Arc<volumes::Claim>) {
        self.volumes = Some(volumes);
    }

    /// Ends the process. When this returns, its volumes are free, if it has any; the process itself may
    /// still be ending otherwise.
    pub async fn end(mut self) {
        let Some(volumes) = self.volumes.take() else {
            return;
        };
        if let Some(Watched { process, end }) = self.process.take() {
            // The spawner ends it.
            drop(process);
            let _ = end.readable().await;
        }
        drop(volumes);
    }

    /// Releases the process, which from now on continues when this is dropped.
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
        let kept = (self.lease.take(), self.volumes.take());
        let Some(Watched { process, end }) = self.process.take() else {
            return;
        };
        // The spawner ends the process, and frees its user when the process is gone.
        drop(process);
        if let (None, None) = kept {
            return;
        }
        // The address and the volumes are free when the process is gone.
        self.runtime.spawn(async move {
            let _ = end.readable().await;
            drop(kept);
        });
    }
}
