//! Commands that talk to the daemon.

mod bench;
mod machines;
mod programs;
mod table;

pub use bench::Arguments as BenchArguments;
pub use bench::main as bench;
pub use machines::{Create, Logs, Named, Ps, create, kill, logs, ps, rm, start, stop};
pub use programs::{Programs, Push, list as programs, push};

use hartline_vmm::client::{ClientError, Connection, Host};
use std::future::Future;
use std::io::{self, Write};
use std::process::ExitCode;

/// Where the daemon is, and how to print what it says.
#[derive(Debug, Clone, clap::Args)]
pub struct Remote {
    /// Where hartlined listens
    #[arg(
        long,
        value_name = "unix://PATH|http://ADDRESS:PORT",
        env = "HARTLINE_HOST",
        default_value = "unix:///run/hartline/hartlined.sock"
    )]
    host: Host,

    /// API key; not needed by root over the unix socket
    #[arg(long, value_name = "KEY", env = "HARTLINE_KEY", hide_env_values = true)]
    key: Option<String>,

    /// How to print
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Values of `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// As the daemon answered
    Json,
}

impl Remote {
    async fn connect(&self) -> Result<Connection, ClientError> {
        Connection::open(&self.host, self.key.clone()).await
    }

    /// Prints an answer as it is, if that is wanted; whether it was.
    fn print_json(&self, answer: &serde_json::Value) -> anyhow::Result<bool> {
        if self.output == Format::Json {
            writeln!(io::stdout(), "{}", serde_json::to_string_pretty(answer)?)?;
        }
        Ok(self.output == Format::Json)
    }
}

/// Runs a command that waits for the daemon.
fn wait<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(command)
}

/// The end of a command that did what it should.
fn done() -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
