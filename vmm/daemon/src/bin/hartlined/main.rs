//! The daemon: the spawner, which is the started process, and the service, which the spawner
//! starts. As two services of systemd, systemd starts both.

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

mod escape;
mod man;
mod service;

use anyhow::{Context, ensure};
use clap::{CommandFactory, Parser, Subcommand};
use hartline_daemon::backup;
use hartline_daemon::config::Config;
use hartline_daemon::jailed;
use hartline_daemon::server::{Certificates, Listeners};
use hartline_daemon::spawner::Spawner;
use hartline_daemon::{Daemon, Given, store};
use hartline_jail::Channel;
use hartline_jail::spawner::{self, Hello, Settings, confine};
use hartline_vmm::report;
use service::Manager;
use std::future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The first argument of a jailed process.
const JAILED: &str = "jailed";

/// Run riscv64 programs of many tenants, each in a jailed virtual machine
#[derive(Debug, Parser)]
#[command(name = "hartlined", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    /// Configuration file
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,

    /// Directory of the database, uploads, translations and logs
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,

    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// TCP address to listen on, for example 127.0.0.1:8720; without TLS, a loopback address
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
}

/// Work besides serving requests, and the spawner as a separate service.
#[derive(Debug, Subcommand)]
enum Command {
    /// Do the privileged work for the next process that connects to the socket of systemd.socket(5)
    /// as the service
    Spawner,
    /// Write everything that the daemon keeps to a new tar file, while it runs or not
    Backup {
        /// The file
        file: PathBuf,
    },
    /// Make a data directory of a backup, before the daemon is started
    Restore {
        /// The file
        file: PathBuf,
    },
    /// Write the manual pages of the daemon and of its configuration file
    Man {
        /// Directory for the pages
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    report::abort_on_panic();
    let arguments: Vec<String> = std::env::args().collect();
    let done = match arguments.get(1..) {
        Some([first, rest @ ..]) if first == JAILED => {
            jailed::main(rest).map_err(Into::into).map(|()| 0)
        }
        Some([first, rest @ ..]) if first == spawner::ARGUMENT => {
            // Before another thread starts.
            let confined = confine::enter(rest).map_err(Into::into);
            confined.and_then(|channel| {
                service::start_log();
                serve(channel).map(|()| 0)
            })
        }
        Some([first, from, to]) if first == backup::SNAPSHOT => snapshot(from, to),
        _ => {
            let arguments = Arguments::parse();
            match &arguments.command {
                None => {
                    service::start_log();
                    spawn(arguments, None)
                }
                Some(Command::Spawner) => {
                    service::start_log();
                    // Before the configuration is read: if that fails, the service ends too.
                    service::connection().and_then(|channel| spawn(arguments, Some(channel)))
                }
                Some(Command::Backup { file }) => back_up(&arguments, file).map(|()| 0),
                Some(Command::Restore { file }) => restore(&arguments, file).map(|()| 0),
                Some(Command::Man { directory }) => {
                    let written = man::write(directory, Arguments::command());
                    let named = || directory.display().to_string();
                    written.map(|()| 0).with_context(named)
                }
            }
        }
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("hartlined: {error:#}");
    ExitCode::from(report::FAILURE)
}

/// Runs the spawner, for a service that has connected, or one that the spawner starts. Result: the
/// exit code of the service that the spawner has started.
fn spawn(arguments: Arguments, connected: Option<Channel>) -> anyhow::Result<u8> {
    let (settings, configuration) = configured(&arguments)?;
    let reload = move || configured(&arguments).map_err(|error| format!("{error:#}"));
    let reload = Box::new(reload);
    Ok(spawner::run(settings, configuration, reload, connected)?)
}

/// Makes a backup.
fn back_up(arguments: &Arguments, file: &Path) -> anyhow::Result<()> {
    let settings = of_root(arguments)?;
    let summary = backup::write(&settings.data_dir, settings.service(), file)?;
    tell(&summary, "saved to", file);
    Ok(())
}

/// Makes a data directory of a backup.
fn restore(arguments: &Arguments, file: &Path) -> anyhow::Result<()> {
    let settings = of_root(arguments)?;
    let summary = backup::restore(file, &settings.data_dir)?;
    tell(&summary, "restored from", file);
    Ok(())
}

/// The settings for a backup.
fn of_root(arguments: &Arguments) -> anyhow::Result<Settings> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "backups are made and restored by root: they have files of several users"
    );
    Ok(configured(arguments)?.0)
}

fn tell(summary: &backup::Summary, verb: &str, file: &Path) {
    println!(
        "{} programs, {} machines and runs, {} volumes {verb} {}",
        summary.programs,
        summary.machines,
        summary.volumes,
        file.display()
    );
}

/// Makes a snapshot of the database, as the user of the service.
fn snapshot(from: &str, to: &str) -> anyhow::Result<u8> {
    let objects = store::snapshot(Path::new(from), Path::new(to))?;
    println!("{}", serde_json::to_string(&objects)?);
    Ok(0)
}

/// Reads the configuration. Options of the command line count before the file. Result: the settings
/// of the spawner, and the configuration for the service.
fn configured(arguments: &Arguments) -> anyhow::Result<(Settings, String)> {
    let mut config = match &arguments.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    if let Some(directory) = &arguments.data_dir {
        config.data_dir.clone_from(directory);
    }
    if let Some(socket) = &arguments.socket {
        config.socket.clone_from(socket);
    }
    config.listen = arguments.listen.or(config.listen);
    config.check()?;
    let configuration = serde_json::to_string(&config).context("the configuration")?;
    Ok((config.for_spawner(), configuration))
}

/// Runs the service.
fn serve(channel: Channel) -> anyhow::Result<()> {
    let (message, descriptors) = channel.receive().context("the spawner")?;
    ensure!(
        !message.is_empty(),
        "the spawner has ended before it was ready: its own messages give the reason"
    );
    let hello: Hello = serde_json::from_slice(&message).context("the spawner's first message")?;
    let mut config: Config =
        serde_json::from_str(&hello.configuration).context("the configuration")?;
    config.data_dir.clone_from(&hello.data);
    let (given, tls) = Given::new(hello, descriptors)?;
    let spawner = Arc::new(Spawner::connect(channel, spawner_ended)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime")?;
    let manager = Manager::start().context("the thread for systemd")?;
    runtime.block_on(async {
        let daemon = Daemon::start(config, Arc::clone(&spawner), given)?;
        let config = daemon.config();
        // Before the sockets are open: from then on the spawner passes this signal on.
        let mut hangup = signal(SignalKind::hangup())?;
        let listeners = Listeners::open(&config, &spawner, tls)?;
        let certificates = listeners.certificates();
        tracing::info!(
            socket = %config.socket.display(),
            tcp = listeners.address().map(|address| address.to_string()),
            "ready"
        );
        manager.ready("serving requests");
        let (stop, stopped) = watch::channel(false);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let ended = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping; machines keep running");
            manager.stopping();
            daemon.scheduler.drain();
            stop.send_replace(true);
        };
        let reloads = async {
            while hangup.recv().await.is_some() {
                match reload(&daemon, &spawner, &certificates) {
                    Ok(()) => tracing::info!("the configuration was reloaded"),
                    Err(error) => tracing::error!("the configuration stays as it was: {error:#}"),
                }
            }
            future::pending::<()>().await;
        };
        let served = async { tokio::join!(listeners.serve(&daemon, stopped), ended) };
        tokio::select! {
            _ = served => {}
            () = reloads => {}
            () = manager.keep_alive(&daemon, &spawner) => {}
        }
        anyhow::Ok(())
    })?;
    manager.finish();
    Ok(())
}

/// Reads the configuration and the files for TLS again. After an error, nothing has changed.
fn reload(daemon: &Daemon, spawner: &Spawner, certificates: &Certificates) -> anyhow::Result<()> {
    let (configuration, tls) = spawner.reload()?;
    let config: Config = serde_json::from_str(&configuration).context("the configuration")?;
    let renewed = certificates.prepare(&config, tls)?;
    daemon.reload(config)?;
    certificates.renew(renewed);
    Ok(())
}

/// Ends the service: without the spawner no process can be started or ended.
fn spawner_ended() {
    eprintln!("hartlined: the spawner has ended");
    process::exit(report::FAILURE.into());
}
