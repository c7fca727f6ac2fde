//! `hartline serve`: VMs of a snapshot that serve the connections to ports of the host, one at a time.

mod statistics;
mod visits;
mod warm_up;
mod worker;

use crate::run::{Forward, Protocol, StandardError, StatsFormat, parse_forward, parse_seconds};
use anyhow::{Context, ensure};
use hartline_cli::command_line::Mistake;
use hartline_embed::translation::Translation;
use hartline_vmm::SignalFd;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use statistics::Statistics;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use warm_up::WarmUp;
use worker::{Ready, Service};

/// Most VMs.
const MOST_WORKERS: u64 = 256;

/// Arguments of `hartline serve`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The snapshot of a server, whose VM has a network: hartline run -p … --snapshot DIR --snapshot-at listen
    #[arg(long, value_name = "DIR", required = true)]
    from: PathBuf,

    /// A port of the host whose connections the server gets (default ADDRESS: 127.0.0.1)
    #[arg(
        short = 'p',
        long = "publish",
        value_name = "[ADDRESS:]HOST:GUEST[/tcp]",
        value_parser = parse_forward,
        required = true
    )]
    ports: Vec<Forward>,

    /// Reset the VM after each connection, so that no connection finds what another one has left
    #[arg(long)]
    ephemeral: bool,

    /// Number of VMs, each of which serves one connection at a time (default: the number of processors)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_WORKERS))]
    workers: Option<u64>,

    /// End a connection after this many seconds, and reset its VM; 0: no limit
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_limit)]
    limit: Limit,

    /// Before the first connection, send the contents of FILE to the first port of the server in each VM, and wait until
    /// the server ends the connection. Later connections find a server that has worked once
    #[arg(long, value_name = "FILE")]
    warm_up: Option<PathBuf>,

    /// The time within which the server must wait for connections
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "60",
        value_parser = parse_seconds
    )]
    ready_within: Duration,

    /// Print statistics to standard error at the end, and when hartline receives SIGUSR1
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "table"
    )]
    stats: Option<StatsFormat>,
}

/// A time limit; `None`: there is none.
#[derive(Debug, Clone, Copy)]
struct Limit(Option<Duration>);

fn parse_limit(text: &str) -> anyhow::Result<Limit> {
    match text.parse() {
        Ok(0_f64) => Ok(Limit(None)),
        _ => parse_seconds(text).map(|limit| Limit(Some(limit))),
    }
}

/// Serves until `SIGTERM`, `SIGINT` or `SIGHUP`; the result is the exit code. After `SIGTERM`, the connections that there
/// are go on to their ends.
///
/// # Errors
/// The service cannot begin.
pub fn main(arguments: &Arguments) -> anyhow::Result<u8> {
    let udp = |forward: &&Forward| forward.protocol == Protocol::Udp;
    if let Some(forward) = arguments.ports.iter().find(udp) {
        let message = "a VM serves connections, and UDP has none";
        let error = anyhow::anyhow!("-p {}:{}/udp: {message}", forward.host, forward.guest);
        return Err(Mistake::from(error).into());
    }
    // Before any thread starts, because all threads must have them blocked.
    let signals = SignalFd::block(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1]);
    let signals = signals.context("signalfd")?;
    let listeners = arguments.ports.iter().map(listen);
    let listeners = listeners.collect::<anyhow::Result<Vec<_>>>()?;
    let snapshot = crate::run::open_snapshot(&arguments.from)?;
    ensure!(
        snapshot.has_network(),
        "-p: the snapshot has no network: write it with --net user"
    );
    let first = arguments.ports.first().map_or(0, |forward| forward.guest);
    let warm_up = arguments.warm_up.as_deref();
    let warm_up = warm_up.map(|path| WarmUp::read(path, first)).transpose()?;
    let service = Arc::new(Service {
        guest: crate::run::guest_of_snapshot(&snapshot)?,
        snapshot,
        translation: Arc::new(Translation::for_this_host(&[])?),
        report: Arc::new(StandardError),
        listeners,
        is_ephemeral: arguments.ephemeral,
        limit: arguments.limit.0,
        ready_within: arguments.ready_within,
        warm_up,
        visits: visits::Visits::default(),
        statistics: Statistics::default(),
    });
    let workers = arguments.workers.unwrap_or_else(processors);
    let code = serve(&service, &signals, workers, arguments);
    if let Some(format) = arguments.stats {
        service.statistics.print(format)?;
    }
    code
}

/// Listens at the port of the host. Result: also the guest's port.
fn listen(forward: &Forward) -> anyhow::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind(forward.host);
    let listener = listener.with_context(|| format!("-p: cannot listen at {}", forward.host))?;
    Ok((listener, forward.guest))
}

fn processors() -> u64 {
    let number = thread::available_parallelism().map_or(1, usize::from);
    u64::try_from(number).unwrap_or(1).min(MOST_WORKERS)
}

/// Runs the workers until a signal ends the service.
fn serve(
    service: &Arc<Service>,
    signals: &SignalFd,
    workers: u64,
    arguments: &Arguments,
) -> anyhow::Result<u8> {
    let (tell, ready) = mpsc::channel();
    let mut threads = Vec::new();
    for number in 0..workers {
        let (service, ready) = (Arc::clone(service), Ready::new(tell.clone()));
        let thread = thread::Builder::new()
            .name(format!("worker{number}"))
            .spawn(move || service.work(ready));
        threads.push(thread.context("the thread of a worker")?);
    }
    drop(tell);
    let announce = move || -> anyhow::Result<()> {
        for result in ready {
            result?;
        }
        Ok(())
    };
    // The signals are read meanwhile.
    let announced = thread::Builder::new()
        .name("ready".into())
        .spawn(announce)
        .context("a thread")?;
    let mut announced = Some(announced);
    loop {
        if let Some(thread) = announced.take_if(|thread| thread.is_finished()) {
            let result = thread.join();
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            say_ready(workers, arguments);
        }
        let looks = announced.is_some().then_some(LOOK);
        match next_signal(signals, looks)? {
            None => {}
            Some(libc::SIGUSR1) => {
                let format = arguments.stats.unwrap_or(StatsFormat::Table);
                service.statistics.print(format)?;
            }
            // Before, there are no connections to wait for.
            Some(libc::SIGTERM) if announced.is_none() => {
                service.visits.close();
                // A second signal does not wait.
                let finish = move || threads.into_iter().for_each(|thread| drop(thread.join()));
                let finish = thread::spawn(finish);
                while !finish.is_finished() {
                    if let Some(signal) = next_signal(signals, Some(LOOK))? {
                        return Ok(ended_by(signal));
                    }
                }
                return Ok(0);
            }
            Some(signal) => return Ok(ended_by(signal)),
        }
    }
}

/// Interval at which the main thread looks for what no signal tells it.
const LOOK: Duration = Duration::from_millis(20);

/// The exit code of a process that a signal ended.
fn ended_by(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

fn say_ready(workers: u64, arguments: &Arguments) {
    let ports = arguments
        .ports
        .iter()
        .map(|forward| forward.host.to_string());
    let ports = ports.collect::<Vec<_>>().join(", ");
    let vms = if workers == 1 { "VM" } else { "VMs" };
    crate::say(&format!("serving {ports} with {workers} {vms}"));
}

/// Waits for the next signal, for at most `limit` if one is given.
fn next_signal(signals: &SignalFd, limit: Option<Duration>) -> anyhow::Result<Option<i32>> {
    let limit = limit.map(TryInto::try_into).transpose()?;
    let mut entries = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    match poll(&mut entries, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(signals.next()),
        Err(error) => Err(error).context("poll"),
    }
}
