//! The daemon.

mod escape;
mod service;

use anyhow::Context;
use clap::Parser;
use hartline_vmm::daemon::Daemon;
use hartline_vmm::daemon::config::Config;
use hartline_vmm::daemon::server::Listeners;
use hartline_vmm::{jailed, report};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The first argument of a process that the daemon started to lock it in.
const JAILED: &str = "jailed";

/// Runs riscv64 programs of many tenants, each in a jailed virtual machine
#[derive(Debug, Parser)]
#[command(name = "hartlined", version)]
struct Arguments {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where to keep the database, uploads, translations and logs
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Unix socket to listen at
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// TCP address to listen at (without TLS a loopback one), for instance 127.0.0.1:8720
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, first, rest @ ..] = &arguments[..]
        && first == JAILED
    {
        return match jailed::main(rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.into()),
        };
    }
    let arguments = Arguments::parse();
    service::start_log();
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("hartlined: {error:#}");
    ExitCode::from(report::FAILURE)
}

fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let mut config = match &arguments.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    if let Some(directory) = arguments.data_dir {
        config.data_dir = directory;
    }
    if let Some(socket) = arguments.socket {
        config.socket = socket;
    }
    config.listen = arguments.listen.or(config.listen);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime")?;
    runtime.block_on(async {
        let daemon = Daemon::start(config)?;
        let config = &daemon.config;
        let listeners = Listeners::open(config).await?;
        tracing::info!(
            socket = %config.socket.display(),
            tcp = listeners.address().map(|address| address.to_string()),
            "ready"
        );
        let guard = tokio::spawn(service::keep_alive(Arc::clone(&daemon)));
        service::ready("serving requests");
        let (stop, stopped) = watch::channel(false);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let ended = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping; machines go on");
            service::stopping();
            daemon.scheduler.drain();
            stop.send_replace(true);
        };
        tokio::join!(listeners.serve(&daemon, stopped), ended);
        guard.abort();
        anyhow::Ok(())
    })
}
