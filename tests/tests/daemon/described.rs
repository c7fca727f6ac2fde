//! The API's description is valid, and the API does what it says: schemathesis sends requests that the
//! description allows and requests that it forbids, and checks every answer.

use super::{check, connections, start_with};
use hartline_tests::daemon::Daemon;
use hartline_tests::{Result, paths, process};
use std::fs;
use std::process::Command;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(900);

pub fn description_holds() -> Result<()> {
    let (daemon, _program) = start_with("pool = 1\nlisten = '127.0.0.1:0'")?;
    is_valid(&daemon)?;
    let address = connections::address(&daemon)?;
    let body = br#"{"scope": "admin"}"#;
    let made = daemon.request("POST", "/v1/tenants/default/keys", body)?;
    let key = made.expect(201)?.text("key");
    let program = paths::repository().join(".venv/bin/schemathesis");
    let mut schemathesis = Command::new(program);
    schemathesis
        .current_dir(daemon.data().join("tmp"))
        .arg("run")
        .arg(format!("http://{address}/openapi.json"))
        .args(["--header", &format!("Authorization: Bearer {key}")])
        // These paths are an endless stream and a WebSocket.
        .args(["--exclude-path-regex", "/(events|attach|attached)$"])
        .args(["--checks", "all", "--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", "10", "--seed", "1"])
        .args(["--request-timeout", "20", "--no-color"]);
    let outcome = process::run_for(&mut schemathesis, b"", DEADLINE)?;
    check(
        "schemathesis",
        outcome.code == 0,
        &format!("{}{}", outcome.stdout_text(), outcome.stderr_text()),
    )
}

/// The description conforms to OpenAPI 3.1.
fn is_valid(daemon: &Daemon) -> Result<()> {
    let description = daemon.request("GET", "/openapi.json", b"")?.expect(200)?;
    let file = daemon.data().join("tmp/openapi.json");
    fs::write(&file, description.body)?;
    let validator = paths::repository().join(".venv/bin/openapi-spec-validator");
    let mut validator = Command::new(validator);
    validator.arg(&file);
    let outcome = process::run_for(&mut validator, b"", DEADLINE)?;
    fs::remove_file(&file)?;
    check(
        "openapi-spec-validator",
        outcome.code == 0,
        &format!("{}{}", outcome.stdout_text(), outcome.stderr_text()),
    )
}
