//! `hartline tenants`, and `hartline tenant` with its subcommands.

use super::{Remote, done, table, wait};
use anyhow::{Context, bail};
use hartline_cli::client::{ClientError, Connection, escape};
use hyper::Method;
use serde_json::Value;
use std::process::ExitCode;

/// Arguments of `hartline tenants`.
#[derive(Debug, clap::Args)]
pub struct Tenants {
    #[command(flatten)]
    remote: Remote,
}

/// Prints the tenants with their quotas.
///
/// # Errors
/// The daemon refuses.
pub fn list(arguments: &Tenants) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let tenants: Vec<Value> = daemon.json(Method::GET, "/v1/tenants", None).await?;
        if !arguments.remote.print_json(&tenants)? {
            let row = |tenant: &Value| {
                let quota = tenant.get("quota").unwrap_or(&Value::Null);
                let [weight, machines, memory, queued, storage, inodes] =
                    Quota::FIELDS.map(|field| table::text(quota, field));
                let name = table::text(tenant, "name");
                [name, weight, machines, memory, queued, storage, inodes]
            };
            let rows: Vec<_> = tenants.iter().map(row).collect();
            let headings = [
                "NAME", "WEIGHT", "MACHINES", "MEMORY", "QUEUED", "STORAGE", "INODES",
            ];
            table::print(headings, &rows)?;
        }
        done()
    })
}

/// Subcommands of `hartline tenant`.
#[derive(Debug, clap::Subcommand)]
pub enum Tenant {
    /// Create a tenant
    Create {
        #[command(flatten)]
        remote: Remote,

        #[command(flatten)]
        quota: Quota,

        /// Name of the tenant: lower-case letters, digits and hyphens
        name: String,
    },
    /// Change the quota of a tenant
    Set {
        #[command(flatten)]
        remote: Remote,

        #[command(flatten)]
        quota: Quota,

        /// Name of the tenant
        name: String,
    },
    /// Delete tenants that have no machines, runs, programs and volumes, with their keys
    Rm {
        #[command(flatten)]
        remote: Remote,

        /// Names of tenants
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Show the resources that a tenant uses, and its quotas
    Show {
        #[command(flatten)]
        remote: Remote,

        /// Name of the tenant
        name: String,
    },
}

/// Limits of a tenant.
#[derive(Debug, clap::Args)]
pub struct Quota {
    /// Weight of the tenant's share of the CPUs, from 1 to 10000
    #[arg(long, value_name = "N")]
    weight: Option<u64>,

    /// Most machines and runs that run at once
    #[arg(long, value_name = "N")]
    max_machines: Option<u64>,

    /// Memory of running machines and runs: MiB, or with a suffix of K, M, G or T
    #[arg(long, value_name = "SIZE", value_parser = super::machines::size)]
    max_memory: Option<u64>,

    /// Most machines and runs that wait for the scheduler
    #[arg(long, value_name = "N")]
    max_queued: Option<u64>,

    /// Storage: MiB, or with a suffix of K, M, G or T
    #[arg(long, value_name = "SIZE", value_parser = super::machines::size)]
    max_storage: Option<u64>,

    /// Most files, directories and links on the host
    #[arg(long, value_name = "N")]
    max_inodes: Option<u64>,
}

impl Quota {
    /// Names of the fields in the API.
    const FIELDS: [&str; 6] = [
        "weight",
        "max_machines",
        "max_memory",
        "max_queued",
        "max_storage",
        "max_inodes",
    ];

    /// The fields that were given.
    fn given(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let values = [
            self.weight,
            self.max_machines,
            self.max_memory,
            self.max_queued,
            self.max_storage,
            self.max_inodes,
        ];
        let fields = Self::FIELDS.into_iter().zip(values);
        fields.filter_map(|(name, value)| Some((name, value?)))
    }
}

/// Creates, changes, deletes or shows tenants.
///
/// # Errors
/// The daemon refuses.
pub fn tenant(command: &Tenant) -> anyhow::Result<ExitCode> {
    wait(async {
        match command {
            Tenant::Create {
                remote,
                quota,
                name,
            } => put(remote, quota, name, true).await,
            Tenant::Set {
                remote,
                quota,
                name,
            } => put(remote, quota, name, false).await,
            Tenant::Rm { remote, names } => delete(remote, names).await,
            Tenant::Show { remote, name } => show(remote, name).await,
        }
    })
}

fn path(name: &str) -> String {
    format!("/v1/tenants/{}", escape(name))
}

/// The quota of a tenant; `None`: there is no such tenant.
async fn quota_of(daemon: &mut Connection, name: &str) -> Result<Option<Value>, ClientError> {
    match daemon.json::<Value>(Method::GET, &path(name), None).await {
        Ok(mut tenant) => Ok(tenant.get_mut("quota").map(Value::take)),
        Err(ClientError::Problem { status: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn put(remote: &Remote, quota: &Quota, name: &str, is_new: bool) -> anyhow::Result<ExitCode> {
    let mut daemon = remote.connect().await?;
    let mut request = match (quota_of(&mut daemon, name).await?, is_new) {
        (None, true) => Value::Object(serde_json::Map::new()),
        (Some(quota), false) => quota,
        (None, false) => bail!("{name}: there is no such tenant: use hartline tenant create"),
        (Some(_), true) => bail!("{name}: the tenant is there already: use hartline tenant set"),
    };
    for (field, value) in quota.given() {
        request[field] = value.into();
    }
    let made: Value = daemon
        .json(Method::PUT, &path(name), Some(&request))
        .await?;
    if !remote.print_json(&made)? {
        println!("{name}");
    }
    done()
}

async fn delete(remote: &Remote, names: &[String]) -> anyhow::Result<ExitCode> {
    let mut daemon = remote.connect().await?;
    for name in names {
        let path = path(name);
        let deleted = daemon.json::<Value>(Method::DELETE, &path, None).await;
        deleted.with_context(|| name.clone())?;
        println!("{name}");
    }
    done()
}

async fn show(remote: &Remote, name: &str) -> anyhow::Result<ExitCode> {
    let path = format!("{}/usage", path(name));
    let mut daemon = remote.connect().await?;
    let uses: Vec<Value> = daemon.json(Method::GET, &path, None).await?;
    if !remote.print_json(&uses)? {
        let row = |used| {
            let [resource, amount, limit, unit] =
                ["resource", "used", "limit", "unit"].map(|field| table::text(used, field));
            let limit = match limit.is_empty() {
                true => "-".to_owned(),
                false => limit,
            };
            [resource, amount, limit, unit]
        };
        let rows: Vec<_> = uses.iter().map(row).collect();
        table::print(["RESOURCE", "USED", "LIMIT", "UNIT"], &rows)?;
    }
    done()
}
