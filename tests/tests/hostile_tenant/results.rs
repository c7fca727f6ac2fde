//! A compromised VMM that gives the daemon another result than that of its program. The test writes
//! in place of the VMM: to the file for the result, and to the channel.

use super::memory::peak;
use super::neighbour::Scene;
use super::{Test, check, vmm};
use hartline_tests::Result;
use hartline_tests::daemon::until;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, Test)] = &[
    ("results that are none", files),
    ("messages that are none", messages),
];

/// Length of a result file that the daemon must not read whole, bytes.
const HUGE: u64 = 512 << 20;
/// The additional memory that the daemon may need for it, bytes.
const MOST: u64 = 64 << 20;
/// The limit of a result, bytes.
const LIMIT: usize = 128 << 10;

/// A result of exit code 7.
const VALID: &str = r#"{"code":7,"message":"","boot_us":1,"run_us":1,"exits":{"calls":0,
    "kicks":0,"interruptions":0,"sleeps":0,"wakes":0,"yields":0}"#;

/// A result with `with` in place of `what`.
fn valid_but(what: &str, with: &[u8]) -> Vec<u8> {
    let (before, after) = VALID.split_once(what).unwrap_or((VALID, ""));
    [before.as_bytes(), with, after.as_bytes(), b"}"].concat()
}

/// Writes a result file in place of a machine's VMM, and ends the VMM. Result: the machine.
fn give(scene: &Scene, contents: &[u8], length: Option<u64>) -> Result<String> {
    let body = json!({ "program": scene.program(), "args": ["idle"], "start": true });
    let (machine, vmm) = vmm::start(scene, scene.neighbour(), &body)?;
    let path = scene.daemon.data().join("machines").join(&machine);
    let mut file = File::options().write(true).open(path.join("result"))?;
    file.write_all(contents)?;
    if let Some(length) = length {
        file.set_len(length)?;
    }
    vmm::kill(vmm);
    Ok(machine)
}

fn get(scene: &Scene, machine: &str) -> Result<Value> {
    let path = format!("/v1/machines/{machine}");
    let found = scene.request(scene.neighbour(), "GET", &path, b"")?;
    Ok(found.expect(200)?.json())
}

fn files() -> Result<()> {
    let mut scene = Scene::start("pool = 2")?;
    let nested = "[".repeat(LIMIT / 2);
    let unknown = format!(
        r#""code":7,"more":{nested}{}"#,
        "]".repeat(LIMIT / 2 - 1000)
    );
    let spaces = " ".repeat(LIMIT);
    // The last column is the length of the file, if its end is a hole.
    let rows: [(&str, Vec<u8>, Option<u64>, &str); 9] = [
        ("empty", Vec::new(), None, "crashed or was killed"),
        (
            "nested",
            valid_but("{\"calls\":0", nested.as_bytes()),
            None,
            "line 1, column",
        ),
        (
            "unknown and nested",
            valid_but("\"code\":7", unknown.as_bytes()),
            None,
            "line 1",
        ),
        ("NaN", valid_but("7", b"NaN"), None, "line 1, column 9"),
        (
            "negative",
            valid_but("\"run_us\":1", b"\"run_us\":-1"),
            None,
            "line 1",
        ),
        (
            "large code",
            valid_but("7", b"263"),
            None,
            "line 1, column 11",
        ),
        (
            "no UTF-8",
            valid_but("\"\"", b"\"\xff\xc0\""),
            None,
            "line 1",
        ),
        (
            "with many spaces",
            [VALID.as_bytes(), b"}", spaces.as_bytes()].concat(),
            None,
            "longer than 131072 bytes",
        ),
        (
            "huge",
            valid_but("7", b"7"),
            Some(HUGE),
            "longer than 131072 bytes",
        ),
    ];
    let before = peak(scene.daemon.service()?)?;
    for (name, contents, length, expected) in rows {
        let machine = give(&scene, &contents, length)?;
        vmm::await_state(&scene, scene.neighbour(), &machine, "failed")?;
        let found = get(&scene, &machine)?;
        let message = found["message"].as_str().unwrap_or_default();
        let told = message.contains(expected) && message.len() < 100;
        check(name, told && found["exit_code"].is_null(), &found)?;
    }
    let machine = give(&scene, &valid_but("7", b"7"), None)?;
    vmm::await_state(&scene, scene.neighbour(), &machine, "exited")?;
    let found = get(&scene, &machine)?;
    check("a result", found["exit_code"] == 7, &found)?;
    let more = peak(scene.daemon.service()?)? - before;
    println!("the daemon needed {} MiB more", more >> 20);
    check("memory", more < MOST, &more)?;

    // The next daemon finds such a file.
    let body = json!({ "program": scene.program(), "args": ["idle"], "start": true });
    let (machine, vmm) = vmm::start(&scene, scene.neighbour(), &body)?;
    let path = scene.daemon.data().join("machines").join(&machine);
    scene.daemon.kill()?;
    File::options()
        .write(true)
        .open(path.join("result"))?
        .set_len(HUGE)?;
    vmm::kill(vmm);
    scene.daemon.restart()?;
    vmm::await_state(&scene, scene.neighbour(), &machine, "failed")?;
    let found = get(&scene, &machine)?;
    let message = found["message"].as_str().unwrap_or_default();
    check("found again", message.contains("longer than"), &found)?;
    let service = peak(scene.daemon.service()?)?;
    check(
        "memory of the next daemon",
        service < before + MOST,
        &service,
    )?;
    scene.end()
}

/// Returns the VMM of the only run, whose outputs are in memory.
fn of_run(scene: &Scene) -> Option<u32> {
    let mut jailed = scene.daemon.jailed().into_iter();
    jailed.find(|pid| {
        let output = fs::read_link(format!("/proc/{pid}/fd/1"));
        output.is_ok_and(|path| path.to_string_lossy().starts_with("/memfd:stdout"))
    })
}

/// Sends a message in place of a VMM.
fn tell(vmm: u32, message: &[u8]) -> Result<()> {
    let channel = vmm::descriptor(vmm, vmm::CHANNEL)?;
    Ok(File::from(channel).write_all(message)?)
}

fn messages() -> Result<()> {
    let scene = Scene::start("pool = 2")?;
    let ended = |result: &[u8]| [b"{\"Ended\":", result, b"}"].concat();
    let nested = "[".repeat(LIMIT / 2);
    let rows: [(&str, Vec<u8>); 7] = [
        ("half of JSON", b"{\"Ended\":".to_vec()),
        ("nothing known", b"\"Hello\"".to_vec()),
        ("known, not expected", b"\"Ready\"".to_vec()),
        ("nested", nested.into_bytes()),
        ("NaN", ended(&valid_but("7", b"NaN"))),
        ("negative", ended(&valid_but("7", b"-7"))),
        ("no UTF-8", ended(&valid_but("\"\"", b"\"\xff\xc0\""))),
    ];
    let body = json!({ "program": scene.program(), "args": ["idle"], "timeout_ms": 200_000 });
    let body = body.to_string();
    for (name, message) in rows {
        let begin = Instant::now();
        let outcome = thread::scope(|scope| {
            let run = scope.spawn(|| scene.as_neighbour("POST", "/v1/runs", body.as_bytes()));
            until(|| of_run(&scene).is_some())?;
            let vmm = of_run(&scene).ok_or("the VMM has ended")?;
            tell(vmm, &message)?;
            run.join().map_err(|_| "panic")?
        })?;
        let outcome = outcome.expect(200)?.json();
        let told = outcome["message"].as_str().unwrap_or_default();
        let right = outcome["exit_code"] == 125 && told.contains("sent an invalid message");
        check(name, right, &outcome)?;
        // The answer came with the message, not with the end of the run's time.
        let elapsed = begin.elapsed();
        check(name, elapsed < Duration::from_secs(100), &elapsed)?;
        until(|| of_run(&scene).is_none())?;
    }
    scene.end()
}
