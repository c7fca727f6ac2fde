//! `hartline volumes`, `volume create` and `volume rm`.

use super::{Remote, done, table, wait};
use anyhow::Context;
use hartline_cli::client::escape;
use hyper::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Arguments of `hartline volumes`.
#[derive(Debug, clap::Args)]
pub struct Volumes {
    #[command(flatten)]
    remote: Remote,
}

/// Prints the volumes.
///
/// # Errors
/// The daemon does not answer.
pub fn list(arguments: &Volumes) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let volumes = super::list(&mut daemon, "/v1/volumes", "").await?;
        if !arguments.remote.print_json(&volumes)? {
            let row = |volume| ["name", "size", "inodes"].map(|field| table::text(volume, field));
            let rows: Vec<_> = volumes.iter().map(row).collect();
            table::print(["NAME", "SIZE", "INODES"], &rows)?;
        }
        done()
    })
}

/// Subcommands of `hartline volume`.
#[derive(Debug, clap::Subcommand)]
pub enum Volume {
    /// Create a volume
    Create {
        #[command(flatten)]
        remote: Remote,

        /// Size limit of the contents, in MiB
        #[arg(long, value_name = "MIB", default_value_t = 1024)]
        size: u64,

        /// Limit of files, directories and links (default: as many as fit the size)
        #[arg(long, value_name = "N")]
        inodes: Option<u64>,

        /// Name of the volume
        name: String,
    },
    /// Delete volumes that no machine uses, with their contents
    Rm {
        #[command(flatten)]
        remote: Remote,

        /// Names of volumes
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// Makes or deletes volumes and prints their names.
///
/// # Errors
/// The daemon refuses.
pub fn volume(command: &Volume) -> anyhow::Result<ExitCode> {
    wait(async {
        match command {
            Volume::Create {
                remote,
                size,
                inodes,
                name,
            } => {
                let size = size.checked_mul(1 << 20);
                let size = size.context("--size: too large")?;
                let mut request = json!({ "name": name, "size": size });
                if let Some(inodes) = inodes {
                    request["inodes"] = (*inodes).into();
                }
                let mut daemon = remote.connect().await?;
                let path = "/v1/volumes";
                let made: Value = daemon.json(Method::POST, path, Some(&request)).await?;
                if !remote.print_json(&made)? {
                    println!("{name}");
                }
            }
            Volume::Rm { remote, names } => {
                let mut daemon = remote.connect().await?;
                for name in names {
                    let path = format!("/v1/volumes/{}", escape(name));
                    let deleted = daemon.json::<Value>(Method::DELETE, &path, None).await;
                    deleted.with_context(|| name.clone())?;
                    println!("{name}");
                }
            }
        }
        done()
    })
}
