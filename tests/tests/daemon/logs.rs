//! Logs of machines and runs: rotation, times, and the parts that clients ask for.

use super::kept::{location, submit};
use super::{await_state, check, machine, push, run};
use hartline_tests::daemon::{Answer, Daemon, until};
use hartline_tests::{Result, hartline};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Output, Stdio};

const LINE: &str = "all work and no play makes jack a dull boy\n";
/// The shortest `log_max_size`.
const SIZE: u64 = 131_072;
const FILES: u64 = 3;

/// Starts a daemon whose logs are short.
fn start() -> Result<(Daemon, String)> {
    let daemon = Daemon::start(&format!(
        "pool = 2\nlog_max_size = {SIZE}\nlog_max_files = {FILES}"
    ))?;
    let program = push(&daemon)?;
    Ok((daemon, program))
}

fn logs(daemon: &Daemon, machine: &str, query: &str) -> Result<Answer> {
    daemon.request("GET", &format!("{machine}/logs?{query}"), b"")
}

fn text(daemon: &Daemon, machine: &str, query: &str) -> Result<String> {
    let answer = logs(daemon, machine, query)?.expect(200)?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

fn client(daemon: &Daemon, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(hartline::binary()?);
    let host = format!("unix://{}", daemon.socket().display());
    command.args(arguments).env("HARTLINE_HOST", host);
    Ok(command)
}

fn output(daemon: &Daemon, arguments: &[&str]) -> Result<Output> {
    Ok(client(daemon, arguments)?.output()?)
}

fn id(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// A program that writes without end goes on. Its newest output is kept in files that rotate, clients
/// that follow it survive that, and the daemon holds none of it in memory.
pub fn rotation() -> Result<()> {
    let (daemon, program) = start()?;
    let flood = machine(&daemon, &program, &["flood"])?;
    // This reader never reads.
    let mut lazy = daemon.connect()?;
    let request = format!("GET {flood}/logs?follow=true HTTP/1.1\r\nHost: x\r\n\r\n");
    lazy.write_all(request.as_bytes())?;
    let directory = daemon.data().join("machines").join(id(&flood));
    let lengths = || {
        let names = ["stdout", "stdout.1", "stdout.2", "stdout.3"];
        names.map(|name| {
            fs::metadata(directory.join(name))
                .ok()
                .map(|file| file.len())
        })
    };
    // After a rotation, position 0 is gone.
    let start = || -> Result<u64> {
        let answer = logs(&daemon, &flood, "tail=1")?.expect(200)?;
        let whole = logs(&daemon, &flood, "")?.expect(200)?;
        check(
            "the last line",
            answer.body.len() <= whole.body.len(),
            &answer.head,
        )?;
        let line = whole
            .head
            .lines()
            .find_map(|line| line.strip_prefix("hartline-log-start: "));
        Ok(line.ok_or("no Hartline-Log-Start")?.parse()?)
    };
    until(|| start().is_ok_and(|start| start > 2 * FILES * SIZE))?;
    let lengths = lengths();
    let right = lengths[..3]
        .iter()
        .all(|length| length.is_some_and(|length| length <= SIZE));
    check("its files", right && lengths[3].is_none(), &lengths)?;
    let memory = super::faults::daemon_memory(&daemon)?;
    check("the daemon holds none of it", memory < 200 << 20, &memory)?;

    // One that follows gets more than all files hold.
    let mut follow = client(&daemon, &["logs", "--follow", "--tail", "1", id(&flood)])?
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = follow.stdout.take().ok_or("no output")?;
    let mut lines = BufReader::new(stdout).lines();
    let mut broken = 0;
    for _ in 0..4 * FILES * SIZE / LINE.len() as u64 {
        let line = lines.next().ok_or("the log has ended")??;
        broken += u64::from(line != LINE.trim_end());
    }
    // A client that is too slow misses some.
    check("lines", broken < 1000, &broken)?;
    follow.kill()?;
    follow.wait()?;

    let state = super::state(&daemon, &flood)?;
    check("it runs", state == "running", &state)?;
    daemon
        .request("POST", &format!("{flood}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &flood, "exited")?;
    let log = logs(&daemon, &flood, "")?.expect(200)?;
    let kept = log.body.len() as u64;
    check(
        "the newest is kept",
        (SIZE..FILES * SIZE).contains(&kept),
        &kept,
    )?;
    let mut lines = log.body.split_inclusive(|&byte| byte == b'\n').skip(1);
    let wrong = lines.find(|line| !LINE.as_bytes().starts_with(line));
    check("its lines are whole", wrong.is_none(), &wrong)?;
    // The client reports lost output, unless it asks for a part.
    let printed = output(&daemon, &["logs", id(&flood)])?;
    let told = String::from_utf8_lossy(&printed.stderr).into_owned();
    check("told", told.contains("bytes of the output are gone"), &told)?;
    let printed = output(&daemon, &["logs", "--tail", "2", id(&flood)])?;
    check("not told", printed.stderr.is_empty(), &printed.stderr)?;
    // Another start begins another log.
    daemon.configure("pool = 2\nlog_max_size = 262144\nlog_max_files = 1")?;
    daemon.hang_up();
    until(|| daemon.log().contains("log_max_files has changed"))?;
    daemon
        .request("POST", &format!("{flood}/start"), b"")?
        .expect(200)?;
    let length = |name| fs::metadata(directory.join(name)).map_or(0, |file| file.len());
    until(|| length("stdout") > SIZE)?;
    check("one file", !directory.join("stdout.1").exists(), &directory)?;
    let most = (0..50).map(|_| length("stdout")).max();
    check(
        "its limit",
        most.is_some_and(|most| most <= 2 * SIZE),
        &most,
    )?;
    let mut first = [0; 12];
    lazy.read_exact(&mut first)?;
    check("the lazy reader", first == *b"HTTP/1.1 200", &first)
}

/// Lines have times. Clients ask for lines since a time and for the last ones.
pub fn times() -> Result<()> {
    let (daemon, program) = start()?;
    let ticking = machine(&daemon, &program, &["tick"])?;
    let lines = |query: &str| -> Result<Vec<(String, String)>> {
        let text = text(&daemon, &ticking, &format!("timestamps=true&{query}"))?;
        let pairs = text.lines().map(|line| line.split_once(' '));
        let pairs: Option<Vec<_>> = pairs.collect();
        let pairs = pairs.ok_or_else(|| format!("a line has no time: {text}"))?;
        Ok(pairs
            .iter()
            .map(|(time, line)| (time.to_string(), line.to_string()))
            .collect())
    };
    until(|| lines("").is_ok_and(|lines| lines.len() >= 10))?;
    daemon
        .request("POST", &format!("{ticking}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &ticking, "exited")?;
    let all = lines("")?;
    let right = all.iter().all(|(time, line)| {
        time.len() == "2026-01-31T12:00:00.000000000Z".len()
            && time.ends_with('Z')
            && line == "tick"
    });
    check("lines", right, &all)?;
    // Two lines may arrive at once.
    let increases = all.windows(2).all(|pair| pair[0].0 <= pair[1].0);
    check("times", increases, &all)?;
    let from = |time: &str| {
        let first = all.iter().position(|line| line.0.as_str() >= time);
        &all[first.unwrap_or(all.len())..]
    };
    // The program rests for 50 ms.
    check("not one time", all[0].0[..23] != all[9].0[..23], &all)?;
    for (query, expected) in [
        (format!("since={}", all[4].0), from(&all[4].0)),
        (format!("since={}&tail=2", all[4].0), &all[all.len() - 2..]),
        (format!("since={}&tail=99999", all[9].0), from(&all[9].0)),
        ("since=1h".to_owned(), &all[..]),
        ("since=1.5".to_owned(), &all[..]),
        ("since=99999999999".to_owned(), &[]),
        ("tail=3".to_owned(), &all[all.len() - 3..]),
        ("tail=all".to_owned(), &all[..]),
        ("tail=0".to_owned(), &[]),
    ] {
        let found = lines(&query)?;
        check(&query, found == expected, &found)?;
    }
    check(
        "without times",
        text(&daemon, &ticking, "tail=2")? == "tick\ntick\n",
        &all,
    )?;
    let middle = text(&daemon, &ticking, "offset=7&tail=all")?;
    check("from an offset", middle.starts_with("ck\ntick\n"), &middle)?;
    for (query, field) in [
        ("since=noon", "since"),
        ("tail=-1", "tail"),
        ("tail=", "tail"),
    ] {
        let refused = logs(&daemon, &ticking, query)?;
        let right = refused.status == 422 && refused.text("field") == field;
        check(query, right, &refused)?;
    }
    let printed = output(
        &daemon,
        &[
            "logs",
            "--timestamps",
            "--since",
            &all[4].0,
            "--tail",
            "2",
            id(&ticking),
        ],
    )?;
    let expected = all[all.len() - 2..].iter();
    let expected: String = expected
        .map(|(time, line)| format!("{time} {line}\n"))
        .collect();
    check(
        "the client",
        printed.stdout == expected.as_bytes(),
        &printed,
    )?;
    let printed = output(&daemon, &["logs", "--since", "noon", id(&ticking)])?;
    let told = String::from_utf8_lossy(&printed.stderr).into_owned();
    check("refused", told.contains("since: must be a time"), &told)?;

    // An output of an earlier version has no times.
    let file = daemon
        .data()
        .join("machines")
        .join(id(&ticking))
        .join("stdout");
    fs::write(file, "before\nnow\n")?;
    let old = text(&daemon, &ticking, "tail=1")?;
    check("without times", old == "now\n", &old)?;
    for query in ["timestamps=true", "since=1h"] {
        let refused = logs(&daemon, &ticking, query)?;
        check(query, refused.text("code") == "no-timestamps", &refused)?;
    }
    Ok(())
}

/// A machine that is started again has an empty log, also as long as it waits for memory.
pub fn before_the_start() -> Result<()> {
    const MEMORY: u64 = 128 << 20;
    let daemon = Daemon::start(&format!("pool = 1\nmemory = {}", MEMORY * 3 / 2))?;
    let program = push(&daemon)?;
    let make = |args: &[&str]| -> Result<String> {
        let spec = json!({ "program": program, "args": args, "memory": MEMORY, "start": true });
        let spec = spec.to_string();
        let made = daemon.request("POST", "/v1/machines", spec.as_bytes())?;
        Ok(format!("/v1/machines/{}", made.expect(201)?.text("id")))
    };
    let first = make(&[])?;
    await_state(&daemon, &first, "exited")?;
    let log = text(&daemon, &first, "")?;
    check("its log", !log.is_empty(), &log)?;
    let other = make(&["tick"])?;
    await_state(&daemon, &other, "running")?;
    daemon
        .request("POST", &format!("{first}/start"), b"")?
        .expect(200)?;
    let state = super::state(&daemon, &first)?;
    check("it waits", state == "queued", &state)?;
    let waiting = text(&daemon, &first, "")?;
    check("an empty log", waiting.is_empty(), &waiting)?;
    daemon
        .request("POST", &format!("{other}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &first, "exited")?;
    let again = text(&daemon, &first, "")?;
    check("the same log", again == log, &again)
}

/// Outputs of runs in answers are whole, or say how many bytes are not there.
pub fn outputs_of_runs() -> Result<()> {
    const LINES: usize = 65_536;
    let daemon = Daemon::start("pool = 2")?;
    let program = push(&daemon)?;
    let whole = LINE.repeat(LINES);
    let request = json!({ "program": program, "args": ["long"] });
    let outcome = run(&daemon, &request)?;
    let stdout = &outcome["stdout"];
    let is_whole = stdout["text"] == *whole && stdout["truncated"] == false;
    check(
        "whole",
        is_whole && outcome["exit_code"] == 0,
        &outcome["message"],
    )?;
    let printed = output(&daemon, &["submit", "-o", "json", &program, "long"])?;
    let printed: serde_json::Value = serde_json::from_slice(&printed.stdout)?;
    let stdout = &printed["stdout"];
    let is_whole = stdout["text"] == *whole && stdout["truncated"] == false;
    check("printed", is_whole, &printed["message"])?;
    // Asynchronous runs keep it, and have a log.
    let mut request = json!({ "program": program, "args": ["long"], "wait": false });
    let kept = location(&submit(&daemon, &[], &request)?.expect(202)?)?;
    let ended = daemon
        .request("GET", &format!("{kept}?seconds=60"), b"")?
        .json();
    check(
        "kept",
        ended["outcome"]["stdout"]["text"] == *whole,
        &ended["state"],
    )?;
    check("its log", text(&daemon, &kept, "")? == whole, &kept)?;
    let last = text(&daemon, &kept, "tail=2")?;
    check("its last lines", last == LINE.repeat(2), &last)?;
    let machine = kept.replace("runs", "machines");
    check(
        "no machine",
        logs(&daemon, &machine, "")?.status == 404,
        &machine,
    )?;
    // What exceeds the log of a run that is kept is counted.
    daemon.configure(&format!(
        "pool = 2\nlog_max_size = {SIZE}\nlog_max_files = 2"
    ))?;
    daemon.hang_up();
    until(|| daemon.log().contains("log_max_size has changed"))?;
    request["env"] = json!({ "A": "B" });
    let cut = location(&submit(&daemon, &[], &request)?.expect(202)?)?;
    let ended = daemon
        .request("GET", &format!("{cut}?seconds=60"), b"")?
        .json();
    let stdout = &ended["outcome"]["stdout"];
    let text = stdout["text"].as_str().unwrap_or_default();
    let missing = stdout["missing"].as_u64().unwrap_or(0);
    let right = whole.ends_with(text)
        && text.len() as u64 >= SIZE / 2
        && missing == (whole.len() - text.len()) as u64
        && stdout["truncated"] == true;
    check("missing", right, &(missing, text.len()))
}
