//! Jailed VMMs that have made a VM and wait for a program.

use super::process::{Jailed, Launcher};
use super::violations::reported_by;
use crate::jailed::protocol::FromVmm;
use crate::patience::within;
use hartline_jail::spawner::protocol::{Start, VolumeMount};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// VMMs that are started at the same time.
const STARTING: usize = 2;
/// The maximum time for a VMM to become ready.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause after a failed start.
const PAUSE: Duration = Duration::from_millis(500);
/// The pause after the end of a waiting VMM.
const BREATH: Duration = Duration::from_millis(100);

/// Keeps VMMs ready. Each is used once.
#[derive(Debug)]
pub struct Pool {
    /// A permit for each VMM, from its start until it is taken or has ended.
    slots: Arc<Semaphore>,
    ready: Arc<AtomicUsize>,
    requests: mpsc::UnboundedSender<Request>,
    /// The VMM that has waited longest for the lock takes the next request.
    waiting: Arc<Mutex<mpsc::UnboundedReceiver<Request>>>,
    /// Number of VMMs that are started at a time.
    starting: usize,
}

/// A request for a VMM.
type Request = oneshot::Sender<Jailed>;

impl Pool {
    /// A pool of `size` VMMs, at least one. It is empty before [`fill`](Self::fill).
    #[must_use]
    pub fn new(size: usize) -> Self {
        let size = size.max(1);
        let (requests, waiting) = mpsc::unbounded_channel();
        Self {
            slots: Arc::new(Semaphore::new(size)),
            ready: Arc::default(),
            requests,
            waiting: Arc::new(Mutex::new(waiting)),
            starting: STARTING.min(size),
        }
    }

    /// Keeps VMMs ready from now on.
    pub fn fill(&self, launcher: &Arc<Launcher>) {
        for _ in 0..self.starting {
            let filler = Filler {
                launcher: Arc::clone(launcher),
                slots: Arc::clone(&self.slots),
                ready: Arc::clone(&self.ready),
                waiting: Arc::clone(&self.waiting),
            };
            tokio::spawn(filler.run());
        }
    }

    /// Returns a ready VMM; waits until there is one.
    ///
    /// # Errors
    /// The daemon is being stopped.
    pub async fn take(&self) -> io::Result<Jailed> {
        let stopped = || io::Error::other("no VMMs are started any more");
        loop {
            let (request, vmm) = oneshot::channel();
            self.requests.send(request).map_err(|_| stopped())?;
            let vmm = vmm.await.map_err(|_| stopped())?;
            // The task that keeps it may not have seen yet that it has died.
            if !vmm.has_ended() {
                return Ok(vmm);
            }
        }
    }

    /// The number of ready VMMs.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready.load(Ordering::Relaxed)
    }
}

/// Starts VMMs, one at a time, for the free slots of the pool.
#[derive(Debug)]
struct Filler {
    launcher: Arc<Launcher>,
    slots: Arc<Semaphore>,
    ready: Arc<AtomicUsize>,
    waiting: Arc<Mutex<mpsc::UnboundedReceiver<Request>>>,
}

impl Filler {
    async fn run(self) {
        // The semaphore is never closed.
        while let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await {
            match start(&self.launcher, Start::Vmm).await {
                Ok(vmm) => {
                    let ready = Ready::new(&self.ready);
                    let waiting = Arc::clone(&self.waiting);
                    tokio::spawn(keep(vmm, waiting, (slot, ready)));
                }
                Err(error) => {
                    tracing::error!("a VMM could not be started: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Counts a ready VMM until this is dropped.
#[derive(Debug)]
struct Ready(Arc<AtomicUsize>);

impl Ready {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps a ready VMM until a request takes it, or until it ends, which frees its slot at once.
async fn keep(
    mut vmm: Jailed,
    waiting: Arc<Mutex<mpsc::UnboundedReceiver<Request>>>,
    (slot, ready): (OwnedSemaphorePermit, Ready),
) {
    loop {
        let request = async { waiting.lock().await.recv().await };
        let request = tokio::select! {
            biased;
            () = vmm.ended() => {
                drop(ready);
                tracing::warn!("a VMM that waited for a program has ended and is replaced");
                // The violation is logged and counted.
                let _ = vmm.violation("a VMM that waited", None).await;
                drop(vmm);
                // VMMs that end by themselves must not use up a processor.
                tokio::time::sleep(BREATH).await;
                break;
            }
            request = request => request,
        };
        // The pool is gone.
        let Some(request) = request else { break };
        match request.send(vmm) {
            Ok(()) => break,
            // Nothing waits for this request any more.
            Err(unused) => vmm = unused,
        }
    }
    drop(slot);
}

/// The origin of a VMM.
#[derive(Debug)]
pub enum Supply<'a> {
    /// The pool, whose VMMs are ready.
    Pool(&'a Pool),
    /// A new process, because the VMM may use volumes.
    Started(&'a Arc<Launcher>, Vec<VolumeMount>),
}

impl Supply<'_> {
    /// Returns a ready VMM.
    ///
    /// # Errors
    /// The host refuses, or the daemon is being stopped.
    pub async fn take(&self) -> io::Result<Jailed> {
        match self {
            Self::Pool(pool) => pool.take().await,
            Self::Started(launcher, volumes) => {
                start(launcher, Start::VmmWithVolumes(volumes.clone())).await
            }
        }
    }
}

/// Starts a VMM and waits until it is ready.
async fn start(launcher: &Arc<Launcher>, order: Start) -> io::Result<Jailed> {
    let started = within(PATIENCE, start_unbounded(launcher, order));
    let late = || io::Error::other(format!("it was not ready in {PATIENCE:?} and was ended"));
    started.await.map_err(|_| late())?
}

async fn start_unbounded(launcher: &Arc<Launcher>, order: Start) -> io::Result<Jailed> {
    let vmm = launcher.start(order).await?;
    let message = match vmm.line().receive().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let violation = vmm
                .violation("a VMM that starts", reported_by(&error))
                .await;
            let early = || io::Error::other("it ended before it was ready");
            return Err(violation.map_or_else(early, io::Error::other));
        }
        message => message?.0,
    };
    match serde_json::from_slice(&message)? {
        FromVmm::Ready => Ok(vmm),
        FromVmm::Started | FromVmm::Ended(_) | FromVmm::Wants(_) => {
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}
