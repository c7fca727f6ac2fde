//! `hartline deliveries`, and the option `--webhook`.

use super::{Remote, done, table, wait};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Arguments of `hartline deliveries`.
#[derive(Debug, clap::Args)]
pub struct Deliveries {
    #[command(flatten)]
    remote: Remote,
}

/// Prints the webhooks that wait for their receivers.
///
/// # Errors
/// The daemon does not answer.
pub fn list(arguments: &Deliveries) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let waiting = super::list(&mut daemon, "/v1/deliveries", "").await?;
        if !arguments.remote.print_json(&waiting)? {
            let fields = ["machine", "attempts", "url", "error"];
            let row = |delivery| fields.map(|field| table::text(delivery, field));
            let rows: Vec<_> = waiting.iter().map(row).collect();
            table::print(["MACHINE", "FAILED", "URL", "LAST ERROR"], &rows)?;
        }
        done()
    })
}

/// A webhook, in the API's form.
pub(super) fn webhook(text: &str) -> Result<Value, &'static str> {
    let form = "needs the form URL,secret=NAME";
    let (url, secret) = text.rsplit_once(",secret=").ok_or(form)?;
    match url.is_empty() || secret.is_empty() {
        true => Err(form),
        false => Ok(json!({ "url": url, "secret": secret })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_comes_last() {
        assert_eq!(
            webhook("https://a/?x=1,secret=2,secret=key"),
            Ok(json!({ "url": "https://a/?x=1,secret=2", "secret": "key" }))
        );
        for text in ["", "https://a/", ",secret=key", "https://a/,secret="] {
            assert!(webhook(text).is_err(), "{text}");
        }
    }
}
