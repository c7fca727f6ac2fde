//! Volumes that grow larger or deeper than their limits, by links and by directories.

use super::Test;
use super::neighbour::Scene;
use hartline_tests::daemon::until;
use hartline_tests::{Result, compile};
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub const TESTS: &[(&str, Test)] = &[
    ("names pass no limit of a volume", names),
    ("directories of a volume end at a depth", depth),
];

/// Size of the attacker's volume, bytes.
const SIZE: u64 = 1 << 20;
/// The deepest level of directories in a volume (docs/daemon.md).
const MAX_DEPTH: usize = 1024;

/// Runs `volumes KIND /x` with a volume of `size` bytes to its end. Result: its output, and the
/// volume's directory.
fn attack(scene: &Scene, kind: &str, size: u64) -> Result<(String, PathBuf)> {
    let program = compile::alone("volumes", "riscv64-linux-gnu-gcc")?;
    scene.daemon.give_image(&program)?;
    let program = scene.attack_push("name=volumes", &fs::read(program)?)?;
    let volume = json!({ "name": "data", "size": size }).to_string();
    scene
        .attack("POST", "/v1/volumes", volume.as_bytes())?
        .expect(201)?;
    let body = json!({
        "program": program,
        "args": [kind, "/x"],
        "volumes": [{ "volume": "data", "path": "/x", "read_only": false }],
        "start": true,
    });
    let made = scene.attack("POST", "/v1/machines", body.to_string().as_bytes())?;
    let path = format!("/v1/machines/{}", made.expect(201)?.text("id"));
    until(|| {
        let machine = scene.attack("GET", &path, b"");
        machine.is_ok_and(|machine| machine.text("state") == "exited")
    })?;
    let log = scene.attack("GET", &format!("{path}/logs"), b"")?;
    let log = String::from_utf8_lossy(&log.expect(200)?.body).into_owned();
    let volume = fs::read_dir(scene.daemon.data().join("volumes"))?.next();
    Ok((log, volume.ok_or("no volume")??.path()))
}

/// Returns the space that the host's file system needs for a directory and its contents, bytes.
fn needed(directory: &Path) -> Result<u64> {
    let mut bytes = fs::metadata(directory)?.blocks() * 512;
    for entry in fs::read_dir(directory)? {
        let file = entry?.metadata()?;
        // All entries are names of one file.
        bytes += file.blocks() * 512 / file.nlink();
    }
    Ok(bytes)
}

fn names() -> Result<()> {
    let scene = Scene::start("pool = 2")?;
    let (output, volume) = attack(&scene, "names", SIZE)?;
    if output != "names: ENOSPC\n" {
        return Err(format!("the attacker's output: {output}").into());
    }
    let needed = needed(&volume)?;
    println!("{needed} bytes on the disk");
    if needed > SIZE {
        return Err(format!("a volume of {SIZE} bytes has {needed}").into());
    }
    scene.end()
}

fn depth() -> Result<()> {
    let scene = Scene::start("pool = 2")?;
    let (output, _) = attack(&scene, "deep", 64 << 20)?;
    let refused = "ENAMETOOLONG";
    let expected = format!(
        "mkdir: {refused}\nlevels {MAX_DEPTH}\nmkdir(\"top\", 0755): 0\n\
         rename(\"d\", \"top/d\"): {refused}\n"
    );
    if output != expected {
        return Err(format!("the attacker's output: {output}").into());
    }
    scene.end()
}
