//! Requests to servers: natively, and in VMs of a snapshot that are reset after each request, or not.

use super::results::{Percentiles, RequestRow};
use crate::programs::{Programs, Way, run};
use anyhow::{Context, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The server's port in its VM.
const PORT: u16 = 8080;
/// What a client sends.
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
/// Requests before the first that counts.
const WARM: u32 = 5;
/// Longest wait for a server or an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is ended when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures `count` requests to the server in each way, one after another. The server gets its port as the last argument.
pub fn measure(
    programs: &Programs,
    server: &super::Server,
    count: u32,
) -> anyhow::Result<RequestRow> {
    let directory = tempfile::tempdir()?;
    let snapshot = directory.path().join("snapshot");
    let warm_up = directory.path().join("request");
    std::fs::write(&warm_up, REQUEST)?;
    make_snapshot(programs, server, &snapshot)?;
    let native_port = free_port()?;
    let mut native = programs.command(&server.benchmark, Way::Native, false);
    native.args(server.words).arg(native_port.to_string());
    let native = Running(native.spawn()?);
    let ephemeral = serve(programs, &snapshot, &warm_up, true)?;
    let kept = serve(programs, &snapshot, &warm_up, false)?;
    let ports = [native_port, ephemeral.1, kept.1];
    await_server(native_port)?;
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    // In turn, so that a disturbance of the machine affects all of them.
    for turn in 0..count + WARM {
        for (port, times) in ports.iter().zip(&mut times) {
            let time = request(*port)?;
            if turn >= WARM {
                times.push(time);
            }
        }
    }
    drop(native);
    let [native_ms, ephemeral_ms, kept_ms] = times.each_ref().map(|times| Percentiles::of(times));
    Ok(RequestRow {
        name: server.benchmark.name,
        native_ms,
        ephemeral_ms,
        kept_ms,
    })
}

fn make_snapshot(
    programs: &Programs,
    server: &super::Server,
    directory: &Path,
) -> anyhow::Result<()> {
    let options = [
        format!("--publish={}:{PORT}", free_port()?),
        format!("--snapshot={}", directory.display()),
        "--snapshot-at=listen".to_owned(),
        "--snapshot-end".to_owned(),
    ];
    let programs = programs.with_options(options.to_vec());
    let mut command = programs.command(&server.benchmark, Way::Hartline, false);
    command.args(server.words).arg(PORT.to_string());
    run(&mut command, Way::Hartline).map(drop)
}

/// Starts a service with one VM, and waits until it is ready. Result: also its port.
fn serve(
    programs: &Programs,
    snapshot: &Path,
    warm_up: &Path,
    is_ephemeral: bool,
) -> anyhow::Result<(Running, u16)> {
    let port = free_port()?;
    let mut command = programs.hartline("serve");
    command.arg("--from").arg(snapshot);
    command.args(["--publish", &format!("{port}:{PORT}"), "--workers=1"]);
    command.args(is_ephemeral.then_some("--ephemeral"));
    command.arg("--warm-up").arg(warm_up);
    let mut server = Running(command.stderr(Stdio::piped()).spawn()?);
    let errors = server.0.stderr.take().context("no standard error")?;
    let mut line = String::new();
    BufReader::new(errors).read_line(&mut line)?;
    ensure!(line.contains("serving"), "hartline serve: {line}");
    Ok((server, port))
}

/// A port of this machine that was free just now.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

/// Waits until a server listens.
fn await_server(port: u16) -> anyhow::Result<()> {
    let start = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        ensure!(
            start.elapsed() < PATIENCE,
            "the native server does not listen"
        );
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The time from the connection to the end of the answer, ms.
fn request(port: u16) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.write_all(REQUEST)?;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer)?;
    if !answer.starts_with(b"HTTP/1.0 200") {
        bail!("a server answered {:?}", String::from_utf8_lossy(&answer));
    }
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
