//! The page at `/ui/`: its files, and the keys of its WebSockets.

use super::connections::address;
use super::exec::push;
use super::{await_state, check, key};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hartline_tests::Result;
use hartline_tests::daemon::{Answer, Daemon, until};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A daemon for browsers, which use TCP.
pub(super) const CONFIGURATION: &str = "pool = 2\nlisten = '127.0.0.1:0'";
/// Begin of the subprotocol with a key.
const KEY: &str = "base64url.bearer.authorization.hartline.";
/// A header of an answer.
fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.head.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// The files are served without a key, with headers that confine the page.
pub fn files() -> Result<()> {
    let mut daemon = Daemon::start(CONFIGURATION)?;
    let address = address(&daemon)?;
    // Over TCP nobody has rights without a key.
    let ask = |path: &str, more: &str| -> Result<Answer> {
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{more}\r\n");
        let mut stream = TcpStream::connect(&address)?;
        stream.write_all(head.as_bytes())?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        Answer::parse(&bytes)
    };
    check(
        "no data without a key",
        ask("/v1/machines", "")?.status == 401,
        &address,
    )?;
    let redirect = ask("/ui", "")?;
    let right = redirect.status == 308 && header(&redirect, "location") == Some("ui/");
    check("/ui", right, &redirect.head)?;
    for (path, kind) in [
        ("/ui/", "text/html; charset=utf-8"),
        ("/ui/index.html", "text/html; charset=utf-8"),
        ("/ui/main.js", "text/javascript; charset=utf-8"),
        ("/ui/style.css", "text/css; charset=utf-8"),
        ("/ui/icon.svg", "image/svg+xml"),
        ("/ui/xterm/xterm.js", "text/javascript; charset=utf-8"),
        ("/ui/xterm/copyright.txt", "text/plain; charset=utf-8"),
    ] {
        let answer = ask(path, "")?.expect(200)?;
        for (name, value) in [
            ("content-type", kind),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-cache"),
        ] {
            check(
                &format!("{path}: {name}"),
                header(&answer, name) == Some(value),
                &answer.head,
            )?;
        }
        let policy = header(&answer, "content-security-policy").unwrap_or_default();
        let is_strict = policy
            .starts_with("default-src 'none'; script-src 'self'; style-src 'self';")
            && policy.contains("frame-ancestors 'none'")
            && !policy.contains("unsafe");
        check(path, is_strict, &policy)?;
        let tag = header(&answer, "etag").unwrap_or_default();
        let again = ask(path, &format!("If-None-Match: {tag}\r\n"))?;
        let is_empty = again.status == 304 && again.body.is_empty();
        check(&format!("{path}: its copy"), is_empty, &again.head)?;
        let other = ask(path, "If-None-Match: \"0\"\r\n")?;
        check(
            &format!("{path}: another copy"),
            other.status == 200,
            &other.head,
        )?;
    }
    let licence = ask("/ui/xterm/copyright.txt", "")?.body;
    let text = String::from_utf8_lossy(&licence);
    check(
        "licence",
        text.contains("Permission is hereby granted"),
        &text,
    )?;
    for path in [
        "/ui/nothing.js",
        "/ui/../v1/machines",
        "/ui/%2e%2e/main.js",
        "/ui//main.js",
    ] {
        let answer = ask(path, "")?;
        check(path, answer.status == 404, &answer)?;
    }
    let post = daemon.request("POST", "/ui/", b"")?;
    check("another method", post.status == 405, &post)?;
    // Switched off while the daemon runs, and from the start.
    daemon.configure(&format!("{CONFIGURATION}\nui = false"))?;
    daemon.hang_up();
    let is_off = |daemon: &Daemon| {
        let status = |path| daemon.request("GET", path, b"").map(|answer| answer.status);
        ["/ui", "/ui/", "/ui/main.js"]
            .iter()
            .all(|path| status(path).is_ok_and(|s| s == 404))
    };
    until(|| is_off(&daemon))?;
    daemon.kill()?;
    daemon.restart()?;
    check("off", is_off(&daemon), &daemon.log())
}

/// The head of the answer to a request for a WebSocket without the header `Authorization`.
fn handshake(address: &str, path: &str, headers: &[(&str, &str)]) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let mut head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? > 0 {
        answer.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&answer).to_lowercase())
}

/// A WebSocket may have its key among its subprotocols, and no page of another site may open one.
pub fn keys() -> Result<()> {
    let daemon = Daemon::start(CONFIGURATION)?;
    push(&daemon)?;
    let body = json!({ "program": "tools", "path": "/bin/sleep", "args": ["100000"], "name": "box",
        "start": true });
    daemon
        .request("POST", "/v1/machines", body.to_string().as_bytes())?
        .expect(201)?;
    await_state(&daemon, "/v1/machines/box", "running")?;
    let address = address(&daemon)?;
    let (admin, write) = (
        key(&daemon, "default", "admin")?,
        key(&daemon, "default", "write")?,
    );
    let (read, other) = (
        key(&daemon, "default", "read")?,
        key(&daemon, "other", "write")?,
    );
    let operator = key(&daemon, "operator", "admin")?;
    let encoded = |key: &str| format!("{KEY}{}", URL_SAFE_NO_PAD.encode(key));
    let offer = |key: &str| format!("v1.hartline, {}", encoded(key));
    let for_tenant = |key: &str| format!("{}, tenant.hartline.default", offer(key));
    let own = format!("http://{address}");
    let (attach, exec) = ("/v1/machines/box/attach?logs=true", "/v1/machines/box/exec");
    let attached_run = "/v1/runs/attached";
    let broken = format!("v1.hartline, {KEY}%%%");
    let twice = format!("{}, {}", offer(&write), encoded(&read));
    for (what, path, protocols, origin, status) in [
        ("attach", attach, offer(&write), own.as_str(), 101),
        ("exec", exec, offer(&write), &own, 101),
        ("a run", attached_run, offer(&write), &own, 101),
        ("reading", attach, offer(&read), &own, 101),
        ("no page", attach, offer(&write), "", 101),
        ("for a tenant", attach, for_tenant(&operator), &own, 101),
        ("the own tenant", attach, for_tenant(&write), &own, 101),
        ("another tenant's machine", attach, offer(&other), &own, 404),
        ("for another tenant", attach, for_tenant(&other), &own, 404),
        ("without the tenant", attach, offer(&operator), &own, 404),
        ("too few rights", exec, offer(&read), &own, 403),
        ("no key", attach, "v1.hartline".to_owned(), &own, 401),
        ("a wrong key", attach, offer("hl_0_0"), &own, 401),
        ("no base64", attach, broken, &own, 401),
        ("two keys", attach, twice, &own, 400),
        (
            "another site",
            attach,
            offer(&write),
            "http://evil.example",
            403,
        ),
        (
            "another site: exec",
            exec,
            offer(&admin),
            "http://evil.example",
            403,
        ),
        (
            "another site: a run",
            attached_run,
            offer(&write),
            "https://evil.example",
            403,
        ),
        (
            "another port",
            attach,
            offer(&write),
            "http://127.0.0.1:1",
            403,
        ),
        ("a page of a file", attach, offer(&write), "null", 403),
    ] {
        let mut headers = vec![("Sec-WebSocket-Protocol", protocols.as_str())];
        if !origin.is_empty() {
            headers.push(("Origin", origin));
        }
        let head = handshake(&address, path, &headers)?;
        check(
            what,
            head.starts_with(&format!("http/1.1 {status} ")),
            &head,
        )?;
        let selected = head.contains("\r\nsec-websocket-protocol: v1.hartline\r\n");
        check(what, selected == (status == 101), &head)?;
        check("the key is not repeated", !head.contains(KEY), &head)?;
    }
    // Programs need no subprotocol.
    let bearer = format!("Bearer {write}");
    let head = handshake(&address, attach, &[("Authorization", &bearer)])?;
    let right = head.starts_with("http/1.1 101 ") && !head.contains("sec-websocket-protocol");
    check("a program", right, &head)?;
    // The header of a page that is no WebSocket gives no rights.
    let mut stream = TcpStream::connect(&address)?;
    let plain = format!(
        "GET /v1/machines HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Sec-WebSocket-Protocol: {}\r\n\r\n",
        offer(&write)
    );
    stream.write_all(plain.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    check(
        "no WebSocket",
        Answer::parse(&answer)?.status == 401,
        &address,
    )?;
    let log = daemon.log();
    let is_there = [&admin, &write, &read, &other, &operator]
        .into_iter()
        .any(|key| log.contains(key) || log.contains(&URL_SAFE_NO_PAD.encode(key)));
    check("keys in the log", !is_there, &log)
}
