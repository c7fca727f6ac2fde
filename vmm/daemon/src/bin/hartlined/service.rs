//! The daemon as a service of systemd: log, readiness and watchdog (sd_notify(3)). Without systemd,
//! the log goes to standard error and the other functions have no effect.

use crate::escape::Escaped;
use anyhow::Context;
use hartline_daemon::Daemon;
use hartline_daemon::spawner::Spawner;
use hartline_jail::Channel;
use sd_notify::NotifyState;
use std::future;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;
use tokio::time::{self, MissedTickBehavior};
use tracing::{Level, Metadata};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Sends the log to the journal if standard error is connected to the journal, so that fields such
/// as the machine can be searched; otherwise to standard error.
pub fn start_log() {
    // The daemon has no spans; spans of its libraries are not logged.
    let wanted = |metadata: &Metadata<'_>| metadata.is_event() && *metadata.level() <= Level::INFO;
    let log = tracing_subscriber::registry().with(filter_fn(wanted));
    if is_journal()
        && let Ok(journal) = tracing_journald::layer()
    {
        let journal = journal.with_syslog_identifier("hartlined".to_owned());
        log.with(Escaped(journal)).init();
        return;
    }
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    log.with(Escaped(lines)).init();
}

/// Whether standard error is the stream that systemd connected to the journal
/// (systemd.exec(5), `JOURNAL_STREAM`).
fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let error = std::fs::metadata("/proc/self/fd/2");
    error.is_ok_and(|error| stream == format!("{}:{}", error.dev(), error.ino()))
}

/// Waits for the connection of the service to the socket that systemd has passed to this process
/// (sd_listen_fds(3)). Must run once.
///
/// # Errors
/// systemd has not passed one socket, or has passed one of another type.
pub fn connection() -> anyhow::Result<Channel> {
    let mut passed = sd_notify::listen_fds().context("LISTEN_FDS")?;
    let (Some(number), 0) = (passed.next(), passed.len()) else {
        anyhow::bail!(
            "the spawner needs one socket of systemd.socket(5), with ListenSequentialPacket="
        );
    };
    // SAFETY: systemd has passed the descriptor to this process, where nothing else owns it: it is
    // taken once.
    let listener = unsafe { OwnedFd::from_raw_fd(number) };
    // systemd keeps the socket, and starts the next spawner for the next connection.
    Channel::accept(listener.as_fd()).context("the socket for the service")
}

/// Notifications that may wait for systemd, which may be busy; further ones are dropped.
const WAITING: usize = 4;
/// Time that an ending daemon waits until systemd has taken its notifications.
const LAST: Duration = Duration::from_secs(2);

/// The connection to systemd. A thread sends the notifications, because sending waits for as long as
/// the queue of systemd's socket is full (unix(7)), and requests must not wait for that.
#[derive(Debug)]
pub struct Manager {
    states: SyncSender<Vec<NotifyState<'static>>>,
    /// Disconnected once all has been sent.
    sent: Receiver<()>,
}

impl Manager {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host starts no thread.
    pub fn start() -> std::io::Result<Self> {
        let (states, waiting) = mpsc::sync_channel::<Vec<NotifyState<'static>>>(WAITING);
        let (sending, sent) = mpsc::channel::<()>();
        let send = move || {
            let _sending = sending;
            for states in waiting {
                // Without systemd there is no receiver, which is no error here.
                if let Err(error) = sd_notify::notify(&states) {
                    tracing::warn!("systemd could not be notified: {error}");
                }
            }
        };
        thread::Builder::new()
            .name("sd_notify".to_owned())
            .spawn(send)?;
        Ok(Self { states, sent })
    }

    /// Notifies systemd that requests are served.
    pub fn ready(&self, status: &'static str) {
        self.notify(vec![NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Notifies systemd that the daemon is ending.
    pub fn stopping(&self) {
        self.notify(vec![
            NotifyState::Stopping,
            NotifyState::Status("answering the last requests; machines keep running"),
        ]);
    }

    /// Waits, not long, until systemd has taken all notifications.
    pub fn finish(self) {
        drop(self.states);
        // No message arrives: the thread has ended, or the time has passed.
        let _ = self.sent.recv_timeout(LAST);
    }

    /// Notifies systemd's watchdog periodically that the daemon works: tasks run, and the database
    /// and the spawner answer. Never returns.
    pub async fn keep_alive(&self, daemon: &Arc<Daemon>, spawner: &Spawner) {
        let Some(limit) = sd_notify::watchdog_enabled() else {
            return future::pending().await;
        };
        // As sd_watchdog_enabled(3) recommends.
        let mut ticks = time::interval((limit / 2).max(Duration::from_millis(1)));
        // After a long check, one notification is as good as all those that were due.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match check(daemon, spawner).await {
                Ok(()) => self.notify(vec![NotifyState::Watchdog]),
                Err(error) => tracing::error!("the watchdog is not notified: {error:#}"),
            }
        }
    }

    fn notify(&self, states: Vec<NotifyState<'static>>) {
        if self.states.try_send(states).is_err() {
            tracing::warn!("systemd takes no notifications: one is dropped");
        }
    }
}

/// Returns when database and spawner have answered.
async fn check(daemon: &Daemon, spawner: &Spawner) -> anyhow::Result<()> {
    let store = Arc::clone(&daemon.store);
    tokio::task::spawn_blocking(move || store.tenants())
        .await?
        .context("the database")?;
    spawner.ping().await.context("the spawner")
}
