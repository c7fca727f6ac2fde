//! Commands that talk to the daemon.

mod attach;
mod core;
mod cp;
mod debugger;
mod detach;
mod events;
mod exec;
mod keys;
mod logs;
mod machines;
mod programs;
mod ps;
mod runs;
mod secrets;
mod session;
mod snapshots;
mod table;
mod tenants;
mod terminal;
mod top;
mod volumes;
mod webhooks;

use self::core::{Core, core};
use attach::{Attach, attach};
use cp::{Cp, cp};
use events::{Events, events};
use exec::{Exec, exec};
use hartline_cli::client::{self, ClientError, Connection, Host, Target};
use keys::{Key, key};
use logs::{Logs, logs};
use machines::{Create, Named, create, kill, pause, resume, rm, start, stop, suspend, wait_for};
use programs::{Program, Programs, Push, list as programs, program, push};
use ps::{Ps, ps, runs};
use runs::{Submit, submit};
use secrets::{Secret, Secrets, list as secrets, secret};
use serde::Serialize;
use serde_json::Value;
use snapshots::{Snapshot, Snapshots, list as snapshots, snapshot};
use std::future::Future;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tenants::{Tenant, Tenants, list as tenants, tenant};
use top::{Top, top};
use volumes::{Volume, Volumes, list as volumes, volume};
use webhooks::{Deliveries, list as deliveries};

/// Most entries of one page of a list.
const PAGE: usize = 1000;

/// Commands that talk to the daemon.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Upload a program to the daemon
    Push(Push),
    /// List the daemon's programs
    Programs(Programs),
    /// Delete programs
    #[command(subcommand)]
    Program(Program),
    /// List the daemon's machines
    Ps(Ps),
    /// List the runs that the daemon keeps
    Runs(Ps),
    /// Create a machine
    Create(Box<Create>),
    /// Start machines; suspended ones go on where they stopped
    Start(Named),
    /// Stop machines: ask their programs to end
    Stop(Named),
    /// Kill machines: end them at once
    Kill(Named),
    /// Pause machines: they get no CPU time
    Pause(Named),
    /// Resume paused machines
    Resume(Named),
    /// Suspend machines: their memory is on the disk until start lets them go on
    Suspend(Named),
    /// Wait until machines have ended, and print their exit codes
    Wait(Named),
    /// Delete machines that have ended
    Rm(Named),
    /// Print the output of a machine
    Logs(Logs),
    /// Print state changes of machines and runs, as they happen
    Events(Events),
    /// Show the resources of running machines continuously
    Top(Top),
    /// Run a program on the daemon and print its output; the daemon keeps nothing
    Submit(Box<Submit>),
    /// Create an API key
    Key(Key),
    /// List the tenants
    Tenants(Tenants),
    /// Create, change, delete or show tenants
    #[command(subcommand)]
    Tenant(Tenant),
    /// List the daemon's volumes
    Volumes(Volumes),
    /// Create or delete volumes
    #[command(subcommand)]
    Volume(Volume),
    /// List the tenant's secrets
    Secrets(Secrets),
    /// Set or delete secrets
    #[command(subcommand)]
    Secret(Secret),
    /// List the webhooks that wait for their receivers
    Deliveries(Deliveries),
    /// List the daemon's snapshots of machines
    Snapshots(Snapshots),
    /// Make or delete snapshots of machines
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Attach to a machine's standard input and output, or a debugger to its processes
    Attach(Attach),
    /// Run a command in a running machine
    Exec(Exec),
    /// Copy the core dump of a machine to a file
    Core(Core),
    /// Copy files between this computer and a running machine, or a volume of any machine
    Cp(Cp),
}

/// Runs a command.
///
/// # Errors
/// There is no daemon, or it refuses the request.
pub fn main(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Push(arguments) => push(arguments),
        Command::Programs(arguments) => programs(arguments),
        Command::Program(command) => program(command),
        Command::Ps(arguments) => ps(arguments),
        Command::Runs(arguments) => runs(arguments),
        Command::Create(arguments) => create(arguments),
        Command::Start(arguments) => start(arguments),
        Command::Stop(arguments) => stop(arguments),
        Command::Kill(arguments) => kill(arguments),
        Command::Pause(arguments) => pause(arguments),
        Command::Resume(arguments) => resume(arguments),
        Command::Suspend(arguments) => suspend(arguments),
        Command::Wait(arguments) => wait_for(arguments),
        Command::Rm(arguments) => rm(arguments),
        Command::Logs(arguments) => logs(arguments),
        Command::Events(arguments) => events(arguments),
        Command::Top(arguments) => top(arguments),
        Command::Submit(arguments) => submit(arguments),
        Command::Key(arguments) => key(arguments),
        Command::Tenants(arguments) => tenants(arguments),
        Command::Tenant(command) => tenant(command),
        Command::Volumes(arguments) => volumes(arguments),
        Command::Secrets(arguments) => secrets(arguments),
        Command::Secret(command) => secret(command),
        Command::Volume(command) => volume(command),
        Command::Deliveries(arguments) => deliveries(arguments),
        Command::Snapshots(arguments) => snapshots(arguments),
        Command::Snapshot(command) => snapshot(command),
        Command::Attach(arguments) => attach(arguments),
        Command::Exec(arguments) => exec(arguments),
        Command::Core(arguments) => core(arguments),
        Command::Cp(arguments) => cp(arguments),
    }
}

/// The daemon's address, and the output format.
#[derive(Debug, Clone, clap::Args)]
pub struct Remote {
    /// Address on which hartlined listens
    #[arg(
        long,
        value_name = "unix://PATH|http://ADDRESS:PORT|https://NAME:PORT",
        env = "HARTLINE_HOST",
        default_value = "unix:///run/hartline/hartlined.sock"
    )]
    host: Host,

    /// API key; root needs none over the Unix socket
    #[arg(long, value_name = "KEY", env = "HARTLINE_KEY", hide_env_values = true)]
    key: Option<String>,

    /// Certificates to trust, a PEM file
    #[arg(long, value_name = "FILE", env = "HARTLINE_CA", default_value = client::DEFAULT_CA)]
    ca: PathBuf,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Values of `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Human-readable text
    Table,
    /// JSON, as the daemon answers
    Json,
}

impl Remote {
    async fn connect(&self) -> Result<Connection, ClientError> {
        Connection::open(&self.target()).await
    }

    fn target(&self) -> Target {
        Target {
            host: self.host.clone(),
            key: self.key.clone(),
            ca: self.ca.clone(),
        }
    }

    fn is_json(&self) -> bool {
        self.output == Format::Json
    }

    /// Prints an answer as JSON if that format is selected. Result: whether it is.
    fn print_json(&self, answer: &impl Serialize) -> anyhow::Result<bool> {
        if self.is_json() {
            writeln!(io::stdout(), "{}", serde_json::to_string_pretty(answer)?)?;
        }
        Ok(self.is_json())
    }
}

/// All entries of a list; `filter` is a part of the query.
async fn list(
    daemon: &mut Connection,
    path: &str,
    filter: &str,
) -> Result<Vec<Value>, ClientError> {
    let path = format!("{path}?limit={PAGE}&{filter}");
    daemon.pages(path.trim_end_matches('&')).await
}

/// Runs a command that waits for the daemon.
fn wait<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(command)
}

/// The result of a successful command.
fn done() -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
