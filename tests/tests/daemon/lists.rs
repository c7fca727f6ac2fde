//! Lists and their filters, the stream of events, and the rate limit of keys.

use super::{await_state, check, start, start_with};
use hartline_tests::daemon::Daemon;
use hartline_tests::{Result, hartline};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::time::{Duration, Instant};

/// The longest wait for an event that has happened already.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the ids of the machines of a list.
fn ids(daemon: &Daemon, query: &str) -> Result<Vec<String>> {
    let list = daemon.request("GET", &format!("/v1/machines?{query}"), b"")?;
    let list = list.expect(200)?.json();
    let id = |machine: &Value| machine["id"].as_str().unwrap_or_default().to_owned();
    Ok(list.as_array().into_iter().flatten().map(id).collect())
}

pub fn lists() -> Result<()> {
    let (daemon, program) = start()?;
    let mut events = daemon.connect()?;
    events.write_all(b"GET /v1/events HTTP/1.1\r\nHost: test\r\n\r\n")?;
    let mut events = BufReader::new(events);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        events.read_line(&mut head)?;
    }
    let mut all = Vec::new();
    for (color, args) in [("red", "idle"), ("red", "exit"), ("blue", "exit")] {
        let body = json!({ "program": program, "args": [args], "start": true,
            "labels": { "color": color } });
        let made = daemon.request("POST", "/v1/machines", body.to_string().as_bytes())?;
        all.push(made.expect(201)?.text("id"));
    }
    let states = ["running", "exited", "exited"];
    for (id, state) in all.iter().zip(states) {
        await_state(&daemon, &format!("/v1/machines/{id}"), state)?;
    }
    let sorted = |numbers: &[usize]| {
        let mut ids: Vec<_> = numbers.iter().map(|&number| all[number].clone()).collect();
        ids.sort();
        ids
    };
    for (query, expected) in [
        ("limit=10", &[0, 1, 2][..]),
        ("label=color=red", &[0, 1]),
        ("state=exited", &[1, 2]),
        ("state=exited&label=color=red", &[1]),
        ("label=color=green", &[]),
    ] {
        let found = ids(&daemon, query)?;
        check(query, found == sorted(expected), &found)?;
    }
    // Page by page.
    let (mut pages, mut after) = (Vec::new(), String::new());
    while let [id] = &ids(&daemon, &format!("limit=1&after={after}"))?[..] {
        after.clone_from(id);
        pages.push(id.clone());
    }
    check("pages", pages == sorted(&[0, 1, 2]), &pages)?;
    // The stream of events reports each of them.
    let mut unheard: Vec<_> = all.iter().zip(states).collect();
    let start = Instant::now();
    while !unheard.is_empty() && start.elapsed() < PATIENCE {
        let mut line = String::new();
        events.read_line(&mut line)?;
        unheard.retain(|(id, state)| {
            !line.contains(id.as_str()) || !line.contains(&format!("\"state\":\"{state}\""))
        });
    }
    check("events", unheard.is_empty(), &unheard)
}

pub fn rate_limit() -> Result<()> {
    let (daemon, _) = start_with("pool = 1\nrequests_per_second = 1")?;
    let path = "/v1/tenants/default/keys";
    let made = daemon.request("POST", path, br#"{"scope": "read"}"#)?;
    let key = format!("Bearer {}", made.expect(201)?.text("key"));
    let ask = || daemon.request_with("GET", "/v1/machines", &[("Authorization", &key)], b"");
    // A burst may use the budget of ten seconds.
    let answers = (0..40).map(|_| ask()).collect::<Result<Vec<_>>>()?;
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    check("served", (10..40).contains(&served), &served)?;
    let last = answers.last().ok_or("no answer")?;
    let head = last.head.to_ascii_lowercase();
    let told = last.status == 429 && last.text("code") == "rate-limited";
    check("refused", told && head.contains("\r\nretry-after: "), last)
}

/// Ids may be given by unique begins, and `ps` prints lines that fit a terminal.
pub fn short_ids() -> Result<()> {
    let (daemon, program) = super::start()?;
    let own = format!("GET /v1/programs/{}", &program[..8]);
    let get = |path: &str| daemon.request("GET", path, b"");
    let found = get(&format!("/v1/programs/{}", &program[..8]))?;
    check(&own, found.text("id") == program, &found)?;
    let body = json!({ "program": &program[..12], "args": ["a long argument", "and another one"],
        "labels": { "app": "web" } });
    let mut ids = Vec::new();
    // Two of seventeen ids begin with the same digit.
    for _ in 0..17 {
        let made = daemon.request("POST", "/v1/machines", body.to_string().as_bytes())?;
        let made = made.expect(201)?;
        check(
            "its program",
            made.json()["spec"]["program"] == *program,
            &made,
        )?;
        ids.push(made.text("id"));
    }
    let begins_with = |begin: &str| ids.iter().filter(|id| id.starts_with(begin)).count();
    let digits = "0123456789abcdef".chars().map(String::from);
    let shared = { digits }
        .find(|digit| begins_with(digit) > 1)
        .ok_or("no digit")?;
    let refused = get(&format!("/v1/machines/{shared}"))?;
    check("several", refused.text("code") == "ambiguous-id", &refused)?;
    let first = &ids[0];
    let length = (1..32).find(|&length| begins_with(&first[..length]) == 1);
    let short = &first[..length.ok_or("no unique begin")?];
    let found = get(&format!("/v1/machines/{short}"))?;
    check("one", found.text("id") == *first, &found)?;
    let as_run = get(&format!("/v1/runs/{short}"))?;
    check("no run", as_run.status == 404, &as_run)?;
    let started = daemon.request("POST", &format!("/v1/machines/{short}/start"), b"")?;
    check("started", started.status == 200, &started)?;
    await_state(&daemon, &format!("/v1/machines/{first}"), "exited")?;

    let ps = |arguments: &[&str]| -> Result<String> {
        let mut command = Command::new(hartline::binary()?);
        let host = format!("unix://{}", daemon.socket().display());
        command.arg("ps").args(arguments).env("HARTLINE_HOST", host);
        let output = command.output()?;
        check("ps", output.status.success(), &output)?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let table = ps(&[])?;
    let fits = table.lines().all(|line| line.chars().count() <= 100);
    check("fits", fits && table.contains(&first[..12]), &table)?;
    let wide = ps(&["--wide"])?;
    let whole = wide.contains(first.as_str()) && wide.contains("a long argument and another one");
    check("wide", whole, &wide)?;
    let mut sorted = ids.clone();
    sorted.sort();
    let quiet = ps(&["--quiet"])?;
    check("quiet", quiet.lines().eq(&sorted), &quiet)?;
    let exited = ps(&[
        "-q",
        "--filter",
        "state=exited",
        "--filter",
        "label=app=web",
    ])?;
    check("filter", exited == format!("{first}\n"), &exited)?;
    let none = ps(&["-q", "--filter", "program=0", "--filter", "program=1"])?;
    check("no program", none.is_empty(), &none)?;
    let json: serde_json::Value = serde_json::from_str(&ps(&["--json"])?)?;
    check("JSON", json.as_array().map(Vec::len) == Some(17), &json)
}
