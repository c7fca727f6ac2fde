//! VMMs that are locked in, with a VM made, waiting for something to run.

use super::process::{Jailed, Launcher};
use super::violations::told_by;
use crate::jailed::protocol::FromVmm;
use hartline_jail::spawner::protocol::{Start, VolumeMount};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

/// VMMs that are being started at the same time.
const STARTING: usize = 2;
/// How long a VMM may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait after a start that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// Keeps VMMs ready. Each is used once.
#[derive(Debug)]
pub struct Pool {
    ready: Mutex<mpsc::Receiver<Jailed>>,
    sender: mpsc::Sender<Jailed>,
    /// How many of them are being started at a time.
    starting: usize,
}

impl Pool {
    /// For `size` VMMs, at least one. There are none before [`fill`](Self::fill).
    #[must_use]
    pub fn new(size: usize) -> Self {
        // Each of those who fill it holds one more.
        let starting = STARTING.min(size.max(1));
        let (sender, ready) = mpsc::channel(size.saturating_sub(starting).max(1));
        let ready = Mutex::new(ready);
        Self {
            ready,
            sender,
            starting,
        }
    }

    /// Keeps VMMs ready from now on.
    pub fn fill(&self, launcher: &Arc<Launcher>) {
        for _ in 0..self.starting {
            tokio::spawn(fill(Arc::clone(launcher), self.sender.clone()));
        }
    }

    /// A VMM that is ready; waits until there is one.
    ///
    /// # Errors
    /// The daemon is being stopped.
    pub async fn take(&self) -> io::Result<Jailed> {
        let mut ready = self.ready.lock().await;
        loop {
            let vmm = ready.recv().await;
            let vmm = vmm.ok_or_else(|| io::Error::other("no VMMs are started any more"))?;
            // Somebody may have killed it while it waited.
            if !vmm.has_ended() {
                return Ok(vmm);
            }
        }
    }

    /// How many are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }
}

async fn fill(launcher: Arc<Launcher>, sender: mpsc::Sender<Jailed>) {
    loop {
        match start(&launcher, Start::Vmm).await {
            Ok(vmm) => {
                if sender.send(vmm).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::error!("a VMM could not be started: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Where a VMM comes from.
#[derive(Debug)]
pub enum Supply<'a> {
    /// It waits already.
    Pool(&'a Pool),
    /// It is started when it is wanted, since it may use volumes.
    Started(&'a Arc<Launcher>, Vec<VolumeMount>),
}

impl Supply<'_> {
    /// A VMM that is ready.
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

/// A VMM that is ready.
async fn start(launcher: &Arc<Launcher>, order: Start) -> io::Result<Jailed> {
    let started = tokio::time::timeout(PATIENCE, start_unbounded(launcher, order));
    let late = || io::Error::other(format!("it was not ready in {PATIENCE:?} and was ended"));
    started.await.map_err(|_| late())?
}

async fn start_unbounded(launcher: &Arc<Launcher>, order: Start) -> io::Result<Jailed> {
    let vmm = launcher.start(order).await?;
    let message = match vmm.line().receive().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let violation = vmm.violation("a VMM that starts", told_by(&error)).await;
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
