//! Volumes that are block devices in the guest.

use super::expect;
use hartline_tests::compare::{Run, check_equal};
use hartline_tests::process::{self, Outcome};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline, paths};
use libtest_mimic::Failed;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Length of the disks, bytes.
const LENGTH: u64 = 4 << 20;

/// Makes a folder with a disk of zeros in it.
fn disk() -> Result<(Scratch, PathBuf)> {
    let folder = Scratch::new()?;
    let path = folder.path().join("disk");
    File::create(&path)?.set_len(LENGTH)?;
    Ok((folder, path))
}

/// Returns the value of `--volume` for a disk.
fn volume(host: &Path, suffix: &str) -> String {
    format!("{}:/dev/vda{suffix}", host.display())
}

/// Runs a part of `disk.c` with a disk.
fn run(part: &str, host: &Path) -> Result<Outcome> {
    let program = compile::alone("disk", "riscv64-linux-gnu-gcc")?;
    let run = Run::new(&program, [part, "/dev/vda"]);
    let volume = volume(host, "");
    process::run(&mut run.hartline_command(&["--volume", &volume])?, b"")
}

/// Runs a script of busybox with a disk.
fn script(text: &str, host: &Path, suffix: &str) -> Result<Outcome> {
    let run = Run::new(&paths::busybox(), ["sh", "-c", text]);
    let volume = volume(host, suffix);
    process::run(&mut run.hartline_command(&["--volume", &volume])?, b"")
}

/// Reads and writes at any position have the same results as for a file on this machine.
pub fn contents() -> Result<()> {
    let native = compile::alone("disk", "cc")?;
    let ((_here, on_host), (_there, in_guest)) = (disk()?, disk()?);
    let expected = process::run(Command::new(&native).arg("check").arg(&on_host), b"")?;
    expect(&expected, 0, "checked\n")?;
    check_equal(&expected, &run("check", &in_guest)?)?;
    match fs::read(&on_host)? == fs::read(&in_guest)? {
        true => Ok(()),
        false => Err("the disks differ".into()),
    }
}

/// Tasks use a disk at the same time, on one vCPU and on two.
pub fn tasks() -> Result<()> {
    let native = compile::alone("disk", "cc")?;
    let program = compile::alone("disk", "riscv64-linux-gnu-gcc")?;
    let (_here, on_host) = disk()?;
    let expected = process::run(Command::new(&native).arg("tasks").arg(&on_host), b"")?;
    expect(&expected, 0, "all there\n")?;
    for cpus in ["1", "2"] {
        let (_there, in_guest) = disk()?;
        let run = Run::new(&program, ["tasks", "/dev/vda"]);
        let volume = volume(&in_guest, "");
        let options = ["--cpus", cpus, "--volume", &volume];
        let outcome = process::run(&mut run.hartline_command(&options)?, b"")?;
        check_equal(&expected, &outcome)?;
        if fs::read(&on_host)? != fs::read(&in_guest)? {
            return Err("the disks differ".into());
        }
    }
    Ok(())
}

/// Operations that only block devices have.
pub fn device() -> Result<()> {
    let (_folder, path) = disk()?;
    let outcome = run("device", &path)?;
    expect(&outcome, 0, &format!("{} sectors\n", LENGTH / 512))?;
    match fs::metadata(&path)?.len() {
        LENGTH => Ok(()),
        other => Err(format!("the disk has {other} bytes").into()),
    }
}

/// Several disks, one of them read-only; and images that cannot be disks.
pub fn read_only() -> Result<()> {
    let ((_one, a), (_two, b)) = (disk()?, disk()?);
    let program = paths::busybox();
    let text = "/busybox dd if=/dev/sys of=/dev/data bs=1000 count=3 2>/dev/null; echo $?
                echo x 2>/dev/null >/dev/sys; echo $?; /busybox ls /dev | /busybox grep -c 'sys\\|data'";
    fs::write(&a, vec![b'a'; 5000])?;
    let run = Run::new(&program, ["sh", "-c", text]);
    let volumes = [
        format!("{}:/dev/sys:ro", a.display()),
        format!("{}:/dev/data", b.display()),
    ];
    let options = ["--volume", &volumes[0], "--volume", &volumes[1]];
    let outcome = process::run(&mut run.hartline_command(&options)?, b"")?;
    expect(&outcome, 0, "0\n1\n2\n")?;
    if fs::read(&b)?[..3001] != [vec![b'a'; 3000], vec![0]].concat() {
        return Err("the copy is wrong".into());
    }
    let refused = |host: &Path, word: &str| -> Result<()> {
        let outcome = script("true", host, "")?;
        match outcome.code == 125 && outcome.stderr_text().contains(word) {
            true => Ok(()),
            false => Err(format!("{outcome:?}").into()),
        }
    };
    refused(Path::new("/dev/null"), "block device")?;
    refused(Path::new("/nonexistent"), "No such file")?;
    let busy = File::open(&a)?;
    busy.lock()?;
    refused(&a, "another virtual machine")
}

/// Rate limits on requests take effect.
pub fn limited() -> Result<()> {
    let (_folder, path) = disk()?;
    // 2 MiB in 512 requests.
    let text = "/busybox dd if=/dev/vda of=/dev/null bs=4096 count=512 2>/dev/null; echo $?";
    let time = |suffix: &str| {
        let start = Instant::now();
        expect(&script(text, &path, suffix)?, 0, "0\n")?;
        Ok::<_, Failed>(start.elapsed())
    };
    // Two seconds each, minus the burst that a limit allows.
    let (bytes, requests) = (time(":rate=1M")?, time(":ro,ops=256")?);
    let least = Duration::from_millis(1800);
    match bytes > least && requests > least {
        true => Ok(()),
        false => Err(format!("{bytes:?}, {requests:?}").into()),
    }
}

/// Blocks that were durable when the VMM was killed are on the disk.
pub fn killed() -> Result<()> {
    const BLOCKS: u64 = 200;
    let (_folder, path) = disk()?;
    let program = compile::alone("disk", "riscv64-linux-gnu-gcc")?;
    let mut command = hartline::command("run")?;
    command.args(["--volume", &volume(&path, "")]);
    command.arg(program).args(["commit", "/dev/vda"]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut last = 0;
    for line in output.lines() {
        last = line?.parse::<u64>()?;
        if last == BLOCKS {
            child.kill()?;
        }
    }
    child.wait()?;
    let disk = File::open(&path)?;
    for number in (1..=last).rev().take(2000) {
        let mut block = [0; 512];
        disk.read_exact_at(&mut block, number % 2048 * 512)?;
        let words = block.as_chunks::<8>().0;
        if words.iter().any(|word| u64::from_le_bytes(*word) < number) {
            return Err(format!("block {number} of {last} is not there").into());
        }
    }
    match last {
        BLOCKS.. => Ok(()),
        _ => Err(format!("only {last} blocks").into()),
    }
}

/// A file that becomes shorter, and a full host, cause errors, and the VM continues.
pub fn no_room() -> Result<()> {
    let (_folder, path) = disk()?;
    let text = "/busybox dd if=/dev/vda of=/dev/null bs=4k count=1 2>/dev/null; echo $?; read x
                /busybox dd if=/dev/vda of=/dev/null bs=4k skip=100 count=1 2>/dev/null; echo $?";
    let mut command = hartline::command("run")?;
    command.args(["--volume", &volume(&path, "")]);
    command.arg(paths::busybox()).args(["sh", "-c", text]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    File::options().write(true).open(&path)?.set_len(8192)?;
    drop(child.stdin.take());
    output.read_line(&mut line)?;
    process::wait(&mut child)?;
    match line.as_str() {
        "0\n1\n" => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// A disk on a host with less free space than its length.
pub fn full() -> Result<()> {
    let folder = Scratch::new()?;
    let place = folder.path().display();
    // The mount is in a separate mount namespace, which ends with the VM.
    let prepare = format!(
        "mount -t tmpfs -o size=256k none {place} && truncate -s {LENGTH} {place}/disk && exec \"$@\""
    );
    let text = "/busybox dd if=/dev/zero of=/dev/vda bs=64k count=64 2>/dev/null; echo $?
                /busybox dd if=/dev/vda of=/dev/null bs=64k count=64 2>/dev/null; echo $?";
    let inner = {
        let run = Run::new(&paths::busybox(), ["sh", "-c", text]);
        let volume = volume(&folder.path().join("disk"), "");
        run.hartline_command(&["--volume", &volume])?
    };
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &prepare, "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let outcome = process::run(&mut command, b"")?;
    expect(&outcome, 0, "1\n0\n")
}
