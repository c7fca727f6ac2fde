//! Names of machines and programs, which are accepted wherever an id is.

use super::commands::client;
use super::{await_state, check, run, start};
use hartline_tests::daemon::Daemon;
use hartline_tests::{Result, compile};
use serde_json::{Value, json};
use std::fs;

/// Asks to make a machine.
fn make(daemon: &Daemon, request: &Value) -> Result<hartline_tests::daemon::Answer> {
    daemon.request("POST", "/v1/machines", request.to_string().as_bytes())
}

pub fn of_machines() -> Result<()> {
    let (daemon, program) = start()?;
    let request = json!({ "program": "service", "name": "web-1", "args": ["exit"] });
    let made = make(&daemon, &request)?.expect(201)?;
    let right = made.text("name") == "web-1" && made.json()["spec"]["program"] == *program;
    check("its name and program", right, &made)?;
    let again = make(&daemon, &request)?;
    let code = again.status == 409 && again.text("code") == "name-in-use";
    check("the name is in use", code, &again)?;
    for name in ["cafe", "0", "-x", ".x", "a/b", "a b", ""] {
        let refused = make(&daemon, &json!({ "program": program, "name": name }))?;
        let right = refused.status == 422 && refused.text("field") == "name";
        check(name, right, &refused)?;
    }
    let headers = [
        ("Idempotency-Key", "once"),
        ("Content-Type", "application/json"),
    ];
    for status in [201, 200] {
        let body = json!({ "program": program, "name": "only" }).to_string();
        let made = daemon.request_with("POST", "/v1/machines", &headers, body.as_bytes())?;
        check("the same request", made.text("name") == "only", &made)?;
        made.expect(status)?;
    }
    let by_name = "/v1/machines/web-1";
    let found = daemon.request("GET", by_name, b"")?.expect(200)?;
    check("found", found.text("id") == made.text("id"), &found)?;
    daemon
        .request("POST", &format!("{by_name}/start"), b"")?
        .expect(200)?;
    let ended = daemon.request("GET", &format!("{by_name}/wait?seconds=60"), b"")?;
    check("waited", ended.text("exit_code") == "7", &ended)?;
    for end in ["logs", "stats"] {
        let path = format!("{by_name}/{end}");
        daemon.request("GET", &path, b"")?.expect(200)?;
    }
    daemon.request("DELETE", by_name, b"")?.expect(204)?;
    daemon.request("GET", by_name, b"")?.expect(404)?;
    // The name is free again.
    make(&daemon, &request)?.expect(201)?;

    let ask = |arguments: &[&str]| -> Result<String> {
        let output = client(&daemon, arguments, "")?;
        check(&arguments.join(" "), output.status.success(), &output)?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let id = ask(&["create", "--name", "sql", "--start", "service", "idle"])?;
    await_state(&daemon, "/v1/machines/sql", "running")?;
    let table = ask(&["ps"])?;
    let shown = table.starts_with("ID ") && table.contains("  sql ") && table.contains("  web-1 ");
    let fits = table.lines().all(|line| line.chars().count() <= 100);
    check("its table", shown && fits, &table)?;
    check(
        "filter by name",
        ask(&["ps", "-q", "--filter", "name=sql"])? == id,
        &id,
    )?;
    let own = ask(&["ps", "-q", "--filter", "program=service"])?;
    check("filter by program", own.lines().count() == 3, &own)?;
    let none = ask(&["ps", "-q", "--filter", "program=nothing"])?;
    check("no such program", none.is_empty(), &none)?;
    ask(&["kill", "sql"])?;
    await_state(&daemon, "/v1/machines/sql", "exited")?;
    ask(&["rm", "sql"]).map(drop)
}

pub fn of_programs() -> Result<()> {
    let (daemon, first) = start()?;
    let bytes = fs::read(compile::service()?)?;
    // Another file, whose program is the same.
    let other = [&bytes[..], b"\n"].concat();
    let named = |name: &str| -> Result<String> {
        let found = daemon.request("GET", &format!("/v1/programs/{name}"), b"")?;
        Ok(match found.status {
            200 => found.text("id"),
            status => status.to_string(),
        })
    };
    check("its name", named("service")? == first, &first)?;
    let outcome = run(&daemon, &json!({ "program": "service" }))?;
    let hello = outcome["stdout"]["text"] == "hello, world\n";
    check("a run of it", hello, &outcome)?;
    let second = daemon.push("name=service", &other)?;
    let second = second["id"].as_str().unwrap_or_default();
    check("another program", second != first, &second)?;
    check("the last one", named("service")? == second, &second)?;
    daemon.push("name=service", &bytes)?;
    check("uploaded again", named("service")? == first, &first)?;
    daemon.push("name=tool", &bytes)?;
    check("its new name", named("tool")? == first, &first)?;
    check("what is left", named("service")? == second, &second)?;
    check("none", named("nothing")? == "404", &second)?;
    // Digits of ids are never a name.
    daemon.push("name=cafe", &bytes)?;
    check("no name", named("cafe")? == "404", &first)?;
    let path = "/v1/programs/service";
    daemon.request("DELETE", path, b"")?.expect(204)?;
    check("deleted", named("service")? == "404", &second)
}
