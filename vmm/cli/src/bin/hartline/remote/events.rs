//! `hartline events`: state changes of machines, runs and snapshots, as they happen.

use super::{Remote, done, table, wait};
use serde_json::Value;
use std::io::{self, Write};
use std::process::ExitCode;
use time::OffsetDateTime;

/// Arguments of `hartline events`.
#[derive(Debug, clap::Args)]
pub struct Events {
    #[command(flatten)]
    remote: Remote,

    /// Stop after this many events
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
}

/// Prints the events until the daemon ends, a line for each: time, id and state, or JSON.
///
/// # Errors
/// The daemon does not answer, or standard output cannot be written.
pub fn events(arguments: &Events) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let mut events = daemon.events("/v1/events").await?;
        let mut number = 0;
        while arguments.count.is_none_or(|count| number < count)
            && let Some(event) = events.next().await?
        {
            if event.name == "missed" {
                let lost = &event.data;
                crate::say(&format!(
                    "{lost} events are lost: they came faster than they were read"
                ));
                continue;
            }
            match arguments.remote.is_json() {
                true => writeln!(io::stdout(), "{}", event.data)?,
                false => writeln!(
                    io::stdout(),
                    "{}",
                    line(&serde_json::from_str(&event.data)?)
                )?,
            }
            number += 1;
        }
        done()
    })
}

fn line(event: &Value) -> String {
    let text = |field| table::text(event, field);
    let time = event.get("time_ms").and_then(Value::as_i64).unwrap_or(0);
    let what = match event.get("snapshot") {
        None => text("machine"),
        Some(_) => format!("snapshot {}", text("snapshot")),
    };
    let reason = match text("reason") {
        reason if reason.is_empty() => reason,
        reason => format!(": {reason}"),
    };
    format!("{} {what} {}{reason}", stamp(time), text("state"))
}

/// A time in milliseconds since 1970, as RFC 3339 writes it.
fn stamp(time_ms: i64) -> String {
    let date = OffsetDateTime::from_unix_timestamp_nanos(i128::from(time_ms) * 1_000_000);
    let date = date.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = date.to_calendar_date();
    let (hour, minute, second, milli) = date.to_hms_milli();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_is_a_line() {
        let event =
            json!({ "machine": "ab", "state": "running", "time_ms": 1_769_860_800_007_i64 });
        assert_eq!(line(&event), "2026-01-31T12:00:00.007Z ab running");
        let event = json!({ "snapshot": "cd", "name": "warm", "machine": "ab", "state": "failed",
            "reason": "the disk\nis full", "time_ms": 1_769_860_800_007_i64 });
        let expected = "2026-01-31T12:00:00.007Z snapshot cd failed: the disk\\nis full";
        assert_eq!(line(&event), expected);
        assert_eq!(stamp(i64::MAX), "1970-01-01T00:00:00.000Z");
    }
}
