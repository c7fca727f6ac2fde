//! Tenants: what their keys may do, and deletion.

use super::commands::client;
use super::{check, machine, start};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::{Result, compile};
use serde_json::{Value, json};
use std::fs;

pub fn tenants() -> Result<()> {
    let (daemon, program) = start()?;
    let own = machine(&daemon, &program, &["idle"])?;
    daemon
        .request(
            "PUT",
            "/v1/tenants/other",
            br#"{"max_machines": 1, "weight": 10}"#,
        )?
        .expect(200)?;
    let key = |scope: &str| -> Result<String> {
        let body = json!({ "scope": scope }).to_string();
        let made = daemon.request("POST", "/v1/tenants/other/keys", body.as_bytes())?;
        Ok(format!("Bearer {}", made.expect(201)?.text("key")))
    };
    let (write, read) = (key("write")?, key("read")?);
    let ask = |key: &str, method: &str, path: &str, body: &str| {
        let headers = [("Authorization", key), ("Content-Type", "application/json")];
        daemon.request_with(method, path, &headers, body.as_bytes())
    };
    let run = json!({ "program": program }).to_string();
    let program_path = format!("/v1/programs/{program}");
    for (key, method, path, body, status) in [
        (&write, "GET", own.as_str(), "", 404),
        (&write, "GET", &format!("{own}/logs"), "", 404),
        (&write, "POST", &format!("{own}/kill"), "", 404),
        (&write, "DELETE", own.as_str(), "", 404),
        (&write, "GET", &program_path, "", 404),
        (&write, "DELETE", &program_path, "", 404),
        (&write, "POST", "/v1/runs", &run, 404),
        (&write, "GET", "/v1/tenants", "", 403),
        (&write, "GET", "/v1/tenants/default", "", 403),
        (&write, "GET", "/v1/tenants/other", "", 200),
        (
            &write,
            "POST",
            "/v1/tenants/other/keys",
            r#"{"scope":"admin"}"#,
            403,
        ),
        (&write, "PUT", &format!("{own}/network-limits"), "{}", 403),
        (&read, "GET", "/v1/machines", "", 200),
        (&read, "POST", "/v1/runs", &run, 403),
        (&"Bearer hl_0_0".to_owned(), "GET", "/v1/machines", "", 401),
        (&"Basic eDp5".to_owned(), "GET", "/v1/machines", "", 401),
    ] {
        let answer = ask(key, method, path, body)?;
        check(
            &format!("{method} {path}"),
            answer.status == status,
            &answer,
        )?;
    }
    let all = ask(&read, "GET", "/v1/machines", "")?.json();
    check("others' machines", all == json!([]), &all)?;
    let secret = write.trim_start_matches("Bearer ");
    check(
        "secrets in the log",
        !daemon.log().contains(secret),
        &daemon.log(),
    )?;
    let database = fs::read(daemon.data().join("hartline.db"))?;
    let tail = &secret.as_bytes()[secret.len() - 64..];
    let kept = database.windows(64).any(|window| window == tail);
    check("secrets in the database", !kept, &"found")
}

pub fn deletion() -> Result<()> {
    let daemon = Daemon::start("pool = 1")?;
    let ask = |arguments: &[&str], code: i32| -> Result<String> {
        let output = client(&daemon, arguments, "")?;
        let right = output.status.code() == Some(code);
        check(&arguments.join(" "), right, &output)?;
        let told = if code == 0 {
            output.stdout
        } else {
            output.stderr
        };
        Ok(String::from_utf8(told)?)
    };
    let create = [
        "tenant",
        "create",
        "acme",
        "--max-machines",
        "3",
        "--max-memory",
        "1G",
    ];
    ask(&create, 0)?;
    let again = ask(&create, 125)?;
    check("created again", again.contains("is there already"), &again)?;
    ask(&["tenant", "set", "--weight", "5", "acme"], 0)?;
    ask(&["tenant", "set", "--weight", "5", "nobody"], 125)?;
    let quota = || -> Result<Value> {
        let tenant = daemon
            .request("GET", "/v1/tenants/acme", b"")?
            .expect(200)?;
        Ok(tenant.json()["quota"].take())
    };
    let found = quota()?;
    let right =
        found["weight"] == 5 && found["max_machines"] == 3 && found["max_memory"] == 1 << 30;
    check("what was not given stays", right, &found)?;
    let listed = ask(&["tenants"], 0)?;
    check("listed", listed.contains("\nacme "), &listed)?;

    let body = br#"{"scope": "write"}"#;
    let made = daemon.request("POST", "/v1/tenants/acme/keys", body)?;
    let key = format!("Bearer {}", made.expect(201)?.text("key"));
    let as_acme = |method: &str, path: &str, body: &[u8]| {
        daemon.request_with(method, path, &[("Authorization", &key)], body)
    };
    let path = "/v1/tenants/acme";
    let forbidden = as_acme("DELETE", path, b"")?;
    check("not by itself", forbidden.status == 403, &forbidden)?;
    let upload = fs::read(compile::service()?)?;
    as_acme("POST", "/v1/programs?name=tool", &upload)?.expect(201)?;
    let state = || as_acme("GET", "/v1/programs/tool", b"").map(|program| program.text("state"));
    until(|| state().is_ok_and(|state| state == "ready"))?;
    for (path, status, code) in [
        (path, 409, "tenant-in-use"),
        ("/v1/tenants/default", 409, "default-tenant"),
        ("/v1/tenants/nobody", 404, "not-found"),
    ] {
        let refused = daemon.request("DELETE", path, b"")?;
        let right = refused.status == status && refused.text("code") == code;
        check(path, right, &refused)?;
    }
    let images = daemon.data().join("images/acme");
    let count = || fs::read_dir(&images).map_or(0, Iterator::count);
    check("a translation", count() > 0, &images)?;
    as_acme("DELETE", "/v1/programs/tool", b"")?.expect(204)?;
    ask(&["tenant", "rm", "acme"], 0)?;
    check("no translation", count() == 0, &images)?;
    daemon.request("GET", path, b"")?.expect(404)?;
    let stale = as_acme("GET", "/v1/machines", b"")?;
    check("its key", stale.status == 401, &stale)
}
