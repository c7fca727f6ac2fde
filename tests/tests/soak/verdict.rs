//! Whether everything that was acknowledged has its right end.

use super::clients::{Acknowledged, Expected};
use super::harm::Harm;
use hartline_tests::Result;
use hartline_tests::daemon::{Client, Daemon, until};
use serde_json::Value;
use std::collections::BTreeSet;

/// Part of the message of a program whose VMM was killed.
pub const KILLED: &str = "was killed";
/// Parts of messages of programs for which the disk had no room.
const FULL: [&str; 2] = ["No space left", "disk is full"];

/// The end of an object.
enum End {
    /// The right one.
    Right,
    /// Its VMM was killed.
    Killed,
    /// The disk was full.
    NoRoom,
    /// None of these.
    Wrong(String),
}

/// Waits for all ends, and judges them. Result: their numbers, as text.
///
/// # Errors
/// An end, or an answer, is wrong; an object is missing, or there twice.
pub fn judge(daemon: &Daemon, acknowledged: Acknowledged, harm: &Harm) -> Result<String> {
    let client = daemon.client();
    let Acknowledged { objects, mut wrong } = acknowledged;
    let listed = ended(&client).map_err(|error| format!("{error:?}, {}", daemon.log()))?;
    let known: BTreeSet<&String> = objects.keys().collect();
    let unknown = listed.iter().filter(|path| !known.contains(path));
    wrong.extend(unknown.map(|path| format!("{path}: nobody asked for it")));
    let (mut right, mut killed, mut no_room) = (0, 0, 0);
    for (path, expected) in &objects {
        match end(&client, path, expected, harm)? {
            End::Right => right += 1,
            End::Killed => killed += 1,
            End::NoRoom => no_room += 1,
            End::Wrong(what) => wrong.push(what),
        }
    }
    if killed > harm.vmms {
        wrong.push(format!(
            "{killed} programs whose VMM was killed, of {}",
            harm.vmms
        ));
    }
    let told = format!(
        "{} acknowledged: {right} right, {killed} whose VMM was killed, {no_room} without room",
        objects.len()
    );
    match wrong.is_empty() && right > 0 {
        true => Ok(told),
        false => Err(format!("{told}; wrong:\n{}\n{}", wrong.join("\n"), daemon.log()).into()),
    }
}

/// The paths of all objects, once all have ended.
fn ended(client: &Client) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for kind in ["/v1/runs", "/v1/machines"] {
        let mut after = String::new();
        loop {
            let path = format!("{kind}?limit=1000{after}");
            let page = client.request("GET", &path, None, b"")?.expect(200)?.json();
            let ids: Vec<String> = page
                .as_array()
                .into_iter()
                .flatten()
                .map(|entry| entry["id"].as_str().unwrap_or_default().to_owned())
                .collect();
            let Some(last) = ids.last() else { break };
            after = format!("&after={last}");
            all.extend(ids.iter().map(|id| format!("{kind}/{id}")));
        }
    }
    for path in &all {
        let is_over = || {
            let shown = client.request("GET", path, None, b"");
            shown.is_ok_and(|shown| ["exited", "failed"].contains(&&*shown.text("state")))
        };
        until(is_over).map_err(|_| format!("{path} has no end"))?;
    }
    Ok(all)
}

/// Judges the end of an object.
fn end(client: &Client, path: &str, expected: &Expected, harm: &Harm) -> Result<End> {
    let answer = client.request("GET", path, None, b"")?;
    if answer.status != 200 {
        return Ok(End::Wrong(format!("{path}: lost, {}", answer.status)));
    }
    let shown = answer.json();
    let is_run = path.starts_with("/v1/runs");
    let result = if is_run { &shown["outcome"] } else { &shown };
    let output = match is_run {
        true => result["stdout"]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        false => {
            let log = client.request("GET", &format!("{path}/logs"), None, b"")?;
            String::from_utf8_lossy(&log.expect(200)?.body).into_owned()
        }
    };
    let message = shown["message"].as_str().unwrap_or_default();
    let was_full = was_full(&shown, harm);
    let has_code = shown["state"] == "exited" && result["exit_code"] == expected.code;
    Ok(match () {
        () if has_code && output == expected.output => End::Right,
        // What a program writes while the disk is full is lost.
        () if has_code && was_full && is_part(&output, &expected.output) => End::NoRoom,
        () if message.contains(KILLED) => End::Killed,
        () if was_full && FULL.iter().any(|part| message.contains(part)) => End::NoRoom,
        // What tells most comes first: the list of failures of CI has the begin of each.
        () => End::Wrong(format!(
            "{path}: {} {} {message:?}, {} expected; output {}; {}",
            shown["state"],
            result["exit_code"],
            expected.code,
            difference(&output, &expected.output),
            without_output(shown.clone()),
        )),
    })
}

/// Where an output is another than the expected one.
fn difference(output: &str, expected: &str) -> String {
    let same = output.bytes().zip(expected.bytes());
    let at = same.take_while(|(one, other)| one == other).count();
    let rest = |text: &str| -> String { text.chars().skip(at).take(20).collect() };
    match output == expected {
        true => "right".to_owned(),
        false => format!(
            "of {} bytes, {} expected, from byte {at} on {:?}, {:?} expected",
            output.len(),
            expected.len(),
            rest(output),
            rest(expected)
        ),
    }
}

/// Whether an output is the expected one without some pieces.
fn is_part(output: &str, expected: &str) -> bool {
    let mut rest = expected.bytes();
    output.bytes().all(|byte| rest.any(|other| other == byte))
}

/// Whether the disk was full while an object was there, and had not ended.
fn was_full(shown: &Value, harm: &Harm) -> bool {
    let time = |field: &str| shown[field].as_i64();
    let start = time("created_ms").unwrap_or(0);
    harm.was_full(start, time("ended_ms").unwrap_or(i64::MAX))
}

/// What the daemon shows of an object, without a long output.
fn without_output(mut shown: Value) -> Value {
    if let Some(output) = shown.pointer_mut("/outcome/stdout/text") {
        *output = "...".into();
    }
    shown
}
