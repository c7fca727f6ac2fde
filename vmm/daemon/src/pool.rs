//! Jailed VMMs that have made a VM and wait for a program.

use super::process::{Jailed, Launcher};
use super::violations::told_by;
use crate::jailed::protocol::FromVmm;
use hartline_jail::spawner::protocol::{Start, VolumeMount};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

/// VMMs that are started at the same time.
const STARTING: usize = 2;
/// The maximum time for a VMM to become ready.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause after a failed start.
const PAUSE: Duration = Duration::from_millis(500);

/// Keeps VMMs ready. Each is used once.
#[derive(Debug)]
pub struct Pool {
    ready: Mutex<mpsc::Receiver<Jailed>>,
    sender: mpsc::Sender<Jailed>,
    /// Number of VMMs that are started at a time.
    starting: usize,
}

impl Pool {
    /// A pool of `size` VMMs, at least one. It is empty before [`fill`](Self::fill).
    #[must_use]
    pub fn new(size: usize) -> Self {
        // Each filling task holds one more VMM.
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

    /// Returns a ready VMM; waits until there is one.
    ///
    /// # Errors
    /// The daemon is being stopped.
    pub async fn take(&self) -> io::Result<Jailed> {
        let mut ready = self.ready.lock().await;
        loop {
            let vmm = ready.recv().await;
            let vmm = vmm.ok_or_else(|| io::Error::other("no VMMs are started any more"))?;
            // The VMM may have been killed while it waited.
            if !vmm.has_ended() {
                return Ok(vmm);
            }
        }
    }

    /// The number of ready VMMs.
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
