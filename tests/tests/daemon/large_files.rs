//! Copies of many bytes from and to running machines, copies that break off, and their limits.

use super::exec::{script, start};
use super::files::{FILES, copied, cp, listing, prints, put, refused, text};
use super::{await_state, check, tar};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::process::{self, signal};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Length of the large file, bytes.
const LARGE: usize = 100 << 20;
/// Number of small files.
const MANY: usize = 2000;

/// Copies of many bytes.
pub fn of_large_files() -> Result<()> {
    let daemon = start()?;
    large(&daemon)?;
    prints(&daemon, "bb rm -r /tmp/*", "")?;
    interrupted(daemon)
}

/// A large file, a sparse one, many small ones, and copies at the same time.
fn large(daemon: &Daemon) -> Result<()> {
    let scratch = Scratch::new()?;
    let large = scratch.path().join("large");
    let words = (0..LARGE as u64 / 8).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    fs::write(&large, &bytes)?;
    let started = Instant::now();
    copied(daemon, &[text(&large)?, "box:/tmp/large"])?;
    let there = started.elapsed();
    let sum = Command::new("sha256sum")
        .stdin(File::open(&large)?)
        .output()?;
    let sum = String::from_utf8(sum.stdout)?;
    prints(daemon, "bb sha256sum </tmp/large", &sum)?;
    let back = scratch.path().join("large back");
    let started = Instant::now();
    copied(daemon, &["box:/tmp/large", text(&back)?])?;
    println!(
        "100 MiB to the machine: {there:?}, back: {:?}",
        started.elapsed()
    );
    check("large", fs::read(&back)? == bytes, &back)?;
    prints(daemon, "bb rm /tmp/large", "")?;
    // A hole takes no memory in the machine, and no blocks here.
    let sparse = scratch.path().join("sparse");
    let mut file = File::create(&sparse)?;
    file.seek(SeekFrom::Start(300 << 20))?;
    file.write_all(b"end")?;
    copied(daemon, &[text(&sparse)?, "box:/tmp/sparse"])?;
    prints(
        daemon,
        "bb dd if=/tmp/sparse bs=1048576 skip=300 2>/dev/null; bb stat -c ' %s' /tmp/sparse",
        "end 314572803\n",
    )?;
    let back = scratch.path().join("sparse back");
    copied(daemon, &["box:/tmp/sparse", text(&back)?])?;
    let metadata = fs::metadata(&back)?;
    let right = metadata.len() == (300 << 20) + 3 && metadata.blocks() < 1000;
    check("sparse", right, &metadata)?;
    let many = scratch.path().join("many");
    for number in 0..MANY {
        let directory = many.join(format!("{}", number % 50));
        fs::create_dir_all(&directory)?;
        fs::write(
            directory.join(format!("file {number}")),
            format!("{number}\n"),
        )?;
    }
    let started = Instant::now();
    copied(daemon, &[text(&many)?, "box:/tmp"])?;
    let there = started.elapsed();
    prints(
        daemon,
        "bb find /tmp/many -type f | bb wc -l",
        &format!("{MANY}\n"),
    )?;
    let back = scratch.path().join("many back");
    let started = Instant::now();
    copied(daemon, &["box:/tmp/many", text(&back)?])?;
    println!(
        "{MANY} files to the machine: {there:?}, back: {:?}",
        started.elapsed()
    );
    check(
        "many",
        listing(&many)?.len() == listing(&back)?.len(),
        &back,
    )?;
    // Several at once, while commands run.
    let results: Vec<_> = thread::scope(|scope| {
        let copies = (0..6).map(|number| {
            let (many, scratch) = (&many, scratch.path());
            scope.spawn(move || -> std::result::Result<(), String> {
                let back = scratch.join(format!("at once {number}"));
                let here = many.display().to_string();
                let there = format!("box:/tmp/at-once-{number}");
                copied(daemon, &[&here, &there]).map_err(|error| format!("{error:?}"))?;
                let back = back.display().to_string();
                copied(daemon, &[&there, &back]).map_err(|error| format!("{error:?}"))
            })
        });
        let copies: Vec<_> = copies.collect();
        let ran = script(daemon, "echo meanwhile").map_err(|error| format!("{error:?}"));
        let copies = copies.into_iter().map(|copy| copy.join());
        copies
            .map(|copy| copy.unwrap_or_else(|_| Err("it panicked".into())))
            .chain([ran.map(drop)])
            .collect()
    });
    for result in results {
        result?;
    }
    let first = listing(&many)?.len();
    let last = listing(&scratch.path().join("at once 5"))?.len();
    check("at once", first == last, &(first, last))
}

/// Machines and files that do not allow a copy, and limits.
pub fn limits() -> Result<()> {
    let daemon = start()?;
    let scratch = Scratch::new()?;
    let file = scratch.path().join("file");
    fs::write(&file, "x")?;
    let request = json!({ "program": "tools", "path": "/bin/sleep", "args": ["100000"], "name": "ro",
        "read_only": true, "memory": 64 << 20, "start": true });
    daemon
        .request("POST", "/v1/machines", request.to_string().as_bytes())?
        .expect(201)?;
    await_state(&daemon, "/v1/machines/ro", "running")?;
    refused(
        &daemon,
        &[text(&file)?, "ro:/tmp/file"],
        "Read-only file system",
    )?;
    copied(
        &daemon,
        &["ro:/bin/text", text(&scratch.path().join("text"))?],
    )?;
    // More than the machine's memory.
    let mut small = request.clone();
    small["name"] = "small".into();
    small["read_only"] = false.into();
    daemon
        .request("POST", "/v1/machines", small.to_string().as_bytes())?
        .expect(201)?;
    await_state(&daemon, "/v1/machines/small", "running")?;
    let long = scratch.path().join("long");
    fs::write(&long, vec![1; 100 << 20])?;
    refused(
        &daemon,
        &[text(&long)?, "small:/tmp/long"],
        "No space left on device",
    )?;
    let gone = daemon.request("HEAD", "/v1/machines/small/files?path=/tmp/long", b"")?;
    check("removed", gone.status == 404, &gone)?;
    // The refusal arrives long before the end of the connection.
    let late = Relay::start(&daemon)?;
    let mut copy = hartline::command("cp")?;
    copy.args(["--host", &late.host, text(&long)?, "small:/tmp/long"]);
    let ended = process::run(&mut copy, b"")?;
    let is_told = ended.stderr_text().contains("No space left on device");
    check("an early answer", ended.code == 125 && is_told, &ended)?;
    daemon
        .request("POST", "/v1/machines/box/pause", b"")?
        .expect(200)?;
    refused(
        &daemon,
        &["box:/bin/text", "x"],
        "the machine is paused: resume it first",
    )?;
    refused(
        &daemon,
        &[text(&file)?, "box:/tmp/x"],
        "the machine is paused: resume it first",
    )?;
    daemon
        .request("POST", "/v1/machines/box/resume", b"")?
        .expect(200)?;
    await_state(&daemon, "/v1/machines/box", "running")?;
    daemon
        .request("POST", "/v1/machines/ro/kill", b"")?
        .expect(200)?;
    await_state(&daemon, "/v1/machines/ro", "exited")?;
    refused(
        &daemon,
        &["ro:/bin/text", "x"],
        "the machine is exited: start it first",
    )?;
    daemon.configure("pool = 1\ncopy_max_size = 1000000\ncopy_max_files = 5")?;
    daemon.hang_up();
    let target = scratch.path().join("target");
    prints(
        &daemon,
        "bb dd if=/dev/zero of=/tmp/big bs=1000000 count=2 2>/dev/null",
        "",
    )?;
    until(|| {
        cp(&daemon, &["box:/tmp/big", &target.display().to_string()])
            .is_ok_and(|output| output.status.code() == Some(125))
    })?;
    refused(&daemon, &["box:/tmp/big", text(&target)?], "broke off")?;
    refused(&daemon, &[text(&long)?, "box:/tmp/long"], "copy_max_size")?;
    let six = "bb mkdir /tmp/six; for n in 1 2 3 4 5 6; do : >/tmp/six/$n; done";
    prints(&daemon, six, "")?;
    let other = scratch.path().join("other");
    refused(&daemon, &["box:/tmp/six", text(&other)?], "copy_max_files")?;
    let names: Vec<String> = (0..6).map(|number| format!("f{number}")).collect();
    let members: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), b'0', "", &b""[..]))
        .collect();
    let answer = put(&daemon, "/tmp", &tar(&members))?;
    check(
        "files",
        answer.status == 413 && answer.text("code") == "copy-limit",
        &answer,
    )
}

/// A way to a daemon's socket that tells clients late that the daemon has closed a connection.
struct Relay {
    _folder: Scratch,
    host: String,
}

impl Relay {
    fn start(daemon: &Daemon) -> Result<Self> {
        const LATE: Duration = Duration::from_secs(1);
        let folder = Scratch::new()?;
        let path = folder.path().join("relay");
        let (listener, to) = (UnixListener::bind(&path)?, daemon.socket());
        // Connections of a client that has ended have ended too.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(daemon) = UnixStream::connect(&to) else {
                    continue;
                };
                let (Ok(mut input), Ok(mut output)) = (client.try_clone(), daemon.try_clone())
                else {
                    continue;
                };
                thread::spawn(move || io::copy(&mut input, &mut output));
                let (mut from, mut to) = (daemon, client);
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    thread::sleep(LATE);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        });
        Ok(Self {
            host: format!("unix://{}", path.display()),
            _folder: folder,
        })
    }
}

/// The daemon and the VMM do not run for longer than either may be silent, as when the host is
/// suspended: that is no silence of the client or the machine.
fn stopped(daemon: &Daemon) -> Result<()> {
    let both = [daemon.jailed(), vec![daemon.service()?]].concat();
    let stop = || {
        // What was sent has come by then.
        thread::sleep(Duration::from_millis(500));
        both.iter().for_each(|&pid| signal(pid, libc::SIGSTOP));
        thread::sleep(Duration::from_secs(5));
        both.iter().for_each(|&pid| signal(pid, libc::SIGCONT));
    };
    let archive = tar(&[("stopped", b'0', "", &[1; 100_000])]);
    let length = archive.len();
    let mut stream = daemon.connect()?;
    write!(
        stream,
        "PUT {FILES}?path=/tmp HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(&archive[..50_000])?;
    stop();
    stream.write_all(&archive[50_000..])?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    check(
        "stopped in an upload",
        answer.starts_with("HTTP/1.1 204"),
        &answer,
    )?;
    let mut stream = daemon.connect()?;
    write!(
        stream,
        "GET {FILES}?path=/tmp/big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )?;
    stream.read_exact(&mut [0; 1000])?;
    stop();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    let is_whole = rest.ends_with(b"0\r\n\r\n") && rest.len() > 100 << 20;
    check("stopped in a download", is_whole, &rest.len())
}

/// Clients that go away, and a machine that ends: nothing is left in the guest and in the VMM.
fn interrupted(mut daemon: Daemon) -> Result<()> {
    prints(
        &daemon,
        "bb dd if=/dev/zero of=/tmp/big bs=1M count=100 2>/dev/null",
        "",
    )?;
    let vmm = daemon.jailed();
    let descriptors = |daemon: &Daemon| -> usize {
        let service = daemon.service().ok();
        let processes = vmm.iter().copied().chain(service);
        let open = processes.filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok());
        open.map(Iterator::count).sum()
    };
    let before = descriptors(&daemon);
    // More than there may be at a time.
    for _ in 0..2 * hartline_abi::spawn::MAX_SPAWNED {
        let mut stream = daemon.connect()?;
        write!(
            stream,
            "GET {FILES}?path=/tmp/big HTTP/1.1\r\nHost: x\r\n\r\n"
        )?;
        let mut start = [0; 1000];
        stream.read_exact(&mut start)?;
        check(
            "the answer",
            start.starts_with(b"HTTP/1.1 200"),
            &"no success",
        )?;
        drop(stream);
        let mut stream = daemon.connect()?;
        let archive = tar(&[("part", b'0', "", &[1; 100_000])]);
        write!(
            stream,
            "PUT {FILES}?path=/tmp HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n"
        )?;
        stream.write_all(&archive[..50_000])?;
        drop(stream);
    }
    until(|| descriptors(&daemon) <= before)
        .map_err(|_| format!("{} descriptors, {before} before", descriptors(&daemon)))?;
    let snapshot = daemon.request("POST", "/v1/machines/box/snapshots", b"{}")?;
    check(
        "no copy is left",
        snapshot.text("code") != "snapshot-refused",
        &snapshot,
    )?;
    let scratch = Scratch::new()?;
    let target = scratch.path().join("target");
    copied(&daemon, &["box:/tmp/big", text(&target)?])?;
    // A machine that is paused during a copy is silent for too long.
    daemon.configure("pool = 1\nidle_timeout_s = 2")?;
    daemon.hang_up();
    let mut stream = daemon.connect()?;
    write!(
        stream,
        "GET {FILES}?path=/tmp/big HTTP/1.1\r\nHost: x\r\n\r\n"
    )?;
    stream.read_exact(&mut [0; 1000])?;
    let pause = daemon.request("POST", "/v1/machines/box/pause", b"")?;
    pause.expect(200)?;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let right = !rest.ends_with(b"0\r\n\r\n") && rest.len() < 100 << 20;
    check("paused", right, &rest.len())?;
    let resume = daemon.request("POST", "/v1/machines/box/resume", b"")?;
    resume.expect(200)?;
    await_state(&daemon, "/v1/machines/box", "running")?;
    copied(&daemon, &["box:/tmp/big", text(&target)?])?;
    stopped(&daemon)?;
    // A daemon that was started later copies too.
    daemon.kill()?;
    daemon.restart()?;
    await_state(&daemon, "/v1/machines/box", "running")?;
    copied(&daemon, &["box:/tmp/big", text(&target)?])?;
    let mut stream = daemon.connect()?;
    write!(
        stream,
        "GET {FILES}?path=/tmp/big HTTP/1.1\r\nHost: x\r\n\r\n"
    )?;
    stream.read_exact(&mut [0; 1000])?;
    daemon
        .request("POST", "/v1/machines/box/kill", b"")?
        .expect(200)?;
    let mut rest = Vec::new();
    // The answer breaks off: it has no end.
    let _ = stream.read_to_end(&mut rest);
    check(
        "its end",
        !rest.ends_with(b"0\r\n\r\n") && rest.len() < 100 << 20,
        &rest.len(),
    )
}
