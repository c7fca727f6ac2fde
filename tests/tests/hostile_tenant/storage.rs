//! A tenant that writes more to the disk than its quota allows.

use super::Test;
use super::neighbour::Scene;
use hartline_tests::daemon::until;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

pub const TESTS: &[(&str, Test)] = &[
    ("compressed uploads", compressed_uploads),
    ("holes in uploads", holes_in_uploads),
    ("uploads that do not end", unfinished_uploads),
    ("outputs of runs", outputs_of_runs),
];

const MIB: usize = 1 << 20;
/// The attacker's quota, bytes.
const QUOTA: usize = 32 * MIB;
/// Disk space of directories and the neighbour's program, bytes.
const OTHER: u64 = 4 << 20;

/// Starts a daemon with an attacker that has the quota.
fn start() -> Result<Scene> {
    let scene = Scene::start("pool = 2")?;
    let quota = json!({ "max_storage": QUOTA }).to_string();
    let path = "/v1/tenants/attacker";
    scene
        .daemon
        .request("PUT", path, quota.as_bytes())?
        .expect(200)?;
    Ok(scene)
}

/// Returns a compressed tar file with a file of `length` bytes of one value.
fn archive(name: &str, value: u8, length: usize) -> Result<Vec<u8>> {
    let folder = Scratch::new()?;
    fs::write(folder.path().join(name), vec![value; length])?;
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder.path()).args(["-czf", "-", name]);
    let output = tar.output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

/// Returns the disk space of the files in a directory, bytes.
fn size(path: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(found) if found.is_dir() => sum += size(&entry.path())?,
            Ok(found) => sum += found.blocks() * 512,
            // The file was deleted meanwhile.
            Err(_) => {}
        }
    }
    Ok(sum)
}

/// Returns the disk space of uploads and their products, bytes.
fn stored(scene: &Scene) -> Result<u64> {
    let names = ["uploads", "trees", "images", "tmp"].iter();
    names
        .map(|name| size(&scene.daemon.data().join(name)))
        .sum()
}

fn check_stored(scene: &Scene) -> Result<()> {
    let stored = stored(scene)?;
    println!("{} MiB are on the disk", stored >> 20);
    match stored <= QUOTA as u64 + OTHER {
        true => Ok(()),
        false => Err(format!("{stored} bytes on the disk, the quota is {QUOTA}").into()),
    }
}

fn program(scene: &Scene, id: &str) -> Result<Value> {
    let answer = scene.attack("GET", &format!("/v1/programs/{id}"), b"")?;
    Ok(answer.expect(200)?.json())
}

/// Uploads that are short when compressed and long when unpacked.
fn compressed_uploads() -> Result<()> {
    let scene = start()?;
    // One upload is too large alone; several are too large together.
    let mut ids = Vec::new();
    for (name, length) in [
        ("a", 256 * MIB),
        ("b", 12 * MIB),
        ("c", 12 * MIB),
        ("d", 12 * MIB),
    ] {
        ids.push(scene.attack_push("name=archive", &archive(name, 7, length)?)?);
    }
    check_stored(&scene)?;
    let expected = ["storage-quota", "", "", "storage-quota"];
    for (id, expected) in ids.iter().zip(expected) {
        let found = program(&scene, id)?;
        let state = if expected.is_empty() {
            "ready"
        } else {
            "failed"
        };
        if found["problem"] != expected || found["state"] != state {
            return Err(format!("{expected} expected: {found}").into());
        }
    }
    // Translations count too: less storage is left than without one.
    let id = scene.attack_push("name=service", &fs::read(compile::service()?)?)?;
    let service = program(&scene, &id)?;
    if service["problem"] != "" {
        return Err(format!("{service}").into());
    }
    let mut left = QUOTA as u64;
    for id in ids.iter().chain([&id]) {
        let found = program(&scene, id)?;
        let part = |name: &str| found[name].as_u64().unwrap_or_default();
        left -= part("size") + part("tree_size");
    }
    let volume = |size: u64| {
        let body = json!({ "name": format!("v{size}"), "size": size }).to_string();
        scene.attack("POST", "/v1/volumes", body.as_bytes())
    };
    volume(left)?.expect(409)?;
    volume(left - MIB as u64)?.expect(201)?;
    // Deletion frees the storage.
    for id in ids {
        scene.attack("DELETE", &format!("/v1/programs/{id}"), b"")?;
    }
    let id = scene.attack_push("name=archive", &archive("e", 7, 12 * MIB)?)?;
    match program(&scene, &id)?["state"] == "ready" {
        true => scene.end(),
        false => Err(format!("no room: {}", program(&scene, &id)?).into()),
    }
}

/// A long file of holes takes no storage.
fn holes_in_uploads() -> Result<()> {
    let scene = start()?;
    let id = scene.attack_push("name=archive", &archive("zeros", 0, 512 * MIB)?)?;
    check_stored(&scene)?;
    let found = program(&scene, &id)?;
    match found["state"] == "ready" {
        true => scene.end(),
        false => Err(format!("{found}").into()),
    }
}

/// Concurrent uploads that send much and never end.
fn unfinished_uploads() -> Result<()> {
    let scene = start()?;
    let mut uploads = Vec::new();
    let half = vec![7; QUOTA / 2];
    for _ in 0..8 {
        let mut stream = scene.daemon.connect()?;
        let head = format!(
            "POST /v1/programs?name=x HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\
             Authorization: {}\r\n\r\n",
            half.len() + 1,
            scene.attacker()
        );
        stream.write_all(head.as_bytes())?;
        // The daemon closes a refused upload.
        let _ = stream.write_all(&half);
        uploads.push(stream);
    }
    // The daemon has read what was sent.
    until(|| stored(&scene).is_ok_and(|stored| stored >= half.len() as u64))?;
    check_stored(&scene)?;
    drop(uploads);
    let temporary = scene.daemon.data().join("tmp");
    until(|| fs::read_dir(&temporary).is_ok_and(|mut files| files.next().is_none()))?;
    // The storage of the unfinished uploads is free again.
    scene.attack_push("name=archive", &archive("f", 7, 12 * MIB)?)?;
    scene.end()
}

/// Asynchronous runs, whose outputs are kept, write as much as they can: concurrently, and one
/// after another.
fn outputs_of_runs() -> Result<()> {
    const ROOM: usize = 120 * MIB;
    let scene = start()?;
    let quota = json!({ "max_storage": ROOM }).to_string();
    let path = "/v1/tenants/attacker";
    scene
        .daemon
        .request("PUT", path, quota.as_bytes())?
        .expect(200)?;
    let id = scene.attack_push("name=service", &fs::read(compile::service()?)?)?;
    // The program never ends: its newest output is kept.
    let request = json!({ "program": id, "args": ["flood"], "wait": false, "timeout_ms": 3000 });
    let request = request.to_string();
    let begin = || -> Result<String> {
        let begun = scene.attack("POST", "/v1/runs", request.as_bytes())?;
        Ok(format!("/v1/runs/{}", begun.expect(202)?.text("id")))
    };
    // Returns how a run ended: its state and message.
    let end = |run: &str| -> Result<(String, String)> {
        until(|| {
            let now = scene.attack("GET", run, b"");
            now.is_ok_and(|now| ["exited", "failed"].contains(&&*now.text("state")))
        })?;
        let ended = scene.attack("GET", run, b"")?;
        Ok((ended.text("state"), ended.text("message")))
    };
    let mut runs = (0..6).map(|_| begin()).collect::<Result<Vec<_>>>()?;
    let ends = runs.iter().map(|run| end(run));
    let mut ends = ends.collect::<Result<Vec<_>>>()?;
    for _ in 0..6 {
        let run = begin()?;
        ends.push(end(&run)?);
        runs.push(run);
    }
    let kept = size(&scene.daemon.data().join("machines"))?;
    println!("{} MiB of outputs are on the disk: {ends:?}", kept >> 20);
    if kept > ROOM as u64 {
        return Err(format!("{kept} bytes are kept, the quota is {ROOM}").into());
    }
    let wrote = ends.iter().filter(|(state, _)| state == "exited").count();
    let refused = |(state, message): &&(String, String)| {
        state == "failed" && message.contains("its outputs may take 36 MiB")
    };
    if wrote == 0 || wrote + ends.iter().filter(refused).count() != ends.len() {
        return Err(format!("{ends:?}").into());
    }
    if !refused(&ends.last().ok_or("no run")?) {
        return Err("there was always room".into());
    }
    scene.neighbour_is_well("while the attacker's quota is used")?;
    // Deletion frees the storage.
    for run in runs {
        scene.attack("DELETE", &run, b"")?.expect(204)?;
    }
    let (state, message) = end(&begin()?)?;
    match state == "exited" {
        true => scene.end(),
        false => Err(format!("no room: {message}").into()),
    }
}
