//! `hartline secrets`, `secret set` and `secret rm`, and the option `--secret`.

use super::{Remote, done, table, wait};
use anyhow::{Context, bail};
use hartline_cli::client::{escape, full};
use hyper::Method;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Longest contents of a secret, bytes.
const MAX_SECRET: u64 = 64 << 10;

/// Arguments of `hartline secrets`.
#[derive(Debug, clap::Args)]
pub struct Secrets {
    #[command(flatten)]
    remote: Remote,
}

/// Prints the secrets, without their contents.
///
/// # Errors
/// The daemon does not answer.
pub fn list(arguments: &Secrets) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let secrets = super::list(&mut daemon, "/v1/secrets", "").await?;
        if !arguments.remote.print_json(&secrets)? {
            let rows: Vec<_> = secrets
                .iter()
                .map(|secret| [table::text(secret, "name")])
                .collect();
            table::print(["NAME"], &rows)?;
        }
        done()
    })
}

/// Subcommands of `hartline secret`.
#[derive(Debug, clap::Subcommand)]
pub enum Secret {
    /// Create or change a secret: standard input, or a file, is its contents
    Set {
        #[command(flatten)]
        remote: Remote,

        /// File with the contents, instead of standard input
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,

        /// Name of the secret
        name: String,
    },
    /// Delete secrets that no machine uses
    Rm {
        #[command(flatten)]
        remote: Remote,

        /// Names of secrets
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// Sets or deletes secrets and prints their names.
///
/// # Errors
/// The contents cannot be read, or the daemon refuses.
pub fn secret(command: &Secret) -> anyhow::Result<ExitCode> {
    wait(async {
        match command {
            Secret::Set { remote, file, name } => {
                let contents = read(file.as_deref())?;
                let mut daemon = remote.connect().await?;
                let path = format!("/v1/secrets/{}", escape(name));
                let kind = Some("application/octet-stream");
                daemon
                    .send(Method::PUT, &path, kind, full(contents))
                    .await?;
                println!("{name}");
            }
            Secret::Rm { remote, names } => {
                let mut daemon = remote.connect().await?;
                for name in names {
                    let path = format!("/v1/secrets/{}", escape(name));
                    let deleted = daemon.json::<Value>(Method::DELETE, &path, None).await;
                    deleted.with_context(|| name.clone())?;
                    println!("{name}");
                }
            }
        }
        done()
    })
}

/// The contents of a secret.
fn read(path: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let mut contents = Vec::new();
    let most = MAX_SECRET + 1;
    match path {
        Some(path) => File::open(path)
            .and_then(|file| file.take(most).read_to_end(&mut contents))
            .with_context(|| path.display().to_string())?,
        None => io::stdin().lock().take(most).read_to_end(&mut contents)?,
    };
    match contents.len() as u64 {
        0 => bail!("the secret is empty"),
        length if length > MAX_SECRET => bail!("a secret has at most {MAX_SECRET} bytes"),
        _ => Ok(contents),
    }
}

/// A use of a secret, in the API's form.
pub(super) fn used(text: &str) -> Result<Value, &'static str> {
    let form = "needs the form NAME, NAME,target=FILE or NAME,type=env,target=VARIABLE";
    let mut parts = text.split(',');
    let name = parts.next().filter(|name| !name.is_empty()).ok_or(form)?;
    let (mut is_variable, mut target) = (false, None);
    for part in parts {
        match part.split_once('=').ok_or(form)? {
            ("type", "env") => is_variable = true,
            ("type", "mount") => is_variable = false,
            ("target", text) if !text.is_empty() => target = Some(text),
            _ => return Err(form),
        }
    }
    let mut used = json!({ "secret": name });
    match (is_variable, target) {
        (true, target) => used["env"] = target.unwrap_or(name).into(),
        (false, Some(target)) => used["file"] = target.into(),
        (false, None) => {}
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_spelled_as_podman_does() {
        for (text, expected) in [
            ("key", json!({ "secret": "key" })),
            (
                "key,target=tls.pem",
                json!({ "secret": "key", "file": "tls.pem" }),
            ),
            ("key,type=mount", json!({ "secret": "key" })),
            ("key,type=env", json!({ "secret": "key", "env": "key" })),
            (
                "key,type=env,target=KEY",
                json!({ "secret": "key", "env": "KEY" }),
            ),
        ] {
            assert_eq!(used(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            ",type=env",
            "key,",
            "key,type",
            "key,type=x",
            "key,target=",
        ] {
            assert!(used(text).is_err(), "{text}");
        }
    }
}
