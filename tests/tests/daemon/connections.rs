//! The command line as a client: attaching to machines, and TLS.

use super::{await_state, check, machine, push, start};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use serde_json::json;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Returns a `hartline COMMAND` that talks to a daemon.
fn client(host: &str, command: &str, arguments: &[&str]) -> Result<Command> {
    let mut client = hartline::command(command)?;
    client.args(["--host", host]).args(arguments);
    client.stdin(Stdio::piped()).stdout(Stdio::piped());
    client.stderr(Stdio::piped());
    Ok(client)
}

/// Attaches to a machine.
fn attached(daemon: &Daemon, machine: &str, options: &[&str]) -> Result<Child> {
    let host = format!("unix://{}", daemon.socket().display());
    let id = machine.rsplit('/').next().unwrap_or_default();
    let arguments = [options, &[id]].concat();
    Ok(client(&host, "attach", &arguments)?.spawn()?)
}

/// Sends a line, and waits until it comes back.
fn echo(child: &mut Child, line: &str) -> Result<()> {
    let input = child.stdin.as_mut().ok_or("no input")?;
    input.write_all(line.as_bytes())?;
    let mut bytes = vec![0; line.len()];
    let output = child.stdout.as_mut().ok_or("no output")?;
    output.read_exact(&mut bytes)?;
    check("echo", bytes == line.as_bytes(), &bytes)
}

pub fn attach() -> Result<()> {
    let (mut daemon, program) = start()?;
    let body = json!({
        "program": program, "args": ["copy"], "interactive": true, "start": true
    });
    let made = daemon.request("POST", "/v1/machines", body.to_string().as_bytes())?;
    let copy = format!("/v1/machines/{}", made.expect(201)?.text("id"));
    await_state(&daemon, &copy, "running")?;

    let mut first = attached(&daemon, &copy, &[])?;
    echo(&mut first, "one line\n")?;
    echo(&mut first, "and another\n")?;
    // Detaching is not the end of the machine's input.
    first.kill()?;
    first.wait()?;
    daemon.kill()?;
    daemon.restart()?;
    await_state(&daemon, &copy, "running")?;
    let mut second = attached(&daemon, &copy, &["--logs"])?;
    let mut before = vec![0; "one line\nand another\n".len()];
    second
        .stdout
        .as_mut()
        .ok_or("no output")?
        .read_exact(&mut before)?;
    check(
        "what was written before",
        before == b"one line\nand another\n",
        &before,
    )?;
    echo(&mut second, "after a restart\n")?;
    // The end of the machine's input ends its program.
    drop(second.stdin.take());
    let output = second.wait_with_output()?;
    check("exit code", output.status.code() == Some(0), &output)?;
    await_state(&daemon, &copy, "exited")?;

    let ticking = machine(&daemon, &program, &["tick"])?;
    await_state(&daemon, &ticking, "running")?;
    let refused = attached(&daemon, &ticking, &[])?.wait_with_output()?;
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    check("not interactive", told.contains("interactive"), &told)?;
    let watching = attached(&daemon, &ticking, &["--no-stdin"])?;
    // Input that the client has not asked for does not disappear.
    let path = format!("{ticking}/attach?logs=true");
    let told = send_messages(&daemon, &path, &[(BINARY, "x")])?;
    check("input", told.contains("input=true"), &told)?;
    daemon
        .request("POST", &format!("{ticking}/kill"), b"")?
        .expect(200)?;
    let output = watching.wait_with_output()?;
    let told = (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    // The machine may have ended before the client was attached.
    let right = told.0 == Some(137) || told.1.contains("exited");
    check("its exit code", right, &told)?;
    let plain = daemon.request("GET", &format!("{ticking}/attach?logs=true"), b"")?;
    check(
        "no WebSocket",
        plain.text("code") == "upgrade-required",
        &plain,
    )
}

/// A client that attaches to a machine that is starting waits until its VMM has the input.
pub fn attach_early() -> Result<()> {
    let (daemon, program) = start()?;
    let body = json!({
        "program": program, "args": ["copy"], "interactive": true, "start": true
    });
    for round in 0..60 {
        let made = daemon.request("POST", "/v1/machines", body.to_string().as_bytes())?;
        let machine = format!("/v1/machines/{}", made.expect(201)?.text("id"));
        let path = format!("{machine}/attach?input=true&logs=true");
        // The end of the input, which is the program's end too.
        let told = send_messages(&daemon, &path, &[(BINARY, ""), (CLOSE, "")])?;
        let right = told.starts_with("HTTP/1.1 101");
        check(&format!("round {round}"), right, &(told, daemon.log()))?;
        await_state(&daemon, &machine, "exited")?;
    }
    Ok(())
}

/// Kinds of messages of a WebSocket (RFC 6455, section 5.2).
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// Opens a WebSocket, and sends messages of less than 126 bytes. Result: the rest of the connection.
pub fn send_messages(daemon: &Daemon, path: &str, messages: &[(u8, &str)]) -> Result<String> {
    let mut stream = daemon.connect()?;
    upgrade(&mut stream, path, messages)?;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    Ok(String::from_utf8_lossy(&rest).into_owned())
}

/// Makes a connection a WebSocket, and sends short messages.
pub fn upgrade(stream: &mut UnixStream, path: &str, messages: &[(u8, &str)]) -> Result<()> {
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    for (kind, text) in messages {
        // The message is masked; the mask is 0.
        let length = u8::try_from(text.len())?;
        stream.write_all(&[0x80 | kind, 0x80 | length, 0, 0, 0, 0])?;
        stream.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Returns the TCP address that a daemon logs.
pub fn address(daemon: &Daemon) -> Result<String> {
    let log = daemon.log();
    let (_, rest) = log.split_once("tcp=\"").ok_or_else(|| log.clone())?;
    Ok(rest.split('"').next().unwrap_or_default().to_owned())
}

/// Writes a certificate for a name, and its key, as files in a folder.
pub(super) fn certificate(folder: &Path, name: &str) -> Result<()> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()])?;
    fs::write(folder.join("certificate.pem"), made.cert.pem())?;
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem())?;
    Ok(())
}

/// New connections get a certificate that was put in the place of another one, after SIGHUP. One that
/// is damaged changes nothing.
pub fn renewed_certificate() -> Result<()> {
    let folder = Scratch::new()?;
    certificate(folder.path(), "127.0.0.1")?;
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (ca, key) = (file("certificate.pem"), file("key.pem"));
    let configuration =
        format!("pool = 1\nlisten = '127.0.0.1:0'\ntls_certificate = '{ca}'\ntls_key = '{key}'");
    let daemon = Daemon::start(&configuration)?;
    let made = daemon.request("POST", "/v1/tenants/default/keys", br#"{"scope": "read"}"#)?;
    let api_key = made.expect(201)?.text("key");
    let host = format!("https://{}", address(&daemon)?);
    let works = |ca: &str| {
        let output = client(
            &host,
            "programs",
            &["--ca", ca, "--key", &api_key, "-o", "json"],
        );
        output.and_then(|mut command| Ok(command.output()?.status.success()))
    };
    let old = file("old.pem");
    fs::copy(&ca, &old)?;
    check("the first one", works(&old)?, &daemon.log())?;
    certificate(folder.path(), "127.0.0.1")?;
    check("not yet", !works(&ca)?, &daemon.log())?;
    daemon.hang_up();
    until(|| works(&ca).is_ok_and(|works| works))?;
    check("not any more", !works(&old)?, &daemon.log())?;
    let renewed = file("renewed.pem");
    fs::copy(&ca, &renewed)?;
    fs::write(&ca, "no certificate")?;
    daemon.hang_up();
    until(|| daemon.log().contains("the configuration stays as it was"))?;
    check("still the second one", works(&renewed)?, &daemon.log())
}

pub fn tls() -> Result<()> {
    let folder = Scratch::new()?;
    certificate(folder.path(), "127.0.0.1")?;
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (ca, key) = (file("certificate.pem"), file("key.pem"));
    let configuration =
        format!("pool = 1\nlisten = '127.0.0.1:0'\ntls_certificate = '{ca}'\ntls_key = '{key}'");
    let daemon = Daemon::start(&configuration)?;
    let address = address(&daemon)?;
    push(&daemon)?;
    let made = daemon.request("POST", "/v1/tenants/default/keys", br#"{"scope": "read"}"#)?;
    let api_key = made.expect(201)?.text("key");
    let host = format!("https://{address}");
    let list = |ca: &str| -> Result<_> {
        let arguments = ["--ca", ca, "--key", &api_key, "-o", "json"];
        Ok(client(&host, "programs", &arguments)?.output()?)
    };
    let listed = list(&ca)?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    check(
        "programs",
        listed.status.success() && text.contains("service"),
        &listed,
    )?;
    // This certificate is not trusted.
    certificate(folder.path(), "127.0.0.1")?;
    let refused = list(&ca)?;
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    check(
        "another certificate",
        told.contains("TLS with 127.0.0.1"),
        &told,
    )?;
    let plain = client(
        &host.replace("https", "http"),
        "programs",
        &["--key", &api_key],
    )?;
    let told = String::from_utf8_lossy(&{ plain }.output()?.stderr).into_owned();
    check("HTTP without TLS", told.contains("https://"), &told)?;
    // A client that does not speak TLS gets no answer and does not delay other clients.
    let mut plain = TcpStream::connect(&address)?;
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut answer = Vec::new();
    // The connection may be reset.
    let _ = plain.read_to_end(&mut answer);
    check("without TLS", !answer.starts_with(b"HTTP"), &answer)?;
    let _silent = TcpStream::connect(&address)?;
    until(|| {
        daemon
            .request("GET", "/healthz", b"")
            .is_ok_and(|a| a.status == 200)
    })
}
