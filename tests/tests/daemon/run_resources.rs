//! Volumes and published ports of runs, and machines that are removed after their end.

use super::commands::client;
use super::input::running;
use super::networks::{self, PORT, host};
use super::{await_state, check, start};
use hartline_tests::Result;
use hartline_tests::daemon::{Answer, Daemon, until};
use hartline_tests::network::inside;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn post(daemon: &Daemon, path: &str, body: &Value) -> Result<Answer> {
    daemon.request("POST", path, body.to_string().as_bytes())
}

/// Begins a run whose answer nobody reads yet. The run ends when the result is dropped.
fn begin(daemon: &Daemon, body: &Value) -> Result<UnixStream> {
    let body = body.to_string();
    let length = body.len();
    let mut stream = daemon.connect()?;
    let request = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

fn mount(read_only: bool) -> Value {
    json!([{ "volume": "data", "path": "/x", "read_only": read_only }])
}

pub fn volumes() -> Result<()> {
    let (daemon, program) = start()?;
    let size = json!({ "name": "data", "size": 1 << 20 });
    post(&daemon, "/v1/volumes", &size)?.expect(201)?;
    let run = |args: &[&str], read_only| json!({ "program": program, "args": args, "volumes": mount(read_only) });
    let ends = |body: &Value, code: u64, output: &str| {
        let outcome = post(&daemon, "/v1/runs", body)?.expect(200)?.json();
        let is_right = outcome["exit_code"] == code && outcome["stdout"]["text"] == output;
        check(&body["args"].to_string(), is_right, &outcome)
    };
    // A run may use the volume as soon as the one before it has answered.
    for text in ["one", "two", "three"] {
        ends(&run(&["put", "/x/file", text], false), 0, "")?;
    }
    ends(&run(&["get", "/x/file"], true), 0, "onetwothree")?;
    // 30 is EROFS, 28 is ENOSPC.
    ends(&run(&["put", "/x/file", "four"], true), 30, "")?;
    ends(&run(&["fill", "/x/large"], false), 28, "")?;

    // A volume has one writer at a time, a machine or a run, and is not deleted meanwhile.
    let refused = |path: &str, body: &Value| -> Result<bool> {
        let answer = post(&daemon, path, body)?;
        Ok(answer.text("code") == "volume-in-use")
    };
    let writer = begin(&daemon, &run(&["idle"], false))?;
    let writes = run(&["exit", "0"], false);
    until(|| running(&daemon).is_ok_and(|count| count == 1))?;
    check("a run", refused("/v1/runs", &writes)?, &())?;
    let mut machine = run(&["idle"], false);
    machine["start"] = true.into();
    check("a machine", refused("/v1/machines", &machine)?, &())?;
    let later = json!({ "program": program, "volumes": mount(false), "wait": false });
    check("a kept run", refused("/v1/runs", &later)?, &())?;
    ends(&run(&["get", "/x/file"], true), 0, "onetwothree")?;
    let delete = || daemon.request("DELETE", "/v1/volumes/data", b"");
    check("deletion", delete()?.text("code") == "volume-in-use", &())?;
    // The client goes away, and with it the run.
    drop(writer);
    until(|| post(&daemon, "/v1/runs", &writes).is_ok_and(|answer| answer.status == 200))?;

    // The same against a machine and a kept run.
    let made = post(&daemon, "/v1/machines", &machine)?.expect(201)?;
    check("against a machine", refused("/v1/runs", &writes)?, &())?;
    let made = format!("/v1/machines/{}", made.text("id"));
    daemon
        .request("POST", &format!("{made}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &made, "exited")?;
    daemon.request("DELETE", &made, b"")?.expect(204)?;
    let mut kept = run(&["idle"], false);
    kept["wait"] = false.into();
    let run = post(&daemon, "/v1/runs", &kept)?.expect(202)?.text("id");
    check("against a kept run", refused("/v1/runs", &writes)?, &())?;
    check("deletion", delete()?.text("code") == "volume-in-use", &())?;
    let run = format!("/v1/runs/{run}");
    daemon.request("DELETE", &run, b"")?.expect(204)?;
    kept["args"] = json!(["exit", "0"]);
    let run = post(&daemon, "/v1/runs", &kept)?.expect(202)?.text("id");
    await_state(&daemon, &format!("/v1/runs/{run}"), "exited")?;
    // A run that has ended keeps no volume.
    delete()?.expect(204)?;
    let missing = post(&daemon, "/v1/runs", &writes)?;
    check("no volume", missing.status == 404, &missing)
}

pub fn volumes_of_the_command() -> Result<()> {
    let (daemon, program) = start()?;
    let size = json!({ "name": "data", "size": 1 << 20 });
    post(&daemon, "/v1/volumes", &size)?.expect(201)?;
    for arguments in [
        ["-v", "data:/x", &program, "put", "/x/file", "some text"].as_slice(),
        [
            "-i",
            "-v",
            "data:/x:rw",
            &program,
            "put",
            "/x/file",
            ", and more",
        ]
        .as_slice(),
    ] {
        let output = client(&daemon, &[&["submit"], arguments].concat(), "")?;
        check("written", output.status.success(), &output)?;
    }
    let get = [
        "submit",
        "--volume",
        "data:/x:ro",
        &program,
        "get",
        "/x/file",
    ];
    let output = client(&daemon, &get, "")?;
    check("read", output.stdout == b"some text, and more", &output)
}

pub fn ports() -> Result<()> {
    let (host, _world) = host()?;
    let configuration = "pool = 2\nnetwork_range = '10.216.0.0/16'\npublish_ports = '30000-30009'";
    let daemon = Daemon::start_in_network(configuration, &host)?;
    let program = networks::push(&daemon)?;
    let serve = ["serve", &PORT.to_string(), "a run"].map(str::to_owned);
    let body = json!({ "program": program, "args": serve, "network": "tenant",
        "ports": [{ "host": 30000, "guest": PORT }] });
    let ask = || -> Result<String> {
        inside(Some(&host), || {
            let mut told = String::new();
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", 30000)) {
                stream.set_read_timeout(Some(Duration::from_secs(60)))?;
                // The connection may be reset.
                let _ = stream.read_to_string(&mut told);
            }
            Ok(told)
        })
    };
    let answers = || ask().is_ok_and(|told| told == "a run");
    let waiting = begin(&daemon, &body)?;
    until(answers).map_err(|_| format!("no answer: {}", daemon.log()))?;
    let refused = post(&daemon, "/v1/runs", &body)?;
    check("taken", refused.text("code") == "port-in-use", &refused)?;
    drop(waiting);
    // A kept run takes the port when it is free.
    let mut kept = body.clone();
    kept["wait"] = false.into();
    let mut run = String::new();
    until(|| {
        let answer = post(&daemon, "/v1/runs", &kept).ok();
        let id = answer.filter(|answer| answer.status == 202);
        id.map(|answer| run = answer.text("id")).is_some()
    })?;
    until(answers).map_err(|_| format!("no answer: {}", daemon.log()))?;
    daemon
        .request("DELETE", &format!("/v1/runs/{run}"), b"")?
        .expect(204)?;
    check("closed", ask()?.is_empty(), &())?;
    let mut command = std::process::Command::new(hartline_tests::hartline::binary()?);
    command.args([
        "submit",
        "-p",
        "30000:7000",
        &program,
        "serve",
        "7000",
        "a run",
    ]);
    command.env(
        "HARTLINE_HOST",
        format!("unix://{}", daemon.socket().display()),
    );
    let mut submitted = command.spawn()?;
    let answered = until(answers);
    submitted.kill()?;
    submitted.wait()?;
    answered.map_err(|_| format!("no answer: {}", daemon.log()).into())
}

/// Machines that are deleted after their end.
pub fn removed() -> Result<()> {
    let (daemon, program) = start()?;
    let restarted = ended_before_restart()?;
    let body =
        json!({ "program": program, "args": ["exit", "7"], "auto_remove": true, "start": true });
    let path = |made: &Answer| format!("/v1/machines/{}", made.text("id"));
    let first = path(&post(&daemon, "/v1/machines", &body)?.expect(201)?);
    // A client that waits learns the exit code.
    let ended = daemon.request("GET", &format!("{first}/wait?seconds=60"), b"")?;
    let is_right = ended.text("state") == "exited" && ended.text("exit_code") == "7";
    check("its end", is_right, &ended)?;
    // A machine that is started again is not deleted meanwhile.
    let mut idle = body.clone();
    idle["args"] = json!(["idle"]);
    let second = path(&post(&daemon, "/v1/machines", &idle)?.expect(201)?);
    await_state(&daemon, &second, "running")?;
    daemon
        .request("POST", &format!("{second}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &second, "exited")?;
    daemon
        .request("POST", &format!("{second}/start"), b"")?
        .expect(200)?;

    let mut always = body.clone();
    always["restart"] = "always".into();
    let refused = post(&daemon, "/v1/machines", &always)?;
    let is_right = refused.text("code") == "auto-remove-restart";
    check("restarted", is_right, &refused)?;
    let run = json!({ "program": program, "auto_remove": true });
    let refused = post(&daemon, "/v1/runs", &run)?;
    check("a run", refused.text("code") == "no-auto-remove", &refused)?;
    let create = ["create", "--rm", "--start", &program, "exit", "7"];
    let output = client(&daemon, &create, "")?;
    check("created", output.status.success(), &output)?;
    let third = String::from_utf8(output.stdout)?.trim().to_owned();
    let output = client(&daemon, &["wait", &third], "")?;
    check("waited", output.stdout.ends_with(b"7\n"), &output)?;

    let gone = |path: &str| {
        daemon
            .request("GET", path, b"")
            .is_ok_and(|answer| answer.status == 404)
    };
    until(|| gone(&first) && gone(&format!("/v1/machines/{third}")))?;
    await_state(&daemon, &second, "running")?;
    // A machine's files go after its row.
    let files = daemon.data().join("machines");
    until(|| std::fs::read_dir(&files).is_ok_and(|left| left.count() == 1))?;
    let (daemon, machine) = restarted;
    until(|| {
        daemon
            .request("GET", &machine, b"")
            .is_ok_and(|answer| answer.status == 404)
    })
}

/// A daemon with a machine that ended before the daemon's restart, and is to be removed.
fn ended_before_restart() -> Result<(Daemon, String)> {
    let (mut daemon, program) = start()?;
    let body = json!({ "program": program, "args": ["exit"], "auto_remove": true, "start": true });
    let made = post(&daemon, "/v1/machines", &body)?.expect(201)?;
    let machine = format!("/v1/machines/{}", made.text("id"));
    await_state(&daemon, &machine, "exited")?;
    daemon.kill()?;
    daemon.configure("collect_every_s = 1")?;
    daemon.restart()?;
    daemon.request("GET", &machine, b"")?.expect(200)?;
    Ok((daemon, machine))
}
