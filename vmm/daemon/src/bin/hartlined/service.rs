//! The daemon as a service of systemd: log, readiness and watchdog (sd_notify(3)). Without systemd,
//! the log goes to standard error and the other functions have no effect.

use crate::escape::Escaped;
use anyhow::Context;
use hartline_daemon::Daemon;
use hartline_daemon::spawner::Spawner;
use sd_notify::NotifyState;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;
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

/// Notifies systemd that requests are served.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Notifies systemd that the daemon is ending.
pub fn stopping() {
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status("answering the last requests; machines go on"),
    ]);
}

/// Notifies systemd's watchdog periodically that the daemon works: tasks run, and the database and
/// the spawner answer. Never returns if there is a watchdog.
pub async fn keep_alive(daemon: Arc<Daemon>, spawner: Arc<Spawner>) {
    let Some(time) = sd_notify::watchdog_enabled() else {
        return;
    };
    // As sd_watchdog_enabled(3) recommends.
    let mut ticks = tokio::time::interval((time / 2).max(Duration::from_millis(1)));
    loop {
        ticks.tick().await;
        match check(&daemon, &spawner).await {
            Ok(()) => tell(&[NotifyState::Watchdog]),
            Err(error) => tracing::error!("the watchdog is not notified: {error:#}"),
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

fn tell(states: &[NotifyState<'_>]) {
    // Without systemd there is no receiver, which is no error here.
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("systemd could not be told: {error}");
    }
}
