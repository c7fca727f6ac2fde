//! Copies of files that never end: each holds a slot of its machine, and a VM if the machine does not
//! run.

use super::neighbour::Scene;
use super::{Test, check};
use hartline_tests::daemon::until;
use hartline_tests::tar::tar;
use hartline_tests::{Result, compile};
use serde_json::json;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

pub const TESTS: &[(&str, Test)] = &[
    ("copies from many stopped machines", stopped),
    ("many copies from one machine", running),
];

/// VMs that the attacker may have.
const QUOTA: usize = 4;
/// Machines of the attacker.
const MANY: usize = 12;
/// Copies of a machine at a time.
const COPIES: usize = 32;
/// Length of the copied file, bytes: more than all buffers on the way to a client that does not read.
const LENGTH: usize = 16 << 20;

/// Makes the attacker's volumes with a large file in each, and a machine for each. Result: the daemon's
/// processes beside those of a later attack.
fn make(scene: &Scene, machines: usize) -> Result<usize> {
    let service = fs::read(compile::service()?)?;
    let program = scene.attack_push("name=own", &service)?;
    let archive = tar(&[("large", b'0', "", &vec![b'x'; LENGTH])]);
    for number in 0..machines {
        let volume = json!({ "name": format!("v{number}"), "size": 2 * LENGTH });
        let made = scene.attack("POST", "/v1/volumes", volume.to_string().as_bytes())?;
        made.expect(201)?;
        let machine = json!({ "program": program, "name": format!("m{number}"), "args": ["idle"],
            "volumes": [{ "volume": format!("v{number}"), "path": "/data" }] });
        let made = scene.attack("POST", "/v1/machines", machine.to_string().as_bytes())?;
        made.expect(201)?;
        let path = format!("/v1/machines/m{number}/files?path=/data");
        let headers = [
            ("Authorization", scene.attacker()),
            ("Content-Type", "application/x-tar"),
        ];
        let copied = scene
            .daemon
            .request_with("PUT", &path, &headers, &archive)?;
        check("filled", copied.status < 300, &copied)?;
    }
    Ok(scene.daemon.jailed().len())
}

/// Begins a copy of the attacker, which does not read more than the status. Result: the status too.
fn begin(scene: &Scene, machine: usize) -> Result<(UnixStream, String)> {
    let mut stream = scene.daemon.connect()?;
    let key = scene.attacker();
    let path = format!("/v1/machines/m{machine}/files?path=/data/large");
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    let status = String::from_utf8_lossy(&answer[9..]).into_owned();
    Ok((stream, status))
}

fn stopped() -> Result<()> {
    let scene = Scene::start("pool = 2")?;
    let quota = json!({ "max_machines": QUOTA, "max_queued": 2 }).to_string();
    let path = "/v1/tenants/attacker";
    scene
        .daemon
        .request("PUT", path, quota.as_bytes())?
        .expect(200)?;
    let before = make(&scene, MANY)?;
    let begun: Result<Vec<_>> = thread::scope(|scope| {
        let scene = &scene;
        let begin = |machine| scope.spawn(move || begin(scene, machine));
        let threads: Vec<_> = (0..MANY).map(begin).collect();
        // The queue has two places, and those in it wait as long as the copies do.
        until(|| threads.iter().filter(|one| one.is_finished()).count() >= MANY - 2)?;
        let most = scene.daemon.jailed().len().saturating_sub(before);
        check("VMs", most <= QUOTA, &(before, most))?;
        scene.neighbour_is_well("during the copies")?;
        let (ended, waiting): (Vec<_>, Vec<_>) = threads.into_iter().partition(|t| t.is_finished());
        let mut begun = Vec::new();
        for thread in ended {
            begun.push(thread.join().map_err(|_| "a thread ended early")??);
        }
        let copying = begun.iter().filter(|(_, status)| status == "200").count();
        let refused = begun.iter().filter(|(_, status)| status == "429").count();
        check(
            "the others",
            copying == QUOTA && copying + refused == begun.len(),
            &begun,
        )?;
        // Those in the queue get their turn.
        begun.clear();
        for thread in waiting {
            begun.push(thread.join().map_err(|_| "a thread ended early")??);
        }
        Ok(begun)
    });
    let begun = begun?;
    let late = begun.iter().all(|(_, status)| status == "200");
    check("the queue", begun.len() == 2 && late, &begun)?;
    drop(begun);
    until(|| scene.daemon.jailed().len() <= before)?;
    scene.end()
}

fn running() -> Result<()> {
    let scene = Scene::start("pool = 2")?;
    make(&scene, 1)?;
    scene
        .attack("POST", "/v1/machines/m0/start", b"")?
        .expect(200)?;
    until(|| {
        let found = scene.attack("GET", "/v1/machines/m0", b"");
        found.is_ok_and(|found| found.text("state") == "running")
    })?;
    let begun: Result<Vec<_>> = (0..COPIES + 8).map(|_| begin(&scene, 0)).collect();
    let begun = begun?;
    let copying = begun.iter().filter(|(_, status)| status == "200").count();
    check("copies", copying == COPIES, &begun)?;
    scene.neighbour_is_well("during the copies")?;
    drop(begun);
    // The slots are free again.
    thread::sleep(Duration::from_millis(100));
    until(|| begin(&scene, 0).is_ok_and(|(_, status)| status == "200"))?;
    scene.end()
}
