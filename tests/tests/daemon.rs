//! hartlined: requests, tenants, machines that outlive the daemon, and failures. The daemon must be
//! started by root, so other users list these tests as ignored.

#[path = "daemon/commands.rs"]
mod commands;
#[path = "daemon/connections.rs"]
mod connections;
#[path = "daemon/damage.rs"]
mod damage;
#[path = "daemon/described.rs"]
mod described;
#[path = "daemon/faults.rs"]
mod faults;
#[path = "daemon/kept.rs"]
mod kept;
#[path = "daemon/lists.rs"]
mod lists;
#[path = "daemon/logs.rs"]
mod logs;
#[path = "daemon/networks.rs"]
mod networks;
#[path = "daemon/operating.rs"]
mod operating;
#[path = "daemon/privileges.rs"]
mod privileges;
#[path = "daemon/statistics.rs"]
mod statistics;
#[path = "daemon/violations.rs"]
mod violations;
#[path = "daemon/volumes.rs"]
mod volumes;

use hartline_tests::daemon::{Daemon, until};
use hartline_tests::suite::Suite;
use hartline_tests::{Result, compile};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::process::ExitCode;

type Test = fn() -> Result<()>;

const TESTS: &[(&str, Test)] = &[
    ("runs", runs),
    ("root file systems", root_file_systems),
    ("bad requests", bad_requests),
    ("bad uploads", bad_uploads),
    ("tenants", tenants),
    ("machines", machines),
    ("machines outlive it", machines_outlive_it),
    ("idempotency", idempotency),
    ("what is left", what_is_left),
    ("command line", commands::command_line),
    ("service", commands::service),
    ("limits demanded", commands::limits_demanded),
    ("many connections", faults::many_connections),
    ("slow clients", faults::slow_clients),
    ("half uploads", faults::half_uploads),
    ("logs that rotate", logs::rotation),
    ("logs with times", logs::times),
    ("outputs of runs", logs::outputs_of_runs),
    ("ids of others", faults::ids_of_others),
    ("replayed keys", faults::replayed_keys),
    ("deleted while running", faults::deleted_while_running),
    ("tar tricks", faults::tar_tricks),
    ("VMM killed", faults::vmm_killed),
    ("waiting VMMs killed", faults::pool_killed),
    ("killed under load", faults::killed_under_load),
    ("its description", described::description_holds),
    ("lists and events", lists::lists),
    ("short ids", lists::short_ids),
    ("rate limit", lists::rate_limit),
    ("asynchronous runs", kept::asynchronous_runs),
    ("images on demand", kept::images_on_demand),
    ("garbage collection", kept::garbage_collection),
    ("volumes", volumes::volumes),
    ("volumes of others", volumes::of_others),
    ("volumes: every operation", volumes::operations),
    ("networks", networks::networks),
    ("networks with IPv6", networks::ipv6),
    ("networks with exceptions", networks::exceptions),
    ("networks: limits that change", networks::limits),
    ("dedicated processors", kept::dedicated_processors),
    ("privileges", privileges::of_each_process),
    ("service killed", privileges::service_killed),
    ("spawner killed", privileges::spawner_killed),
    ("data that only root reaches", privileges::closed_directory),
    ("data of an earlier version", privileges::earlier_version),
    ("attach", connections::attach),
    ("TLS", connections::tls),
    (
        "certificate that is renewed",
        connections::renewed_certificate,
    ),
    ("configuration that is reloaded", operating::reload),
    ("invalid configuration", operating::invalid_configuration),
    ("started at once after a kill", operating::started_at_once),
    ("long output", operating::long_output),
    ("backup", operating::backup),
    ("full disk", damage::full_disk),
    ("ends on a full disk", damage::ends_on_a_full_disk),
    ("no room for translations", damage::full_images),
    ("long translation", damage::long_translation),
    ("VMM that crashes", damage::crash),
    ("VMM that hangs", damage::hang),
    ("forbidden system call", violations::forbidden_call),
    (
        "forbidden system call without its number",
        violations::without_number,
    ),
];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for (name, test) in TESTS {
        suite.add_root_kvm(*name, test);
    }
    suite.run()
}

/// Starts a daemon with the service program. Result: the daemon and the program's id.
fn start() -> Result<(Daemon, String)> {
    start_with("pool = 2")
}

/// Starts a daemon with another configuration.
fn start_with(configuration: &str) -> Result<(Daemon, String)> {
    let daemon = Daemon::start(configuration)?;
    let program = push(&daemon)?;
    Ok((daemon, program))
}

fn push(daemon: &Daemon) -> Result<String> {
    let program = daemon.push("name=service", &fs::read(compile::service()?)?)?;
    match (program["state"].as_str(), program["message"].as_str()) {
        (Some("ready"), Some("")) => Ok(program["id"].as_str().unwrap_or_default().to_owned()),
        _ => Err(format!("{program}, {}", daemon.log()).into()),
    }
}

/// Runs a program; the request must succeed.
fn run(daemon: &Daemon, request: &Value) -> Result<Value> {
    let body = request.to_string();
    Ok(daemon
        .request("POST", "/v1/runs", body.as_bytes())?
        .expect(200)?
        .json())
}

/// Makes and starts a machine. Result: its path in the API.
fn machine(daemon: &Daemon, program: &str, args: &[&str]) -> Result<String> {
    let body = json!({ "program": program, "args": args, "start": true }).to_string();
    let made = daemon
        .request("POST", "/v1/machines", body.as_bytes())?
        .expect(201)?;
    Ok(format!("/v1/machines/{}", made.text("id")))
}

fn state(daemon: &Daemon, machine: &str) -> Result<String> {
    let answer = daemon.request("GET", machine, b"")?.expect(200)?;
    Ok(answer.text("state"))
}

fn await_state(daemon: &Daemon, machine: &str, wanted: &str) -> Result<()> {
    until(|| state(daemon, machine).is_ok_and(|state| state == wanted)).map_err(|_| {
        let answer = daemon.request("GET", machine, b"");
        format!("not {wanted}: {answer:?}, {}", daemon.log()).into()
    })
}

fn check(what: &str, is: bool, found: &impl std::fmt::Debug) -> Result<()> {
    match is {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}").into()),
    }
}

fn runs() -> Result<()> {
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
            "A=one\nB=2\n",
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

/// Returns a tar file with these members.
fn tar(members: &[(&str, u8, &str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, target, contents) in members {
        let mut header = [0u8; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, b"0000755\x000000000\x000000000\0");
        put(124, format!("{:011o}\0", contents.len()).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, &[*kind]);
        put(157, target.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(contents);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn root_file_systems() -> Result<()> {
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

fn bad_requests() -> Result<()> {
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
        ("GET", "/v1/runs", 405),
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

fn bad_uploads() -> Result<()> {
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

fn tenants() -> Result<()> {
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

fn machines() -> Result<()> {
    let (daemon, program) = start()?;
    let ended = machine(&daemon, &program, &["exit"])?;
    let waited = daemon.request("GET", &format!("{ended}/wait?seconds=60"), b"")?;
    let right = waited.text("state") == "exited" && waited.text("exit_code") == "7";
    check("wait", right, &waited)?;
    let again = daemon.request("POST", &format!("{ended}/start"), b"")?;
    check("started again", again.status == 200, &again)?;
    await_state(&daemon, &ended, "exited")?;

    let ticking = machine(&daemon, &program, &["tick"])?;
    await_state(&daemon, &ticking, "running")?;
    let length = || -> Result<usize> {
        let log = daemon.request("GET", &format!("{ticking}/logs"), b"")?;
        Ok(log.expect(200)?.body.len())
    };
    until(|| length().is_ok_and(|length| length >= 10))?;
    for (action, status) in [
        ("resume", 409),
        ("pause", 200),
        ("pause", 409),
        ("start", 409),
    ] {
        let answer = daemon.request("POST", &format!("{ticking}/{action}"), b"")?;
        check(action, answer.status == status, &answer)?;
    }
    let before = length()?;
    std::thread::sleep(std::time::Duration::from_millis(500));
    check("paused", length()? == before, &before)?;
    daemon
        .request("POST", &format!("{ticking}/resume"), b"")?
        .expect(200)?;
    until(|| length().is_ok_and(|length| length > before))?;
    let stats = daemon
        .request("GET", &format!("{ticking}/stats"), b"")?
        .json();
    let used = stats["memory"].as_u64().unwrap_or(0);
    check("memory", (1 << 20..1 << 30).contains(&used), &stats)?;
    statistics::of_running(&daemon, &ticking)?;
    let busy = daemon.request("DELETE", &ticking, b"")?;
    check("deleted while running", busy.status == 409, &busy)?;
    let path = format!("/v1/programs/{program}");
    let used = daemon.request("DELETE", &path, b"")?;
    check(
        "program in use",
        used.text("code") == "program-in-use",
        &used,
    )?;
    daemon
        .request("POST", &format!("{ticking}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &ticking, "exited")?;
    let killed = daemon.request("GET", &ticking, b"")?;
    check("killed", killed.text("exit_code") == "137", &killed)?;
    // The program takes the default action of SIGTERM.
    let idle = machine(&daemon, &program, &["idle"])?;
    await_state(&daemon, &idle, "running")?;
    daemon
        .request("POST", &format!("{idle}/stop"), b"")?
        .expect(200)?;
    await_state(&daemon, &idle, "exited")?;
    let stopped = daemon.request("GET", &idle, b"")?;
    check("stopped", stopped.text("exit_code") == "143", &stopped)?;
    for machine in [&ended, &ticking, &idle] {
        daemon.request("DELETE", machine, b"")?.expect(204)?;
    }
    daemon.request("DELETE", &path, b"")?.expect(204)?;
    let left = fs::read_dir(daemon.data().join("machines"))?.count();
    check("files", left == 0, &left)
}

fn machines_outlive_it() -> Result<()> {
    let (mut daemon, program) = start()?;
    let ticking = machine(&daemon, &program, &["tick"])?;
    let idle: Vec<_> = (0..4)
        .map(|_| machine(&daemon, &program, &["idle"]))
        .collect::<Result<_>>()?;
    for machine in idle.iter().chain([&ticking]) {
        await_state(&daemon, machine, "running")?;
    }
    let length = |daemon: &Daemon| -> Result<usize> {
        let log = daemon.request("GET", &format!("{ticking}/logs"), b"")?;
        Ok(log.expect(200)?.body.len())
    };
    until(|| length(&daemon).is_ok_and(|length| length > 0))?;
    daemon.kill()?;
    let log = daemon.data().join("machines");
    let file = log
        .join(ticking.rsplit('/').next().unwrap_or_default())
        .join("stdout");
    let before = fs::metadata(&file)?.len();
    until(|| fs::metadata(&file).is_ok_and(|file| file.len() > before))?;
    daemon.restart()?;
    for machine in idle.iter().chain([&ticking]) {
        check(
            "found again",
            state(&daemon, machine)? == "running",
            machine,
        )?;
    }
    // Killing the daemon again and again loses nothing.
    for _ in 0..3 {
        daemon.kill()?;
        daemon.restart()?;
    }
    daemon
        .request("POST", &format!("{}/stop", idle[0]), b"")?
        .expect(200)?;
    await_state(&daemon, &idle[0], "exited")?;
    let code = daemon.request("GET", &idle[0], b"")?.text("exit_code");
    check("exit code", code == "143", &code)?;
    // A machine ends while no daemon runs.
    let pid = daemon.request("GET", &format!("{ticking}/stats"), b"")?;
    check("runs", pid.json()["cpu_ms"].is_u64(), &pid)?;
    daemon
        .request("POST", &format!("{ticking}/stop"), b"")?
        .expect(200)?;
    daemon.kill()?;
    std::thread::sleep(std::time::Duration::from_secs(3));
    daemon.restart()?;
    await_state(&daemon, &ticking, "exited")?;
    let code = daemon.request("GET", &ticking, b"")?.text("exit_code");
    check("exit code that nobody saw", code == "143", &code)
}

fn idempotency() -> Result<()> {
    let (daemon, program) = start()?;
    let make = |key: &str, args: &[&str]| {
        let body = json!({ "program": program, "args": args }).to_string();
        let headers = [
            ("Idempotency-Key", key),
            ("Content-Type", "application/json"),
        ];
        daemon.request_with("POST", "/v1/machines", &headers, body.as_bytes())
    };
    let first = make("one", &[])?.expect(201)?;
    let second = make("one", &[])?.expect(200)?;
    check("same", first.text("id") == second.text("id"), &second)?;
    let other = make("one", &["exit"])?.expect(409)?;
    check("code", other.text("code") == "idempotency-conflict", &other)?;
    let all = daemon.request("GET", "/v1/machines", b"")?.json();
    check("one machine", all.as_array().map(Vec::len) == Some(1), &all)
}

/// The daemon's descriptors and children are the same before and after runs.
fn what_is_left() -> Result<()> {
    let (daemon, program) = start()?;
    let request = json!({ "program": program });
    let processes = [daemon.pid(), daemon.service()?];
    let descriptors = || {
        let of = |pid| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        processes.map(of).iter().sum::<usize>()
    };
    let children = || daemon.jailed().len();
    run(&daemon, &request)?;
    // The pool is full again.
    let settled = || {
        let ready = daemon.request("GET", "/readyz", b"");
        ready.is_ok_and(|ready| ready.json()["vmms_ready"] == 2)
    };
    until(settled)?;
    std::thread::sleep(std::time::Duration::from_millis(500));
    let before = (descriptors(), children());
    for _ in 0..30 {
        run(&daemon, &request)?;
    }
    until(|| descriptors() <= before.0 && children() <= before.1)
        .map_err(|_| format!("{before:?}, then {:?}", (descriptors(), children())).into())
}
