//! Untrusted text in the log, and what the daemon reveals without a key.

use super::neighbour::Scene;
use super::{Test, check};
use hartline_tests::Result;
use hartline_tests::daemon::until;
use std::io::{Read, Write};
use std::net::TcpStream;

pub const TESTS: &[(&str, Test)] = &[
    ("forged lines of the log", forged_lines),
    ("health asked by strangers", health),
];

/// Returns a tar file of one empty directory.
fn tar() -> Vec<u8> {
    let mut header = vec![0_u8; 512];
    header[..2].copy_from_slice(b"d/");
    header[100..108].copy_from_slice(b"0000755\0");
    header[108..124].copy_from_slice(b"0000000\x000000000\x00");
    header[124..148].copy_from_slice(b"00000000000\x0000000000000\x00");
    header[148..156].copy_from_slice(b"        ");
    header[156] = b'5';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header.resize(3 * 512, 0);
    header
}

fn forged_lines() -> Result<()> {
    let scene = Scene::start("pool = 1")?;
    let before = scene.daemon.log().lines().count();
    // A forged log line, a terminal title, a control sequence that overwrites the line, and text in
    // the other direction.
    let path = "/nope%0A2026-11-24T00:00:00.000000Z%20%20INFO%20forged%0D%1B%5D0;x%07%1B%5B2K\
        %C2%9B1m%E2%80%AEdrow%E2%80%A8z";
    scene.attack_push(&format!("name=x&programs={path}"), &tar())?;
    until(|| scene.daemon.log().contains("forged"))?;
    let log = scene.daemon.log();
    let lines: Vec<_> = log.lines().skip(before).collect();
    check("lines", lines.len() == 1, &lines)?;
    let is_raw = |c: char| (c.is_control() && c != '\n') || ('\u{2028}'..='\u{202e}').contains(&c);
    check("printable", !log.contains(is_raw), &log)?;
    let shown = log.contains("/nope\\n2026") && log.contains("\\u{202e}drow");
    check("escaped", shown, &log)?;
    scene.end()
}

/// Sends a request over TCP. Result: the answer.
fn ask(address: &str, path: &str, key: Option<&str>) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let key = key.map_or(String::new(), |key| format!("Authorization: {key}\r\n"));
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{key}\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Health is public and reveals nothing. Readiness needs a key, and metrics an administrator's key.
fn health() -> Result<()> {
    for public in [false, true] {
        let scene = Scene::start(&format!(
            "pool = 1\nlisten = '127.0.0.1:0'\npublic_health = {public}"
        ))?;
        let log = scene.daemon.log();
        let (_, address) = log.split_once("tcp=\"").ok_or("no address")?;
        let address = address.split('"').next().unwrap_or_default();
        let [open, forbidden] = match public {
            true => [200, 200],
            false => [401, 403],
        };
        let key = Some(scene.attacker());
        for (path, key, status) in [
            ("/healthz", None, 200),
            ("/readyz", None, open),
            ("/readyz", key, 200),
            ("/metrics", None, open),
            ("/metrics", key, forbidden),
            ("/readyz", Some("Bearer hl_0_0"), open),
        ] {
            let answer = ask(address, path, key)?;
            let expected = format!("HTTP/1.1 {status} ");
            check(path, answer.starts_with(&expected), &(public, &answer))?;
            let told = answer.contains("neighbour") || answer.contains("attacker");
            check("names of tenants", !told, &answer)?;
        }
        let health = ask(address, "/healthz", None)?;
        check("nothing but ok", health.ends_with("\r\n\r\nok\n"), &health)?;
        scene.daemon.request("GET", "/readyz", b"")?.expect(200)?;
        let metrics = scene.daemon.request("GET", "/metrics", b"")?.expect(200)?;
        let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
        let used = r#"hartline_tenant_used{tenant="neighbour",resource="memory"} 0"#;
        check("metrics", metrics.contains(used), &metrics)?;
        scene.end()?;
    }
    Ok(())
}
