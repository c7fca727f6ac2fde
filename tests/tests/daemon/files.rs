//! Copies of files from and to running machines: `hartline cp` and its requests.

use super::commands::client;
use super::exec::{script, start};
use super::{await_state, check, tar};
use hartline_tests::daemon::Daemon;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use serde_json::json;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

/// The path of the machine's files in the API.
pub(super) const FILES: &str = "/v1/machines/box/files";
/// The time of all files in the tests, seconds since 1970.
const TIME: u64 = 1_600_000_000;

/// `hartline cp` with these arguments.
pub(super) fn cp(daemon: &Daemon, arguments: &[&str]) -> Result<Output> {
    client(daemon, &[&["cp"], arguments].concat(), "")
}

/// `hartline cp`, which must succeed and print nothing.
pub(super) fn copied(daemon: &Daemon, arguments: &[&str]) -> Result<()> {
    let output = cp(daemon, arguments)?;
    let right = output.status.success() && output.stdout.is_empty() && output.stderr.is_empty();
    check(&arguments.join(" "), right, &output)
}

/// `hartline cp`, which must fail with a message that has this text.
pub(super) fn refused(daemon: &Daemon, arguments: &[&str], told: &str) -> Result<()> {
    let output = cp(daemon, arguments)?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let right = output.status.code() == Some(125) && text.contains(told);
    check(&arguments.join(" "), right, &text)
}

/// What a script prints in the machine.
pub(super) fn prints(daemon: &Daemon, text: &str, wanted: &str) -> Result<()> {
    let answer = script(daemon, &text.replace("bb ", "/bin/busybox "))?;
    let right = answer["stdout"]["text"] == wanted && answer["exit_code"] == 0;
    check(text, right, &answer)
}

pub(super) fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| "not UTF-8".into())
}

/// Makes files of all kinds, with names that need care.
fn make_tree(root: &Path) -> Result<()> {
    let long = "n".repeat(150);
    fs::create_dir_all(root.join("deep").join(&long))?;
    fs::create_dir(root.join("empty dir"))?;
    for (name, contents, mode) in [
        ("plain", "plain\n", 0o644),
        ("empty", "", 0o600),
        ("program", "#!/bin/sh\n", 0o755),
        ("a name", "space", 0o444),
        ("\u{e4}\u{4e2d}", "UTF-8", 0o640),
        ("new\nline", "line", 0o604),
        (&format!("deep/{long}/{long}"), "long names", 0o644),
    ] {
        let path = root.join(name);
        fs::write(&path, contents)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        set_time(&path)?;
    }
    symlink("plain", root.join("link"))?;
    symlink("t".repeat(200), root.join("long link"))?;
    fs::set_permissions(root.join("empty dir"), Permissions::from_mode(0o711))?;
    let directories = [
        format!("deep/{long}"),
        "deep".into(),
        "empty dir".into(),
        String::new(),
    ];
    for directory in directories {
        set_time(&root.join(directory))?;
    }
    Ok(())
}

fn set_time(path: &Path) -> Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(TIME);
    Ok(File::open(path)?.set_modified(time)?)
}

/// Name, mode, time, and contents or target of a file.
type Listed = (String, u32, i64, Vec<u8>);

/// All files below a directory.
pub(super) fn listing(root: &Path) -> Result<Vec<Listed>> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            let contents = if metadata.is_dir() {
                directories.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path)?.into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path)?
            };
            // Times of links are not the same for all tools.
            let time = if metadata.is_symlink() {
                0
            } else {
                metadata.mtime()
            };
            let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
            found.push((name, metadata.mode(), time, contents));
        }
    }
    found.sort();
    Ok(found)
}

/// Copies of few bytes.
pub fn of_all_kinds() -> Result<()> {
    let daemon = start()?;
    both_ways(&daemon)?;
    streams(&daemon)?;
    hostile_archives(&daemon)?;
    in_volumes(&daemon)?;
    changing(&daemon)
}

/// Files and directories in both directions, and the rules for targets.
fn both_ways(daemon: &Daemon) -> Result<()> {
    let scratch = Scratch::new()?;
    let tree = scratch.path().join("tree");
    make_tree(&tree)?;
    let wanted = listing(&tree)?;
    let local = text(&tree)?;
    // A new target gets the contents, an existing directory the directory, or with /. its contents.
    copied(daemon, &[local, "box:/tmp/new"])?;
    copied(daemon, &[local, "box:/tmp"])?;
    prints(daemon, "bb mkdir /tmp/contents", "")?;
    copied(daemon, &[&format!("{local}/."), "box:/tmp/contents"])?;
    for (number, path) in ["/tmp/new", "/tmp/tree/", "/tmp/contents/."]
        .into_iter()
        .enumerate()
    {
        let back = scratch.path().join(format!("back {number}"));
        copied(daemon, &[&format!("box:{path}"), text(&back)?])?;
        let found = listing(&back)?;
        check(path, found == wanted, &found)?;
        let time = fs::metadata(&back)?.mtime().unsigned_abs();
        // The last directory was there before.
        check(
            "time of the directory",
            (time == TIME) == (number < 2),
            &time,
        )?;
    }
    prints(
        daemon,
        "cd /tmp/new; cat plain; bb stat -c '%a %u %Y %F' plain 'new\nline' 'empty dir'; bb readlink link",
        "plain\n644 0 1600000000 regular file\n604 0 1600000000 regular file\n711 0 1600000000 directory\nplain\n",
    )?;
    // Into an existing directory here, under its name and without.
    let here = scratch.path().join("here");
    fs::create_dir(&here)?;
    copied(daemon, &["box:/tmp/new", text(&here)?])?;
    check("below", listing(&here.join("new"))? == wanted, &here)?;
    copied(daemon, &["box:tmp/new/.", text(&here)?])?;
    check("contents", here.join("plain").exists(), &here)?;
    // Files: a new name, an existing directory, and an existing file.
    let file = tree.join("plain");
    copied(daemon, &[text(&file)?, "box:/tmp/file"])?;
    copied(daemon, &[text(&file)?, "box:/tmp/empty"])?;
    copied(daemon, &[text(&tree.join("program"))?, "box:/tmp/file"])?;
    prints(daemon, "cd /tmp; cat file empty", "#!/bin/sh\nplain\n")?;
    let target = scratch.path().join("target");
    copied(daemon, &["box:/tmp/file", text(&target)?])?;
    copied(daemon, &["box:/tmp/empty", text(&target)?])?;
    check("a file", fs::read(&target)? == b"plain\n", &target)?;
    copied(daemon, &["box:/tmp/file", text(&here)?])?;
    check(
        "a file below",
        fs::read(here.join("file"))? == b"#!/bin/sh\n",
        &here,
    )?;
    // Links: as they are, or what they lead to.
    copied(daemon, &["box:/tmp/new/link", text(&here)?])?;
    check("a link", here.join("link").is_symlink(), &here)?;
    copied(daemon, &["-L", "box:/tmp/new/link", text(&target)?])?;
    check("followed", fs::read(&target)? == b"plain\n", &target)?;
    copied(
        daemon,
        &["-L", text(&tree.join("link"))?, "box:/tmp/followed"],
    )?;
    copied(daemon, &[text(&tree.join("link"))?, "box:/tmp/link"])?;
    prints(
        daemon,
        "cd /tmp; cat followed; bb readlink link",
        "plain\nplain\n",
    )?;
    owners(daemon, &scratch)?;
    for (arguments, told) in [
        (["box:/none", "x"], "no such file or directory"),
        (["none:/tmp", "x"], "no such machine"),
        (["box:/tmp/file/", "x"], "box:/tmp/file/"),
        (["box:/tmp/file", "/none/x"], "/none"),
        (["box:/tmp/file", "/none/"], "no such directory"),
        (["box:/tmp/new", text(&target)?], "cannot replace a file"),
        ([local, "box:/tmp/file"], "cannot replace a file"),
        ([text(&file)?, "box:/tmp/none/"], "no such directory"),
        (
            [text(&file)?, "box:/tmp/none/x"],
            "no such file or directory",
        ),
        (["/none", "box:/tmp"], "/none"),
        (["box:/proc/self", "x"], "/proc and /sys"),
        (["box:/a", "box:/b"], "must be local"),
        (["a", "b"], "must be MACHINE:PATH"),
    ] {
        refused(daemon, &arguments, told)?;
    }
    Ok(())
}

/// `-a` keeps owners.
fn owners(daemon: &Daemon, scratch: &Scratch) -> Result<()> {
    let file = scratch.path().join("owned");
    fs::write(&file, "owned")?;
    std::os::unix::fs::chown(&file, Some(1000), Some(7))?;
    copied(daemon, &["-a", text(&file)?, "box:/tmp/kept"])?;
    copied(daemon, &[text(&file)?, "box:/tmp/of-root"])?;
    prints(
        daemon,
        "cd /tmp; bb stat -c '%u:%g' kept of-root",
        "1000:7\n0:0\n",
    )?;
    let back = scratch.path().join("owned back");
    copied(daemon, &["-a", "box:/tmp/kept", text(&back)?])?;
    let metadata = fs::metadata(&back)?;
    let right = (metadata.uid(), metadata.gid()) == (1000, 7);
    check("its owners", right, &metadata)
}

/// Tar files on standard input and output, and the requests of other clients.
fn streams(daemon: &Daemon) -> Result<()> {
    let scratch = Scratch::new()?;
    let tree = scratch.path().join("tree");
    make_tree(&tree)?;
    let archive = Command::new("tar")
        .arg("-C")
        .arg(&tree)
        .args(["-cf", "-", "."])
        .output()?;
    for format in ["gnu", "pax", "ustar"] {
        let mut packer = Command::new("tar");
        packer
            .arg("-C")
            .arg(&tree)
            .args(["-cf", "-", "--format", format, "."]);
        if format == "ustar" {
            packer.args(["--exclude", "deep", "--exclude", "long*"]);
        }
        let packed = packer.output()?.stdout;
        let answer = put(daemon, "/tmp", &packed)?;
        check(format, answer.status == 204, &answer)?;
        prints(
            daemon,
            "cd /tmp; cat plain 'a name'; bb rm -r plain 'a name'",
            "plain\nspace",
        )?;
    }
    let host = format!("unix://{}", daemon.socket().display());
    let mut child = Command::new(hartline::binary()?)
        .args(["cp", "-", "box:/tmp"])
        .env("HARTLINE_HOST", &host)
        .stdin(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .ok_or("no input")?
        .write_all(&archive.stdout)?;
    check("standard input", child.wait()?.success(), &"")?;
    prints(daemon, "cat /tmp/plain", "plain\n")?;
    let printed = cp(daemon, &["box:/tmp/plain", "-"])?;
    let mut lister = Command::new("tar")
        .args(["-xOf", "-", "plain"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    lister
        .stdin
        .take()
        .ok_or("no input")?
        .write_all(&printed.stdout)?;
    let listed = lister.wait_with_output()?;
    check("standard output", listed.stdout == b"plain\n", &listed)?;
    for (path, status, kind) in [
        ("/tmp", 200, "directory"),
        ("/tmp/plain", 200, "file"),
        ("/tmp/link", 200, "link"),
        ("/tmp/link&follow=true", 200, "file"),
        ("/dev/null", 200, "other"),
        ("/none", 404, ""),
    ] {
        let answer = daemon.request_with("HEAD", &format!("{FILES}?path={path}"), &[], b"")?;
        let kind = format!("hartline-file-type: {kind}\r\n");
        let right = answer.status == status && (status != 200 || answer.head.contains(&kind));
        check(path, right, &answer)?;
    }
    for (query, status, told) in [
        ("path=/none", 404, "not-found"),
        ("path=none", 422, "invalid-field"),
        ("", 400, "bad-request"),
        ("path=/tmp&mode=1", 400, "bad-request"),
        ("path=/tmp/plain/", 409, "copy-failed"),
        ("path=/proc/1/status", 409, "copy-failed"),
    ] {
        let answer = daemon.request("GET", &format!("{FILES}?{query}"), b"")?;
        let right = answer.status == status && answer.text("code") == told;
        check(query, right, &answer)?;
    }
    let long = format!("{FILES}?path=/{}", "x".repeat(4095));
    let answer = daemon.request("GET", &long, b"")?;
    check("a long path", answer.text("field") == "path", &answer)?;
    let made = daemon.request("POST", "/v1/tenants/default/keys", br#"{"scope": "read"}"#)?;
    let key = format!("Bearer {}", made.expect(201)?.text("key"));
    let path = format!("{FILES}?path=/tmp");
    let answer = daemon.request_with("GET", &path, &[("Authorization", &key)], b"")?;
    check("a key that only reads", answer.status == 403, &answer)
}

pub(super) fn put(
    daemon: &Daemon,
    path: &str,
    body: &[u8],
) -> Result<hartline_tests::daemon::Answer> {
    daemon.request_with("PUT", &format!("{FILES}?path={path}"), &[], body)
}

/// Tar files of hostile clients: the guest goes on.
fn hostile_archives(daemon: &Daemon) -> Result<()> {
    prints(daemon, "bb mkdir /tmp/in; echo kept >/tmp/outside", "")?;
    let big = vec![b'x'; 3000];
    for (name, members, status) in [
        ("..", &[("../outside", b'0', "", &b"evil"[..])][..], 204),
        ("absolute", &[("/tmp/outside", b'0', "", b"evil")], 204),
        (
            "a link",
            &[("l", b'2', "..", b""), ("l/outside", b'0', "", b"evil")],
            204,
        ),
        (
            "an absolute link",
            &[("a", b'2', "/tmp", b""), ("a/outside", b'0', "", b"evil")],
            204,
        ),
        (
            "a magic link",
            &[
                ("p", b'2', "/proc/1/root", b""),
                ("p/tmp/outside", b'0', "", b"evil"),
            ],
            409,
        ),
        ("a hard link", &[("h", b'1', "../outside", b"")], 204),
        ("a device", &[("null", b'3', "", b"")], 204),
        ("an unknown kind", &[("s", b'S', "", b"")], 409),
        (
            "a loop",
            &[("loop", b'2', "loop", b""), ("loop/x", b'0', "", b"")],
            409,
        ),
        (
            "a bad extension",
            &[("x", b'x', "", b"99999999999 path=x\n")],
            400,
        ),
        (
            "a sparse file",
            &[
                ("x", b'x', "", b"22 GNU.sparse.major=1\n"),
                ("y", b'0', "", b""),
            ],
            409,
        ),
        ("a long extension", &[("x", b'L', "", &[b'n'; 70_000])], 400),
        ("the directory", &[(".", b'0', "", b"")], 409),
        ("big", &[("big", b'0', "", &big)], 204),
    ] {
        let answer = put(daemon, "/tmp/in", &tar(members))?;
        check(name, answer.status == status, &answer)?;
    }
    prints(daemon, "cat /tmp/outside /tmp/in/outside", "kept\nevil")?;
    let whole = tar(&[("a", b'0', "", &big), ("b", b'0', "", &big)]);
    let mut huge = tar(&[("huge", b'0', "", b"")]);
    huge[124..136].copy_from_slice(b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff");
    let sum: u32 = huge[..148]
        .iter()
        .chain(&[b' '; 8])
        .chain(&huge[156..512])
        .map(|&b| u32::from(b))
        .sum();
    huge[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    for (name, body) in [
        ("nothing", &b""[..]),
        ("text", b"not a tar file"),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\x03"),
        ("noise", &big),
        ("half", &whole[..5000]),
        ("a header", &whole[..512]),
        ("part of a header", &whole[..100]),
        ("huge", &huge),
    ] {
        let answer = put(daemon, "/tmp/in", body)?;
        check(name, answer.status == 400, &answer)?;
    }
    for (path, status) in [
        ("/none", 404),
        ("/tmp/outside", 409),
        ("/proc", 409),
        ("/sys/fs", 409),
    ] {
        let answer = put(daemon, path, &whole)?;
        check(path, answer.status == status, &answer)?;
    }
    prints(daemon, "echo alive", "alive\n")
}

/// A program that changes, deletes and makes files during copies.
fn changing(daemon: &Daemon) -> Result<()> {
    let scratch = Scratch::new()?;
    let busy = "bb mkdir /tmp/busy; (while :; do \
        for n in 1 2 3 4 5 6 7 8; do \
            bb dd if=/dev/zero of=/tmp/busy/$n bs=10000 count=$n 2>/dev/null; \
            bb mkdir -p /tmp/busy/d$n/e; echo x >/tmp/busy/d$n/e/f; done; \
        bb truncate -s 5 /tmp/busy/*; bb rm -r /tmp/busy/*; done) >/dev/null 2>&1 &";
    prints(daemon, busy, "")?;
    for number in 0..30 {
        let target = scratch.path().join(format!("{number}"));
        copied(daemon, &["box:/tmp/busy", text(&target)?])?;
        let target = text(&target)?;
        let back = cp(daemon, &[&format!("{target}/."), "box:/tmp/busy"])?;
        // The program may have deleted a directory that was just made.
        let is_gone = String::from_utf8_lossy(&back.stderr).contains("No such file");
        check("back", back.status.success() || is_gone, &back)?;
    }
    prints(daemon, "echo alive", "alive\n")
}

/// Files in volumes of a running machine.
fn in_volumes(daemon: &Daemon) -> Result<()> {
    let made = daemon.request(
        "POST",
        "/v1/volumes",
        br#"{"name": "data", "size": 52428800}"#,
    )?;
    made.expect(201)?;
    let request = json!({ "program": "tools", "path": "/bin/sleep", "args": ["100000"], "name": "vol",
        "volumes": [{ "volume": "data", "path": "/data" }], "cpus": 2, "start": true });
    let created = daemon.request("POST", "/v1/machines", request.to_string().as_bytes())?;
    created.expect(201)?;
    await_state(daemon, "/v1/machines/vol", "running")?;
    let scratch = Scratch::new()?;
    let tree = scratch.path().join("tree");
    make_tree(&tree)?;
    for number in 0..300 {
        fs::write(tree.join(format!("{number}")), vec![1; number * 100])?;
    }
    copied(daemon, &[text(&tree)?, "vol:/data/tree"])?;
    let back = scratch.path().join("back");
    copied(daemon, &["vol:/data/tree", text(&back)?])?;
    check("back", listing(&tree)? == listing(&back)?, &listing(&back)?)?;
    let long = scratch.path().join("long");
    fs::write(&long, vec![1; 60 << 20])?;
    refused(
        daemon,
        &[text(&long)?, "vol:/data/long"],
        "No space left on device",
    )
}
