//! Webhooks: messages to servers of tenants, about ends of machines and runs.

use super::commands::client;
use super::connections::certificate;
use super::{await_state, check, key};
use hartline_tests::daemon::{Answer, Daemon, until};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

/// Receivers of tests are on the loopback interface.
const ON: &str = "pool = 1\nwebhooks = true\nwebhook_networks = ['127.0.0.0/8']";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A server for messages, which ends when dropped.
struct Receiver {
    folder: Scratch,
    child: Child,
    url: String,
}

impl Receiver {
    /// A receiver that answers with these statuses, one after the other.
    fn start(statuses: &str) -> Result<Self> {
        Self::start_with(statuses, None)
    }

    /// A receiver with the certificate and key of a folder, if there is one.
    fn start_with(statuses: &str, tls: Option<&Path>) -> Result<Self> {
        let folder = Scratch::new()?;
        let program = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/daemon/webhook_receiver.py"
        );
        let port = folder.path().join("port");
        let mut python = Command::new("python3");
        python.args([program, SECRET]).arg(&port);
        python.arg(folder.path().join("messages")).arg(statuses);
        if let Some(tls) = tls {
            python.args([tls.join("certificate.pem"), tls.join("key.pem")]);
        }
        let child = python.spawn()?;
        let mut receiver = Self {
            folder,
            child,
            url: String::new(),
        };
        until(|| port.exists())?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let port = fs::read_to_string(port)?;
        receiver.url = format!("{scheme}://127.0.0.1:{port}/ended?by=test");
        Ok(receiver)
    }

    /// The messages until now.
    fn messages(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("messages"));
        let text = text.unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().map(serde_json::from_str::<Value>);
        lines.filter_map(|line| line.ok()).collect()
    }

    /// Waits for a number of messages.
    fn await_messages(&self, daemon: &Daemon, number: usize) -> Result<Vec<Value>> {
        until(|| self.messages().len() >= number)
            .map_err(|_| format!("{:?}, {}", self.messages(), daemon.log()))?;
        Ok(self.messages())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn post(daemon: &Daemon, path: &str, body: &Value) -> Result<Answer> {
    daemon.request("POST", path, body.to_string().as_bytes())
}

fn put_secret(daemon: &Daemon, contents: &str) -> Result<Answer> {
    let headers = [("Content-Type", "application/octet-stream")];
    daemon.request_with("PUT", "/v1/secrets/hook", &headers, contents.as_bytes())
}

/// A daemon with the test program and a secret. Result: also the program's id.
fn start(configuration: &str) -> Result<(Daemon, String)> {
    let daemon = Daemon::start(configuration)?;
    let program = daemon.push("name=service", &fs::read(compile::service()?)?)?;
    put_secret(&daemon, SECRET)?.expect(201)?;
    Ok((
        daemon,
        program["id"].as_str().unwrap_or_default().to_owned(),
    ))
}

/// A request for a run, or for a machine, with a webhook.
fn request(program: &str, args: &[&str], url: &str) -> Value {
    json!({ "program": program, "args": args, "webhook": { "url": url, "secret": "hook" } })
}

/// Makes an asynchronous run. Result: its id.
fn run(daemon: &Daemon, program: &str, args: &[&str], url: &str) -> Result<String> {
    let mut body = request(program, args, url);
    body["wait"] = false.into();
    Ok(post(daemon, "/v1/runs", &body)?.expect(202)?.text("id"))
}

fn waiting(daemon: &Daemon) -> Result<Vec<Value>> {
    let list = daemon.request("GET", "/v1/deliveries", b"")?.expect(200)?;
    Ok(serde_json::from_slice(&list.body)?)
}

pub fn tell_ends() -> Result<()> {
    let (daemon, program) = start(ON)?;
    let receiver = Receiver::start("204")?;
    let id = run(&daemon, &program, &["exit"], &receiver.url)?;
    let told = receiver.await_messages(&daemon, 1)?;
    let message = &told[0];
    let is_right = message["method"] == "POST"
        && message["path"] == "/ended?by=test"
        && message["is_signed"] == true
        && message["type"] == "application/json"
        && receiver
            .url
            .contains(message["host"].as_str().unwrap_or("?"))
        && message["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("msg_"))
        && message["body"]["type"] == "run.ended";
    check("the message", is_right, message)?;
    let known = daemon
        .request("GET", &format!("/v1/runs/{id}"), b"")?
        .expect(200)?;
    let (known, data) = (known.json(), &message["body"]["data"]);
    for field in [
        "id",
        "state",
        "message",
        "created_ms",
        "started_ms",
        "ended_ms",
    ] {
        check(field, known[field] == data[field], &(message, &known))?;
    }
    check("its code", data["exit_code"] == 7, message)?;
    // A machine tells its last end only, and each end after a start by a client.
    let mut body = request(&program, &["exit"], &receiver.url);
    body["name"] = "job".into();
    body["restart"] = "on-failure:1".into();
    body["start"] = true.into();
    post(&daemon, "/v1/machines", &body)?.expect(201)?;
    let told = receiver.await_messages(&daemon, 2)?;
    let data = &told[1]["body"]["data"];
    let is_right = told[1]["body"]["type"] == "machine.ended" && data["name"] == "job";
    check("a machine", is_right && data["exit_code"] == 7, &told)?;
    post(&daemon, "/v1/machines/job/start", &json!({}))?.expect(200)?;
    let told = receiver.await_messages(&daemon, 3)?;
    check("started again", told[2]["id"] != told[1]["id"], &told)?;
    // Killed, and deleted at once.
    let id = run(&daemon, &program, &["idle"], &receiver.url)?;
    await_state(&daemon, &format!("/v1/runs/{id}"), "running")?;
    daemon
        .request("DELETE", &format!("/v1/runs/{id}"), b"")?
        .expect(204)?;
    let told = receiver.await_messages(&daemon, 4)?;
    check("deleted", told[3]["body"]["data"]["id"] == id, &told)?;
    until(|| waiting(&daemon).is_ok_and(|waiting| waiting.is_empty()))?;
    check(
        "each once",
        receiver.messages().len() == 4,
        &receiver.messages(),
    )
}

/// A message waits for its receiver, also across daemons, and is the same at each attempt.
pub fn wait_for_receivers() -> Result<()> {
    let (mut daemon, program) = start(ON)?;
    let receiver = Receiver::start("500,302,200")?;
    let id = run(&daemon, &program, &["exit"], &receiver.url)?;
    receiver.await_messages(&daemon, 1)?;
    until(|| waiting(&daemon).is_ok_and(|all| all.iter().any(|one| one["attempts"] == 1)))?;
    let list = waiting(&daemon)?;
    let is_right = list[0]["machine"] == id
        && list[0]["url"] == receiver.url
        && list[0]["error"] == "the receiver answers 500 Internal Server Error";
    check("the list", is_right, &list)?;
    let output = client(&daemon, &["deliveries"], "")?;
    let shown = String::from_utf8_lossy(&output.stdout);
    check("the command", shown.contains("answers 500"), &output)?;
    let used = daemon.request("DELETE", "/v1/secrets/hook", b"")?;
    check("in use", used.text("code") == "secret-in-use", &used)?;
    daemon.kill()?;
    daemon.restart()?;
    // A redirection is not followed.
    let told = receiver.await_messages(&daemon, 3)?;
    for message in &told {
        let is_same = message["id"] == told[0]["id"] && message["body"] == told[0]["body"];
        let is_right = is_same && message["is_signed"] == true && message["method"] == "POST";
        check(
            "again",
            is_right && message["path"] == "/ended?by=test",
            &told,
        )?;
    }
    check(
        "later",
        told[2]["time"].as_i64() > told[0]["time"].as_i64(),
        &told,
    )?;
    until(|| waiting(&daemon).is_ok_and(|waiting| waiting.is_empty()))?;
    // This answer asks for no further attempt.
    let gone = Receiver::start("410")?;
    run(&daemon, &program, &["exit"], &gone.url)?;
    gone.await_messages(&daemon, 1)?;
    until(|| waiting(&daemon).is_ok_and(|waiting| waiting.is_empty()))?;
    check(
        "given up",
        daemon.log().contains("webhook given up"),
        &daemon.log(),
    )?;
    // The message waits for a receiver that closes the connection, and for a secret that is a key.
    let silent = Receiver::start("0")?;
    run(&daemon, &program, &["exit"], &silent.url)?;
    until(|| waiting(&daemon).is_ok_and(|all| all.iter().any(|one| one["attempts"] == 1)))?;
    check(
        "closed",
        waiting(&daemon)?[0]["error"] != "",
        &waiting(&daemon)?,
    )?;
    put_secret(&daemon, "whsec_?")?.expect(204)?;
    run(&daemon, &program, &["exit"], &receiver.url)?;
    let tells = |part: &str| {
        let told = |one: &Value| {
            one["error"]
                .as_str()
                .is_some_and(|error| error.contains(part))
        };
        waiting(&daemon).is_ok_and(|all| all.iter().any(told))
    };
    until(|| tells("Base64"))?;
    check(
        "not sent",
        receiver.messages().len() == 3,
        &receiver.messages(),
    )
}

/// What may not be a receiver, and what has no webhook.
pub fn refused() -> Result<()> {
    let (mut daemon, program) = start("pool = 1")?;
    let receiver = Receiver::start("200")?;
    let refuse = |daemon: &Daemon, path: &str, body: &Value, code: &str| -> Result<()> {
        let refused = post(daemon, path, body)?;
        check(code, refused.text("code") == code, &refused)
    };
    let body = request(&program, &["exit"], &receiver.url);
    refuse(&daemon, "/v1/machines", &body, "webhooks-off")?;
    daemon.terminate()?;
    daemon.configure("pool = 1\nwebhooks = true")?;
    daemon.restart()?;
    refuse(&daemon, "/v1/runs", &body, "no-webhook")?;
    for url in [
        "",
        "example.org",
        "ftp://example.org/",
        "https://user:word@example.org/",
        "https://example.org/\r\nX: y",
    ] {
        let body = request(&program, &[], url);
        refuse(&daemon, "/v1/machines", &body, "invalid-field")?;
    }
    let mut other = body.clone();
    other["webhook"]["secret"] = "none".into();
    refuse(&daemon, "/v1/machines", &other, "not-found")?;
    other["webhook"]["secret"] = "../x".into();
    refuse(&daemon, "/v1/machines", &other, "invalid-field")?;
    other["webhook"] = json!({ "url": "https://example.org/" });
    let refused = post(&daemon, "/v1/machines", &other)?;
    check("unsigned", refused.status == 422, &refused)?;
    // The answer says that a start is refused, and no message does.
    let tenant = "/v1/tenants/default";
    daemon
        .request("PUT", tenant, br#"{"max_machines": 0, "max_queued": 0}"#)?
        .expect(200)?;
    for path in ["/v1/runs", "/v1/machines"] {
        let mut body = body.clone();
        body["wait"] = false.into();
        if path == "/v1/machines" {
            body = request(&program, &["exit"], &receiver.url);
            body["start"] = true.into();
        }
        refuse(&daemon, path, &body, "quota")?;
    }
    daemon.request("PUT", tenant, b"{}")?.expect(200)?;
    let none = waiting(&daemon)?;
    check("no message", none.is_empty(), &none)?;
    // The loopback interface is no receiver unless it is listed, by whatever name.
    let port = receiver.url.rsplit_once(':').ok_or("no port")?.1;
    for host in [
        "http://127.0.0.1",
        "http://[::ffff:127.0.0.1]",
        "https://localhost",
    ] {
        run(&daemon, &program, &["exit"], &format!("{host}:{port}"))?;
    }
    let refused = |all: Vec<Value>| {
        let told = |one: &Value| {
            one["error"]
                .as_str()
                .is_some_and(|why| why.contains("not public"))
        };
        all.len() == 3 && all.iter().all(told)
    };
    until(|| waiting(&daemon).is_ok_and(refused))
        .map_err(|_| format!("{:?}, {}", waiting(&daemon), daemon.log()))?;
    check(
        "no message",
        receiver.messages().is_empty(),
        &receiver.messages(),
    )?;
    // Another tenant sees none of them.
    let other = key(&daemon, "other", "read")?;
    let headers = [("Authorization", &*format!("Bearer {other}"))];
    let list = daemon.request_with("GET", "/v1/deliveries", &headers, b"")?;
    check("none", list.body == b"[]", &list)?;
    // SIGHUP allows it.
    daemon.configure("pool = 1\nwebhooks = true\nwebhook_networks = ['127.0.0.0/8']")?;
    daemon.hang_up();
    receiver.await_messages(&daemon, 1).map(drop)
}

/// A receiver with TLS needs a certificate that the host trusts.
pub fn over_tls() -> Result<()> {
    let (mut daemon, program) = start(ON)?;
    let folder = Scratch::new()?;
    certificate(folder.path(), "127.0.0.1")?;
    let receiver = Receiver::start_with("200", Some(folder.path()))?;
    run(&daemon, &program, &["exit"], &receiver.url)?;
    let untrusted = |all: Vec<Value>| {
        let why = all.first().map(|one| one["error"].clone());
        why.is_some_and(|why| why.as_str().is_some_and(|why| why.contains("certificate")))
    };
    until(|| waiting(&daemon).is_ok_and(untrusted))
        .map_err(|_| format!("{:?}, {}", waiting(&daemon), daemon.log()))?;
    check("not trusted", receiver.messages().is_empty(), &daemon.log())?;
    daemon.terminate()?;
    let trusted = folder.path().join("certificate.pem").display().to_string();
    daemon.set_environment(&[("SSL_CERT_FILE", &trusted)]);
    daemon.restart()?;
    let told = receiver.await_messages(&daemon, 1)?;
    check("trusted", told[0]["is_signed"] == true, &told)
}
