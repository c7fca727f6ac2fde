//! Runs, root file systems, and requests and uploads that are refused.

use super::{check, run, start, tar};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::{Result, compile};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;

pub fn runs() -> Result<()> {
    let (daemon, program) = start()?;
    let rows: [(Value, u64, &str); 7] = [
        (json!({}), 0, "hello, world\n"),
        (json!({ "args": ["exit"] }), 7, ""),
        (
            json!({ "cpus": 1.0, "memory": 134_217_728.0, "timeout_ms": 60e3 }),
            0,
            "hello, world\n",
        ),
        (
            json!({ "args": ["copy"], "stdin": "in\nout" }),
            0,
            "in\nout",
        ),
        (
            json!({ "args": ["environment"], "env": { "B": "2", "A": "one" } }),
            0,
            "A=one\nB=2\nHOME=/root\nHOSTNAME=hartline\n",
        ),
        (json!({ "args": ["fault"] }), 139, ""),
        (
            json!({ "args": ["spin"], "timeout_ms": 300, "cpus": 2 }),
            124,
            "",
        ),
    ];
    for (mut request, code, stdout) in rows {
        request["program"] = program.as_str().into();
        let outcome = run(&daemon, &request)?;
        check("exit code", outcome["exit_code"] == code, &outcome)?;
        check("output", outcome["stdout"]["text"] == stdout, &outcome)?;
    }
    let outcome = run(&daemon, &json!({ "program": program, "args": ["bytes"] }))?;
    check("bytes", outcome["stdout"]["base64"] == "//4=", &outcome)?;
    let gush = json!({ "program": program, "args": ["gush", "20"] });
    let outcome = run(&daemon, &gush)?;
    let stdout = &outcome["stdout"];
    let length = stdout["text"].as_str().unwrap_or_default().len();
    let missing = stdout["missing"].as_u64().unwrap_or(0);
    let bounded = (15 << 20..16 << 20).contains(&length) && stdout["truncated"] == true;
    check(
        "a long output is bounded",
        bounded && length as u64 + missing == 20 << 20 && outcome["exit_code"] == 0,
        &(length, missing, &outcome["message"]),
    )?;
    let metrics = daemon.request("GET", "/metrics", b"")?.expect(200)?;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let counted = metrics.contains("hartline_runs_total{outcome=\"success\"} 6");
    check("metrics", counted, &metrics)
}

pub fn root_file_systems() -> Result<()> {
    let daemon = Daemon::start("pool = 1")?;
    let service = fs::read(compile::service()?)?;
    let archive = tar(&[
        ("bin/service", b'0', "", &service),
        ("bin/link", b'2', "service", b""),
        ("escape", b'2', "../../../../etc/passwd", b""),
    ]);
    let program = daemon.push("name=root&programs=/bin/link", &archive)?;
    check("ready", program["state"] == "ready", &program)?;
    let request = |path: &str| json!({ "program": program["id"], "path": path });
    for path in ["/bin/service", "bin/link", "/bin/../bin/service"] {
        let outcome = run(&daemon, &request(path))?;
        check(
            path,
            outcome["stdout"]["text"] == "hello, world\n",
            &outcome,
        )?;
    }
    for path in ["/escape", "/nowhere", "/bin"] {
        let outcome = run(&daemon, &request(path))?;
        check(path, outcome["exit_code"] == 125, &outcome)?;
    }
    let body = json!({ "program": program["id"] }).to_string();
    let refused = daemon.request("POST", "/v1/runs", body.as_bytes())?;
    check("field", refused.text("field") == "path", &refused)?;
    let detail = refused.text("detail");
    check(
        "its name is reported once",
        !detail.starts_with("path"),
        &detail,
    )
}

pub fn bad_requests() -> Result<()> {
    let (daemon, program) = start()?;
    let with = |field: &str, value: Value| {
        let mut request = json!({ "program": program });
        request[field] = value;
        request.to_string()
    };
    let long = "x".repeat(40_000);
    let rows = [
        ("{".to_owned(), 400, "bad-request"),
        ("[]".to_owned(), 422, "invalid-field"),
        ("{}".to_owned(), 422, "invalid-field"),
        (with("cpus", json!("two")), 422, "invalid-field"),
        (with("cpus", json!(0)), 422, "invalid-field"),
        (with("cpus", json!(1.5)), 422, "invalid-field"),
        (with("cpus", json!(-1)), 422, "invalid-field"),
        (with("memory", json!(1e30)), 422, "invalid-field"),
        (with("cpus", json!(65)), 422, "invalid-field"),
        (with("memory", json!(1)), 422, "invalid-field"),
        (with("timeout_ms", json!(0)), 422, "invalid-field"),
        (with("args", json!(["a\0b"])), 422, "invalid-field"),
        (with("args", json!([long])), 422, "invalid-field"),
        (with("env", json!({ "A=B": "1" })), 422, "invalid-field"),
        (with("path", json!("/bin/x")), 422, "invalid-field"),
        (with("unknown", json!(1)), 422, "invalid-field"),
        (with("network", json!("bridge")), 422, "invalid-field"),
        (with("network", json!("tenant")), 409, "network-unavailable"),
        (with("cpu_class", json!("fast")), 422, "invalid-field"),
        (
            with("cpu_class", json!("dedicated")),
            409,
            "no-dedicated-cpus",
        ),
        (with("program", json!("0".repeat(64))), 404, "not-found"),
        (with("stdin", json!("x".repeat(300_000))), 413, "too-large"),
    ];
    for (body, status, code) in rows {
        let answer = daemon.request("POST", "/v1/runs", body.as_bytes())?;
        let shown = body
            .replace(&program, "ID")
            .chars()
            .take(60)
            .collect::<String>();
        let is_problem = answer.head.contains("application/problem+json");
        let right = answer.status == status && answer.text("code") == code && is_problem;
        check(&shown, right, &answer)?;
        let object: Value = serde_json::from_str(&body).unwrap_or_default();
        let mut fields = object.as_object().into_iter().flatten();
        if let Some((field, _)) = fields.find(|(name, _)| *name != "program")
            && status == 422
        {
            check(&shown, answer.text("field") == *field, &answer)?;
        }
    }
    for (method, path, status) in [
        ("PUT", "/v1/runs", 405),
        ("GET", "/nowhere", 404),
        ("GET", "/v1/machines?limit=0", 422),
        ("GET", "/v1/machines?limit=x", 400),
        ("GET", "/v1/machines/%ff", 400),
        ("POST", "/v1/machines/00/start", 404),
        ("DELETE", "/v1/programs/../secret", 404),
    ] {
        let answer = daemon.request(method, path, b"")?;
        check(path, answer.status == status, &answer)?;
    }
    let plain =
        daemon.request_with("POST", "/v1/runs", &[("Content-Type", "text/plain")], b"{}")?;
    check("media type", plain.status == 415, &plain)?;
    for garbage in [&b"\x16\x03\x01\x02\x00garbage\r\n\r\n"[..], b"GET\r\n\r\n"] {
        check("garbage", daemon.raw(garbage)?.status == 400, &garbage)?;
    }
    let names = |json: &Value| json["paths"].as_object().map_or(0, serde_json::Map::len);
    let description = daemon
        .request("GET", "/openapi.json", b"")?
        .expect(200)?
        .json();
    let is_31 = description["openapi"] == "3.1.0" && names(&description) > 15;
    check("description", is_31, &description["openapi"])
}

pub fn bad_uploads() -> Result<()> {
    let daemon = Daemon::start("pool = 1\nmax_upload = 200000\nidle_timeout_s = 1")?;
    let file = |name: &'static str| vec![(name, b'0', "", &b"x"[..])];
    let rows: [(&str, Vec<u8>, &str); 6] = [
        ("no ELF", b"\x7fELF and nothing else".to_vec(), "the upload"),
        ("no tar", b"what is this".repeat(100), "the upload"),
        (
            "half a tar",
            tar(&file("name"))[..700].to_vec(),
            "the upload",
        ),
        ("above", tar(&file("../name")), ".."),
        (
            "hard link out",
            tar(&[("name", b'1', "/etc/passwd", b"")]),
            "/etc/passwd",
        ),
        (
            "an x86-64 program",
            {
                let mut elf = fs::read(compile::service()?)?;
                elf[18] = 62;
                elf
            },
            "the upload",
        ),
    ];
    for (name, bytes, message) in rows {
        let program = daemon.push("name=bad", &bytes)?;
        let text = program["message"].as_str().unwrap_or_default();
        let coded = program["state"] == "failed" && program["problem"] == "bad-upload";
        let failed = coded && text.contains(message);
        check(name, failed, &program)?;
    }
    let large = daemon.request_with("POST", "/v1/programs?name=x", &[], &vec![0; 200_001])?;
    check("too large", large.status == 413, &large.status)?;
    let empty = daemon.request_with("POST", "/v1/programs?name=x", &[], b"")?;
    check("empty", empty.status == 400, &empty)?;
    let nameless = daemon.request_with("POST", "/v1/programs?name=", &[], b"x")?;
    check("no name", nameless.text("field") == "name", &nameless)?;
    // Half an upload, then silence.
    let mut stream = daemon.connect()?;
    stream.write_all(
        b"POST /v1/programs?name=x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf",
    )?;
    let left = || fs::read_dir(daemon.data().join("tmp")).map_or(9, Iterator::count);
    until(|| left() == 1)?;
    until(|| left() == 0)?;
    daemon.request("GET", "/healthz", b"")?.expect(200)?;
    Ok(())
}
