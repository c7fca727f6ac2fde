//! Snapshots that were changed after they were written.

use super::{Place, expect_refusal};
use hartline_tests::Result;
use hartline_tests::process;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Makes a snapshot whose copies are damaged.
fn make() -> Result<(Place, PathBuf)> {
    let place = Place::new()?;
    place.write("good", &["everything"])?;
    let good = place.path("good");
    Ok((place, good))
}

/// Fails unless a copy of the snapshot that `damage` has changed is refused with `message`.
fn check(place: &Place, message: &str, damage: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let bad = place.path("bad");
    let mut copy = Command::new("cp");
    let copied = process::run(
        copy.args(["-a", "--sparse=always"])
            .arg(place.path("good"))
            .arg(&bad),
        b"",
    )?;
    if copied.code != 0 {
        return Err(format!("{copied:?}").into());
    }
    damage(&bad)?;
    let outcome = place.from("bad", "3 x\n", &[])?;
    fs::remove_dir_all(&bad)?;
    expect_refusal(&outcome, message)
}

fn read_config(snapshot: &Path) -> Result<Value> {
    Ok(serde_json::from_slice(&fs::read(
        snapshot.join("config.json"),
    )?)?)
}

pub fn description() -> Result<()> {
    let (place, good) = make()?;
    let config = read_config(&good)?;
    let change = |at: &str, value: Value, message: &str| {
        check(&place, message, |bad| {
            let mut config = config.clone();
            *config.pointer_mut(at).ok_or("no such field")? = value;
            Ok(fs::write(bad.join("config.json"), config.to_string())?)
        })
    };
    change(
        "/version",
        json!(1),
        "format version 1: this program reads version 3",
    )?;
    change("/abi", json!(1), "written by another version of hartline")?;
    change(
        "/runtime",
        json!("0".repeat(64)),
        "written by another version of hartline",
    )?;
    change("/runtime", json!("0"), "64 hexadecimal digits")?;
    change(
        "/machine/ram",
        json!(4096),
        "machine.ram: 4096 is not allowed",
    )?;
    change(
        "/machine/ram",
        json!(1u64 << 30),
        "memory: 2147483648 bytes long, but the snapshot has 1073741824",
    )?;
    change("/machine/ram_free", json!(1u64 << 50), "machine.ram_free")?;
    change("/machine/stack_block", json!(3), "machine.stack_block")?;
    change("/machine/cpus", json!(0), "machine.cpus: 0 is not allowed")?;
    change(
        "/machine/cpus",
        json!(65),
        "machine.cpus: 65 is not allowed",
    )?;
    change("/machine/variant", json!(77), "machine.variant")?;
    change(
        "/machine/monotonic_ns",
        json!(u64::MAX),
        "machine.monotonic_ns",
    )?;
    change("/machine/terminals", json!(9), "machine.terminals")?;
    change(
        "/machine/terminals",
        json!(1),
        "standard input is not a terminal, but was one",
    )?;
    change(
        "/machine/network",
        json!(1),
        "not the description of a snapshot",
    )?;
    change(
        "/memory/0/length",
        json!(1),
        "memory.length: 1 is not allowed",
    )?;
    change(
        "/memory/0/offset",
        json!(-1),
        "not the description of a snapshot",
    )?;
    change(
        "/memory/1/sha256",
        json!("1".repeat(64)),
        "memory: damaged: wrong checksum",
    )?;
    change(
        "/tree/sha256",
        json!("1".repeat(64)),
        "tree: damaged: wrong checksum",
    )?;
    change(
        "/tree/length",
        json!(5),
        "bytes long, but the snapshot has 5",
    )?;
    change("/tree/gpa", json!(4096), "tree.gpa: 4096 is not allowed")?;
    change("/tree/gpa", json!("x"), "not the description of a snapshot")?;
    change("/tree", Value::Null, "no root file system")?;
    check(&place, "unknown field", |bad| {
        let mut config = config.clone();
        config["more"] = json!(1);
        Ok(fs::write(bad.join("config.json"), config.to_string())?)
    })?;
    let text = fs::read(good.join("config.json"))?;
    for length in [0, 1, text.len() / 2, text.len() - 2] {
        check(
            &place,
            "config.json: not the description of a snapshot",
            |bad| Ok(fs::write(bad.join("config.json"), &text[..length])?),
        )?;
    }
    check(&place, "config.json: ", |bad| {
        let file = File::options().write(true).open(bad.join("config.json"))?;
        Ok(file.set_len(1 << 40)?)
    })?;
    check(&place, "not a regular file", |bad| {
        fs::remove_file(bad.join("config.json"))?;
        Ok(fs::create_dir(bad.join("config.json"))?)
    })?;
    check(&place, "not a regular file", |bad| {
        fs::remove_file(bad.join("memory"))?;
        Ok(symlink("/dev/null", bad.join("memory"))?)
    })
}

pub fn contents() -> Result<()> {
    let (place, good) = make()?;
    let config = read_config(&good)?;
    let parts = config["memory"].as_array().ok_or("no memory")?;
    let bounds = |part: &Value| -> Result<(u64, u64)> {
        let offset = part["offset"].as_u64().ok_or("no offset")?;
        Ok((offset, part["length"].as_u64().ok_or("no length")?))
    };
    // A bit at the start, in the middle and at the end of some parts.
    for part in parts.iter().step_by(parts.len() / 4 + 1) {
        let (offset, length) = bounds(part)?;
        for at in [offset, offset + length / 2, offset + length - 1] {
            let message =
                format!("memory: damaged: wrong checksum of {length} bytes at {offset:#x}");
            check(&place, &message, |bad| flip(&bad.join("memory"), at))?;
        }
    }
    let tree = fs::metadata(good.join("tree"))?.len();
    for at in [0, tree / 2, tree - 1] {
        let message = format!("tree: damaged: wrong checksum of {tree} bytes at 0x0");
        check(&place, &message, |bad| flip(&bad.join("tree"), at))?;
    }
    for name in ["memory", "tree"] {
        let length = fs::metadata(good.join(name))?.len();
        for new in [0, 4096, length - 1, length + 1] {
            let message = format!("{name}: {new} bytes long, but the snapshot has {length}");
            check(&place, &message, |bad| {
                Ok(File::options()
                    .write(true)
                    .open(bad.join(name))?
                    .set_len(new)?)
            })?;
        }
        let message = format!("{name}: open: No such file");
        check(&place, &message, |bad| Ok(fs::remove_file(bad.join(name))?))?;
    }
    Ok(())
}

/// A snapshot that was used, so that its checksums are known to be right, is checked again when it
/// changes.
pub fn later() -> Result<()> {
    let (place, good) = make()?;
    std::thread::sleep(Duration::from_millis(2100));
    for _ in 0..2 {
        let outcome = place.from("good", "3 x\n", &[])?;
        super::expect(&outcome, 3, "after x\nwiped 1 0\nall there\n")?;
    }
    let first = read_config(&good)?["memory"][2]["offset"]
        .as_u64()
        .ok_or("no offset")?;
    flip(&good.join("memory"), first + 5)?;
    expect_refusal(&place.from("good", "3 x\n", &[])?, "memory: damaged")?;
    std::thread::sleep(Duration::from_millis(2100));
    expect_refusal(&place.from("good", "3 x\n", &[])?, "memory: damaged")?;
    flip(&good.join("memory"), first + 5)?;
    let outcome = place.from("good", "3 x\n", &[])?;
    super::expect(&outcome, 3, "after x\nwiped 1 0\nall there\n")
}

/// Changes a bit of a file.
fn flip(path: &Path, at: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    Ok(file.write_all_at(&[byte[0] ^ 0x10], at)?)
}
