//! `hartline snapshots`, `snapshot create` and `snapshot rm`.

use super::{Remote, done, table, wait};
use anyhow::Context;
use hartline_cli::client::escape;
use hyper::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Arguments of `hartline snapshots`.
#[derive(Debug, clap::Args)]
pub struct Snapshots {
    #[command(flatten)]
    remote: Remote,
}

/// Prints the snapshots.
///
/// # Errors
/// The daemon does not answer.
pub fn list(arguments: &Snapshots) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let snapshots = super::list(&mut daemon, "/v1/snapshots", "").await?;
        if !arguments.remote.print_json(&snapshots)? {
            let fields = ["id", "name", "machine", "size"];
            let row = |snapshot| fields.map(|field| table::text(snapshot, field));
            let rows: Vec<_> = snapshots.iter().map(row).collect();
            table::print(["ID", "NAME", "MACHINE", "SIZE"], &rows)?;
        }
        done()
    })
}

/// Subcommands of `hartline snapshot`.
#[derive(Debug, clap::Subcommand)]
pub enum Snapshot {
    /// Make a snapshot of a running machine, which goes on. It has one vCPU and no volumes
    Create {
        #[command(flatten)]
        remote: Remote,

        /// Name of the snapshot, which may be given instead of its id: letters, digits, _, . and -,
        /// and not only the digits of ids
        #[arg(long)]
        name: Option<String>,

        /// Id or name of the machine
        machine: String,
    },
    /// Delete snapshots that no machine continues
    Rm {
        #[command(flatten)]
        remote: Remote,

        /// Ids or names of snapshots
        #[arg(required = true)]
        snapshots: Vec<String>,
    },
}

/// Makes a snapshot and prints its id, or deletes snapshots.
///
/// # Errors
/// The daemon refuses.
pub fn snapshot(command: &Snapshot) -> anyhow::Result<ExitCode> {
    wait(async {
        match command {
            Snapshot::Create {
                remote,
                name,
                machine,
            } => {
                let mut daemon = remote.connect().await?;
                let path = format!("/v1/machines/{}/snapshots", escape(machine));
                let request = json!({ "name": name });
                let made: Value = daemon.json(Method::POST, &path, Some(&request)).await?;
                if !remote.print_json(&made)? {
                    println!("{}", table::text(&made, "id"));
                }
            }
            Snapshot::Rm { remote, snapshots } => {
                let mut daemon = remote.connect().await?;
                for name in snapshots {
                    let path = format!("/v1/snapshots/{}", escape(name));
                    let deleted = daemon.json::<Value>(Method::DELETE, &path, None).await;
                    deleted.with_context(|| name.clone())?;
                    println!("{name}");
                }
            }
        }
        done()
    })
}
