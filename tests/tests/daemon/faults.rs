//! Misbehaving clients, ids of other tenants, and a daemon that is killed again and again.

use super::{await_state, check, machine, push, start, state, tar};
use hartline_tests::Result;
use hartline_tests::daemon::{Answer, Client, Daemon, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Connections of `many_connections`; each is a descriptor here and one in the daemon.
const CONNECTIONS: usize = 3000;
/// Tolerance for other descriptors: the daemon may start a VMM more than its pool has, at any time.
const OTHERS: usize = 32;

fn descriptors(daemon: &Daemon) -> usize {
    let service = daemon.service();
    let directory = service.and_then(|pid| Ok(fs::read_dir(format!("/proc/{pid}/fd"))?));
    directory.map_or(0, Iterator::count)
}

/// Raises this process's descriptor limit to the hard limit.
fn raise_limit() -> Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is written, then read.
    let done = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit)
    };
    check("limit of descriptors", done == 0, &limit.rlim_max)
}

/// Thousands of silent connections do not slow other clients down.
pub fn many_connections() -> Result<()> {
    raise_limit()?;
    let daemon = Daemon::start("pool = 1")?;
    let before = descriptors(&daemon);
    let idle = (0..CONNECTIONS)
        .map(|_| daemon.connect())
        .collect::<Result<Vec<_>>>()?;
    until(|| descriptors(&daemon) >= before + CONNECTIONS - OTHERS)
        .map_err(|_| format!("{before}, then {} descriptors", descriptors(&daemon)))?;
    let begin = Instant::now();
    daemon.request("GET", "/readyz", b"")?.expect(200)?;
    let time = begin.elapsed();
    // An idle machine takes milliseconds; a busy one must answer before silent connections time
    // out.
    check("answered", time < Duration::from_secs(60), &time)?;
    drop(idle);
    until(|| descriptors(&daemon) <= before + OTHERS)
        .map_err(|_| format!("{before}, then {} descriptors", descriptors(&daemon)).into())
}

/// Slow clients that hold all connections are cut off: clients that send half a head, that send it
/// byte by byte, or that are silent after a request.
pub fn slow_clients() -> Result<()> {
    let daemon = Daemon::start("pool = 1\nmax_connections = 6")?;
    let mut held = (0..4)
        .map(|_| daemon.connect())
        .collect::<Result<Vec<_>>>()?;
    for stream in &mut held[..2] {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: slo")?;
    }
    for stream in &mut held[2..] {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")?;
        let mut answer = [0; 15];
        stream.read_exact(&mut answer)?;
        check("answer", &answer == b"HTTP/1.1 200 OK", &answer)?;
    }
    let cut = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let slow = daemon.connect()?;
            scope.spawn(|| drip(slow, &cut));
        }
        let answer = daemon.request("GET", "/healthz", b"");
        cut.store(true, Ordering::Relaxed);
        answer?.expect(200)
    })?;
    Ok(())
}

/// Sends a head byte by byte until the daemon closes the connection.
fn drip(mut stream: UnixStream, cut: &AtomicBool) {
    while !cut.load(Ordering::Relaxed) && stream.write_all(b"x").is_ok() {
        thread::sleep(Duration::from_millis(200));
    }
}

/// A JSON body that stops coming is refused, and its connection does not stay busy.
pub fn half_requests() -> Result<()> {
    let daemon = Daemon::start("pool = 1\nidle_timeout_s = 1")?;
    for path in ["/v1/runs", "/v1/machines"] {
        let mut stream = daemon.connect()?;
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        )?;
        stream.write_all(b"Content-Length: 100\r\n\r\n{\"program\":")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let is_right =
            answer.starts_with("HTTP/1.1 400") && answer.contains("no byte came for 1 s");
        check(path, is_right, &answer)?;
    }
    Ok(())
}

/// Uploads that end early leave nothing behind.
pub fn half_uploads() -> Result<()> {
    let daemon = Daemon::start("pool = 1")?;
    let head = b"POST /v1/programs?name=x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    let chunked =
        b"POST /v1/programs?name=x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for number in 0..40 {
        let mut stream = daemon.connect()?;
        stream.write_all(if number % 2 == 0 { head } else { chunked })?;
        stream.write_all(b"4\r\nhalf\r\n")?;
        if number % 4 == 0 {
            // The daemon may answer; this end reads nothing.
            stream.shutdown(Shutdown::Write)?;
        }
    }
    let files = |name: &str| fs::read_dir(daemon.data().join(name)).map_or(99, Iterator::count);
    until(|| files("tmp") == 0)?;
    check("uploads", files("uploads") == 0, &files("uploads"))?;
    let programs = daemon.request("GET", "/v1/programs", b"")?.json();
    check("programs", programs == json!([]), &programs)
}

/// Resident memory of the daemon, bytes.
pub(super) fn daemon_memory(daemon: &Daemon) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.service()?))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let word = line.and_then(|line| line.split_whitespace().next());
    Ok(word.ok_or("no VmRSS")?.parse::<u64>()? << 10)
}

/// Requests for another tenant's objects get the same answers as for missing objects.
pub fn ids_of_others() -> Result<()> {
    let (daemon, program) = start()?;
    let theirs = machine(&daemon, &program, &["idle"])?;
    daemon
        .request("PUT", "/v1/tenants/other", b"{}")?
        .expect(200)?;
    let made = daemon.request("POST", "/v1/tenants/other/keys", br#"{"scope": "write"}"#)?;
    let key = format!("Bearer {}", made.expect(201)?.text("key"));
    let ask = |method: &str, path: &str, body: &str| -> Result<(u16, Vec<u8>)> {
        let headers = [
            ("Authorization", key.as_str()),
            ("Content-Type", "application/json"),
            ("Idempotency-Key", "the same"),
        ];
        let answer = daemon.request_with(method, path, &headers, body.as_bytes())?;
        Ok((answer.status, answer.body))
    };
    let none = "0".repeat(32);
    for (method, end) in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/start"),
        ("POST", "/stop"),
        ("POST", "/kill"),
        ("POST", "/pause"),
        ("POST", "/suspend"),
        ("POST", "/resume"),
        ("GET", "/wait?seconds=0"),
        ("GET", "/logs"),
        ("GET", "/stats"),
    ] {
        let found = ask(method, &format!("{theirs}{end}"), "")?;
        let nothing = ask(method, &format!("/v1/machines/{none}{end}"), "")?;
        check(end, found == nothing && found.0 == 404, &(found, nothing))?;
    }
    let with = |program: &str| json!({ "program": program }).to_string();
    let none = "0".repeat(64);
    for path in ["/v1/machines", "/v1/runs"] {
        let found = ask("POST", path, &with(&program))?;
        let nothing = ask("POST", path, &with(&none))?;
        check(path, found == nothing && found.0 == 404, &(found, nothing))?;
    }
    for method in ["GET", "DELETE"] {
        let found = ask(method, &format!("/v1/programs/{program}"), "")?;
        let nothing = ask(method, &format!("/v1/programs/{none}"), "")?;
        check(
            method,
            found == nothing && found.0 == 404,
            &(found, nothing),
        )?;
    }
    // Lists, filters and events do not show them either.
    let mut events = daemon.connect()?;
    let head = format!("GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n\r\n");
    events.write_all(head.as_bytes())?;
    let mut heard = vec![0; 4096];
    let mut length = events.read(&mut heard)?;
    for path in ["/v1/machines", "/v1/machines?state=running", "/v1/programs"] {
        let list = ask("GET", path, "")?;
        check(path, list == (200, b"[]".to_vec()), &list)?;
    }
    check(
        "it was left alone",
        state(&daemon, &theirs)? != "exited",
        &theirs,
    )?;
    daemon
        .request("POST", &format!("{theirs}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &theirs, "exited")?;
    events.set_read_timeout(Some(Duration::from_millis(300)))?;
    // No event is expected.
    length += events.read(&mut heard[length..]).unwrap_or(0);
    let heard = String::from_utf8_lossy(&heard[..length]).into_owned();
    check("events", !heard.contains("data:"), &heard)
}

/// The same request is sent many times at once, and again after everything else.
pub fn replayed_keys() -> Result<()> {
    let (mut daemon, program) = start()?;
    let body = json!({ "program": program, "args": ["exit"], "start": true }).to_string();
    let send = |daemon: &Daemon| -> Result<Answer> {
        let headers = [
            ("Idempotency-Key", "again"),
            ("Content-Type", "application/json"),
        ];
        daemon.request_with("POST", "/v1/machines", &headers, body.as_bytes())
    };
    let answers: Vec<(u16, String)> = thread::scope(|scope| {
        let senders: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| send(&daemon).map(|answer| (answer.status, answer.text("id")))))
            .collect();
        let joined = senders.into_iter().map(|sender| match sender.join() {
            Ok(answer) => answer,
            Err(_) => Err("a sender panicked".into()),
        });
        joined.collect::<Result<_>>()
    })?;
    let made = answers.iter().filter(|(status, _)| *status == 201).count();
    let same = answers
        .iter()
        .all(|(status, id)| [200, 201].contains(status) && *id == answers[0].1);
    check("one machine", made == 1 && same, &answers)?;
    let path = format!("/v1/machines/{}", answers[0].1);
    await_state(&daemon, &path, "exited")?;
    daemon.kill()?;
    daemon.restart()?;
    let again = send(&daemon)?.expect(200)?;
    let known = again.text("id") == answers[0].1 && again.text("state") == "exited";
    check("after a restart", known, &again)
}

/// Machines are started, deleted and killed at the same time: each is complete or gone.
pub fn deleted_while_running() -> Result<()> {
    let (daemon, program) = start()?;
    for _ in 0..8 {
        let path = machine(&daemon, &program, &["tick"])?;
        let gone = thread::scope(|scope| -> Result<bool> {
            let killer = scope.spawn(|| daemon.request("POST", &format!("{path}/kill"), b""));
            let start = Instant::now();
            let mut gone = false;
            while !gone && start.elapsed() < Duration::from_secs(120) {
                let deleted = daemon.request("DELETE", &path, b"")?;
                check("delete", [204, 409].contains(&deleted.status), &deleted)?;
                gone = deleted.status == 204;
            }
            let killed = killer.join().map_err(|_| "the killer panicked")??;
            let known = [200, 404, 409].contains(&killed.status);
            check("kill", known, &killed)?;
            Ok(gone)
        })?;
        // The kill may have come before the machine had a process: its request failed, and it runs.
        if !gone {
            daemon.request("POST", &format!("{path}/kill"), b"")?;
            await_state(&daemon, &path, "exited")?;
            daemon.request("DELETE", &path, b"")?.expect(204)?;
        }
        daemon.request("GET", &path, b"")?.expect(404)?;
    }
    let left = || fs::read_dir(daemon.data().join("machines")).map_or(99, Iterator::count);
    until(|| left() == 0)
}

/// Tar members with paths outside their tree, or with more data than they seem to have.
pub fn tar_tricks() -> Result<()> {
    let daemon = Daemon::start("pool = 1")?;
    let refused: [(&str, Vec<u8>, &str); 5] = [
        ("through ..", tar(&[("a/../../b", b'0', "", b"x")]), ".."),
        (
            "links in a circle",
            tar(&[
                ("a", b'2', "b", b""),
                ("b", b'2', "a", b""),
                ("a/c", b'0', "", b"x"),
            ]),
            "symbolic links",
        ),
        ("hard link up", tar(&[("a", b'1', "../a", b"")]), ".."),
        ("larger than it can be", huge(), "larger than"),
        (
            "device without a number",
            tar(&[("disk", b'4', "", b"")]),
            "bad device number",
        ),
    ];
    for (name, bytes, message) in refused {
        let program = daemon.push("name=bad", &bytes)?;
        let text = program["message"].as_str().unwrap_or_default();
        let failed = program["state"] == "failed" && text.contains(message);
        check(name, failed, &program)?;
    }
    // Absolute paths and links refer to the tree, never to the host.
    let marker = daemon.data().join("tmp").display().to_string();
    let accepted = tar(&[
        (&format!("{marker}/absolute"), b'0', "", b"x"),
        ("link", b'2', &marker, b""),
        ("link/through", b'0', "", b"x"),
        ("pipe", b'6', "", b""),
    ]);
    let program = daemon.push("name=odd", &accepted)?;
    check("accepted", program["state"] == "ready", &program)?;
    for name in ["absolute", "through"] {
        let made = fs::exists(format!("{marker}/{name}"))?;
        check("nothing was made on the host", !made, &name)?;
    }
    Ok(())
}

/// Returns a tar file of a kilobyte whose member claims to have 64 GiB.
fn huge() -> Vec<u8> {
    let mut bytes = tar(&[("huge", b'0', "", b"")]);
    bytes[124..136].copy_from_slice(b"77777777777\0");
    bytes[148..156].copy_from_slice(b"        ");
    // Tar encodes sizes from 8 GiB on in base 256.
    bytes[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0]);
    let sum: u32 = bytes[..512].iter().map(|&byte| u32::from(byte)).sum();
    bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    bytes
}

/// The daemon is killed while clients make machines. A client with an answer finds its machine,
/// once, and the machine runs to its end.
pub fn killed_under_load() -> Result<()> {
    const CLIENTS: usize = 3;
    const KILLS: usize = 4;
    let (mut daemon, program) = start()?;
    let requests = daemon.client();
    let told: Mutex<BTreeMap<String, String>> = Mutex::default();
    let over = AtomicBool::new(false);
    let (told_to, is_over, program_id) = (&told, &over, &program);
    let restarted = thread::scope(|scope| {
        for client in 0..CLIENTS {
            let requests = &requests;
            scope.spawn(move || {
                let mut number = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let key = format!("{client}-{number}");
                    // Retry with the same key until there is an answer.
                    match ask_for_machine(requests, &key, program_id) {
                        Some(id) => {
                            let mut told = told_to.lock().unwrap_or_else(|e| e.into_inner());
                            told.insert(key, id);
                            number += 1;
                        }
                        None => thread::sleep(Duration::from_millis(20)),
                    }
                }
            });
        }
        let mut again = || -> Result<()> {
            for kill in 1..=KILLS {
                let enough = || told.lock().unwrap_or_else(|e| e.into_inner()).len() >= kill * 6;
                until(enough)?;
                daemon.kill()?;
                daemon.restart()?;
            }
            Ok(())
        };
        let result = again();
        over.store(true, Ordering::Relaxed);
        result
    });
    restarted?;
    let told = told.into_inner().unwrap_or_else(|e| e.into_inner());
    let all = || -> Result<BTreeMap<String, Value>> {
        let answer = daemon.request("GET", "/v1/machines?limit=1000", b"")?;
        let machines = answer.expect(200)?.json();
        let machines = machines.as_array().cloned().unwrap_or_default();
        let by_id = machines.into_iter().map(|machine| {
            let id = machine["id"].as_str().unwrap_or_default().to_owned();
            (id, machine)
        });
        Ok(by_id.collect())
    };
    let is_done = |machine: &Value| machine["state"] == "exited" && machine["exit_code"] == 7;
    let wanted = || all().is_ok_and(|all| all.values().all(is_done));
    until(wanted).map_err(|_| {
        let rest = all().map(|all| {
            all.into_values()
                .filter(|m| !is_done(m))
                .collect::<Vec<_>>()
        });
        format!("not done: {rest:?}, {}", daemon.log())
    })?;
    let all = all()?;
    for (key, id) in &told {
        check(key, all.contains_key(id), &id)?;
    }
    let distinct: std::collections::BTreeSet<_> = told.values().collect();
    check("one for each key", distinct.len() == told.len(), &told)?;
    // The kill may have cut off one request of each client after its machine was made.
    let most = told.len() + CLIENTS;
    check(
        "no machine twice",
        all.len() <= most,
        &(all.len(), told.len()),
    )
}

/// Makes and starts a machine. Result: its id, if there was an answer.
fn ask_for_machine(client: &Client, key: &str, program: &str) -> Option<String> {
    let body = json!({ "program": program, "args": ["exit"], "start": true }).to_string();
    let answer = client.request("POST", "/v1/machines", Some(key), body.as_bytes());
    let answer = answer.ok()?;
    let is_made = matches!(answer.status, 200 | 201);
    is_made.then(|| answer.json()["id"].as_str().map(str::to_owned))?
}

/// A VMM that is killed from outside is reported as a failure, and the machine can run again.
pub fn vmm_killed() -> Result<()> {
    let daemon = Daemon::start("pool = 1")?;
    let program = push(&daemon)?;
    let path = machine(&daemon, &program, &["tick"])?;
    await_state(&daemon, &path, "running")?;
    let id = path.rsplit('/').next().unwrap_or_default();
    let output = daemon.data().join("machines").join(id).join("stdout");
    let vmm = fs::read_dir("/proc")?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<i32>().ok()?;
        let link = fs::read_link(entry.path().join("fd/1")).ok()?;
        (link == output).then_some(pid)
    });
    let vmm = vmm.ok_or("the VMM was not found")?;
    // SAFETY: no memory is involved.
    check("kill", unsafe { libc::kill(vmm, libc::SIGKILL) } == 0, &vmm)?;
    await_state(&daemon, &path, "failed")?;
    let told = daemon.request("GET", &path, b"")?.text("message");
    check("message", told.contains("crashed or was killed"), &told)?;
    daemon
        .request("POST", &format!("{path}/start"), b"")?
        .expect(200)?;
    await_state(&daemon, &path, "running")
}

/// VMMs of the pool that end are reaped and replaced at once, also if no run needs one.
pub fn pool_killed() -> Result<()> {
    const SIZE: usize = 3;
    let daemon = Daemon::start(&format!("pool = {SIZE}"))?;
    let full = || {
        let answer = daemon.request("GET", "/readyz", b"");
        let ready = answer.is_ok_and(|answer| answer.json()["vmms_ready"] == SIZE);
        ready && daemon.jailed().len() == SIZE
    };
    until(full)?;
    let mut fastest = Duration::MAX;
    // Other tests may use the processors meanwhile, so the fastest of several attempts counts.
    for kills in [1, SIZE, 1, SIZE] {
        let killed = &daemon.jailed()[..kills];
        let begin = Instant::now();
        for &pid in killed {
            // SAFETY: no memory is involved; the process is a child of the daemon.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
        }
        let reaped = || {
            let mut left = killed.iter();
            left.all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        };
        let deadline = || begin.elapsed() > Duration::from_secs(30);
        until(|| deadline() || reaped() && full())?;
        check(
            "reaped and replaced",
            !deadline(),
            &(killed, daemon.jailed()),
        )?;
        fastest = fastest.min(begin.elapsed());
    }
    check("time", fastest < Duration::from_secs(1), &fastest)
}
