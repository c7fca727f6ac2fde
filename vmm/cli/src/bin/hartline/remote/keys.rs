//! `hartline key`: a new API key.

use super::{Remote, done, table, wait};
use hartline_cli::client::escape;
use hyper::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Arguments of `hartline key`.
#[derive(Debug, clap::Args)]
pub struct Key {
    #[command(flatten)]
    remote: Remote,

    /// Tenant of the key
    #[arg(long, value_name = "NAME", default_value = "default")]
    tenant: String,

    /// Rights of the key: read; write, which includes running programs; admin, which includes
    /// tenants and keys
    #[arg(long, default_value = "write", value_parser = ["read", "write", "admin"])]
    scope: String,

    /// Label of the key
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
}

/// Makes an API key and prints it. The daemon does not show it again.
///
/// # Errors
/// The daemon refuses.
pub fn key(arguments: &Key) -> anyhow::Result<ExitCode> {
    wait(async {
        let path = format!("/v1/tenants/{}/keys", escape(&arguments.tenant));
        let request = json!({ "scope": arguments.scope, "label": arguments.label });
        let mut daemon = arguments.remote.connect().await?;
        let made: Value = daemon.json(Method::POST, &path, Some(&request)).await?;
        if !arguments.remote.print_json(&made)? {
            println!("{}", table::text(&made, "key"));
        }
        done()
    })
}
