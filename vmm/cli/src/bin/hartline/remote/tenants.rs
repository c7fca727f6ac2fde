//! `hartline tenant show`.

use super::{Remote, done, table, wait};
use hartline_cli::client::escape;
use hyper::Method;
use serde_json::Value;
use std::process::ExitCode;

/// Subcommands of `hartline tenant`.
#[derive(Debug, clap::Subcommand)]
pub enum Tenant {
    /// Show the resources that a tenant uses, and its quotas
    Show {
        #[command(flatten)]
        remote: Remote,

        /// Name of the tenant
        name: String,
    },
}

/// Prints a tenant's use and limit of each resource.
///
/// # Errors
/// The daemon refuses.
pub fn tenant(command: &Tenant) -> anyhow::Result<ExitCode> {
    let Tenant::Show { remote, name } = command;
    wait(async {
        let path = format!("/v1/tenants/{}/usage", escape(name));
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
    })
}
