//! Volumes that a hostile guest leaves: trees deeper than a stack, and directories without
//! permissions.

use super::Test;
use super::neighbour::Scene;
use hartline_tests::daemon::{Answer, until};
use hartline_tests::{Result, compile};
use serde_json::json;
use std::ffi::CStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

pub const TESTS: &[(&str, Test)] = &[
    ("a deep volume is measured and deleted", deep),
    (
        "a deletion goes on after the daemon was killed",
        interrupted,
    ),
    ("a volume that cannot be emptied", stubborn),
    ("more files than a volume may have", many_files),
];

/// The depth of nested directories: more than a stack of 2 MiB has frames for, and more than a
/// process has descriptors.
const DEEP: usize = 16_000;
/// The depth of nested directories that are measured: their paths exceed the host's longest path.
/// The time of the jailed worker grows with the square of the depth.
const MEASURED: usize = 3000;
/// Size of the volumes, bytes.
const SIZE: u64 = 1 << 30;

/// Makes a volume of the attacker. Result: its directory.
fn make(scene: &Scene, name: &str) -> Result<PathBuf> {
    let before = directories(scene)?;
    let body = json!({ "name": name, "size": SIZE }).to_string();
    scene
        .attack("POST", "/v1/volumes", body.as_bytes())?
        .expect(201)?;
    let now = directories(scene)?;
    let new = now.into_iter().find(|path| !before.contains(path));
    new.ok_or_else(|| "no directory was made".into())
}

fn directories(scene: &Scene) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(scene.daemon.data().join("volumes"))?;
    Ok(entries
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?)
}

fn delete(scene: &Scene, name: &str) -> Result<Answer> {
    scene.attack("DELETE", &format!("/v1/volumes/{name}"), b"")
}

/// Makes nested directories as a guest would: they belong to the volume's owner.
fn nest(volume: &Path, depth: usize) -> Result<()> {
    let owner = fs::metadata(volume)?.uid();
    let name: &CStr = c"d";
    let mut at = File::open(volume)?;
    for _ in 0..depth {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let fd = at.as_raw_fd();
        // SAFETY: valid paths; a fresh descriptor or an error.
        let inner = unsafe {
            libc::mkdirat(fd, name.as_ptr(), 0o755);
            libc::fchownat(fd, name.as_ptr(), owner, owner, libc::AT_SYMLINK_NOFOLLOW);
            libc::openat(fd, name.as_ptr(), flags)
        };
        if inner < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the descriptor is fresh, and nothing else owns it.
        at = unsafe { File::from_raw_fd(inner) };
    }
    Ok(())
}

/// Returns whether the attacker has `bytes` bytes of storage left: a volume of that size can be
/// made.
fn has_room(scene: &Scene, bytes: u64) -> Result<bool> {
    let body = json!({ "name": "room", "size": bytes }).to_string();
    let made = scene.attack("POST", "/v1/volumes", body.as_bytes())?;
    if made.status == 201 {
        delete(scene, "room")?.expect(204)?;
    }
    Ok(made.status == 201)
}

/// Makes a machine of the attacker write a file in a volume, mounted at `/x`. Result: whether it
/// succeeded.
fn put(scene: &Scene, program: &str, volume: &str, path: &str) -> Result<bool> {
    let mounts = json!([{ "volume": volume, "path": "/x" }]);
    let put = json!({
        "program": program, "args": ["put", path, "one"], "volumes": mounts, "start": true,
    });
    let made = scene.attack("POST", "/v1/machines", put.to_string().as_bytes())?;
    let path = format!("/v1/machines/{}", made.expect(201)?.text("id"));
    until(|| {
        let machine = scene.attack("GET", &path, b"");
        machine.is_ok_and(|machine| ["exited", "failed"].contains(&&*machine.text("state")))
    })?;
    let machine = scene.attack("GET", &path, b"")?;
    if machine.text("state") != "exited" {
        return Err(format!("the machine: {:?}", machine.json()).into());
    }
    scene.attack("DELETE", &path, b"")?.expect(204)?;
    Ok(machine.text("exit_code") == "0")
}

/// The inodes of a volume, and of a tenant, are limited.
fn many_files() -> Result<()> {
    let scene = Scene::start("pool = 2")?;
    let program = fs::read(compile::service()?)?;
    let program = scene.attack_push("name=service", &program)?;
    let volume = |name: &str, inodes: u64| {
        let body = json!({ "name": name, "size": 1 << 20, "inodes": inodes });
        scene.attack("POST", "/v1/volumes", body.to_string().as_bytes())
    };
    for wrong in [0, (1 << 28) + 1] {
        volume("wrong", wrong)?.expect(422)?;
    }
    // The volume has no more inodes than its size has room for.
    let many = volume("many", 1 << 28)?.expect(201)?.json();
    if many["inodes"] != (1 << 20) / 4096 {
        return Err(format!("{many}").into());
    }
    delete(&scene, "many")?.expect(204)?;
    volume("two", 2)?.expect(201)?;
    for (path, fits) in [
        ("/x/a", true),
        ("/x/b", true),
        ("/x/c", false),
        ("/x/a", true),
    ] {
        if put(&scene, &program, "two", path)? != fits {
            return Err(format!("{path}: {fits} expected").into());
        }
    }
    let usage = scene
        .attack("GET", "/v1/tenants/attacker/usage", b"")?
        .json();
    let entries = usage.as_array().into_iter().flatten();
    let used = entries.filter(|entry| entry["resource"] == "inodes");
    let used: u64 = used.filter_map(|entry| entry["used"].as_u64()).sum();
    let quota = json!({ "max_inodes": used + 10 }).to_string();
    let path = "/v1/tenants/attacker";
    scene
        .daemon
        .request("PUT", path, quota.as_bytes())?
        .expect(200)?;
    volume("more", 11)?.expect(409)?;
    volume("more", 10)?.expect(201)?;
    delete(&scene, "more")?.expect(204)?;
    volume("other", 10)?.expect(201)?;
    scene.end()
}

fn deep() -> Result<()> {
    let scene = Scene::start("pool = 2\ncollect_every_s = 1")?;
    let measured = make(&scene, "measured")?;
    nest(&measured, MEASURED)?;
    // Modes do not keep the worker out: a guest may remove its own permissions.
    let closed = measured.join("d/d");
    fs::set_permissions(&closed, Permissions::from_mode(0o000))?;
    let directory = make(&scene, "deep")?;
    nest(&directory, DEEP)?;
    fs::set_permissions(directory.join("d/d"), Permissions::from_mode(0o000))?;

    // A machine mounts the volume: it is measured, and the guest may add the rest of its size.
    let program = fs::read(compile::service()?)?;
    let program = scene.attack_push("name=service", &program)?;
    if !put(&scene, &program, "measured", "/x/file")? {
        return Err("the machine has not written its file".into());
    }
    scene.neighbour_is_well("after it was measured")?;

    if fs::metadata(&closed)?.permissions().mode() & 0o7777 != 0 {
        return Err("measuring has changed a mode".into());
    }
    for (name, directory) in [("deep", directory), ("measured", measured)] {
        delete(&scene, name)?.expect(204)?;
        scene
            .attack("GET", &format!("/v1/volumes/{name}"), b"")?
            .expect(404)?;
        until(|| !directory.exists())?;
    }
    scene.end()
}

fn interrupted() -> Result<()> {
    let mut scene = Scene::start("pool = 2\ncollect_every_s = 1")?;
    let directory = make(&scene, "deep")?;
    nest(&directory, DEEP)?;
    // The directories are deleted only after the database has acknowledged the deletion.
    std::thread::scope(|scope| {
        let deleting = scope.spawn(|| delete(&scene, "deep").is_ok());
        let noted = until(|| {
            let answer = scene.attack("GET", "/v1/volumes/deep", b"");
            answer.is_ok_and(|answer| answer.status == 404)
        });
        // SAFETY: no memory is involved.
        unsafe { libc::kill(scene.daemon.pid() as libc::pid_t, libc::SIGKILL) };
        deleting.join().is_ok() && noted.is_ok()
    });
    scene.daemon.kill()?;
    scene.daemon.restart()?;
    scene.attack("GET", "/v1/volumes/deep", b"")?.expect(404)?;
    until(|| !directory.exists())?;
    scene.end()
}

fn stubborn() -> Result<()> {
    let mut scene = Scene::start("pool = 2\ncollect_every_s = 1")?;
    let quota = json!({ "max_storage": 3 * SIZE }).to_string();
    let path = "/v1/tenants/attacker";
    scene.daemon.request("PUT", path, quota.as_bytes())?;
    let directory = make(&scene, "stubborn")?;
    // The worker may not delete this: it belongs to another user, and is not empty.
    let inner = directory.join("inner");
    fs::create_dir_all(inner.join("more"))?;
    fs::set_permissions(&inner, Permissions::from_mode(0o700))?;
    delete(&scene, "stubborn")?.expect(204)?;
    let logged = |scene: &Scene| {
        scene
            .daemon
            .log()
            .contains("a deleted volume is still there")
    };
    until(|| logged(&scene))?;
    // It counts as the attacker's storage until it is deleted.
    if has_room(&scene, 3 * SIZE)? || !has_room(&scene, SIZE)? {
        return Err("the quota does not count the deleted volume".into());
    }
    // The name is free, and the daemon starts.
    make(&scene, "stubborn")?;
    delete(&scene, "stubborn")?.expect(204)?;
    scene.daemon.terminate()?;
    scene.daemon.restart()?;
    if !directory.exists() {
        return Err("the directory went all the same".into());
    }
    let owner = fs::metadata(&directory)?.uid();
    for path in [inner.join("more"), inner] {
        chown(path, Some(owner), Some(owner))?;
    }
    until(|| !directory.exists())?;
    until(|| has_room(&scene, 3 * SIZE).unwrap_or(false))?;
    scene.end()
}
