//! Files of the host that a program in a VM reads and writes: calls answer what they
//! answer on this machine, both sides see each other's changes, and nothing outside the
//! volume is ever reached.

use hartline_tests::compare::{Run, check_equal};
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, paths};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, ExitCode};

/// What `tests/programs/alone/volumes.c` can do.
const PARTS: &[&str] = &["files", "locks", "maps"];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for part in PARTS {
        suite.add_kvm(format!("as on this machine: {part}"), || same(part));
    }
    suite.add_kvm("both sides see changes", both_sides);
    suite.add_kvm("links stay inside", links);
    suite.add_kvm("a file as a volume", single_file);
    suite.add_kvm("read-only folder", read_only_folder);
    suite.add_kvm("volume in a volume", nested);
    suite.run()
}

/// Runs a part of the program in a folder of this machine and in a volume.
fn same(part: &str) -> Result<()> {
    let native = compile::alone("volumes", "cc")?;
    let folder = Scratch::new()?;
    let mut command = Command::new(&native);
    let expected = process::run(command.arg(part).arg(folder.path()), b"")?;
    let program = compile::alone("volumes", "riscv64-linux-gnu-gcc")?;
    let run = Run::new(&program, [part, "/volume"]);
    // Files in the VM's memory, too.
    let inside = Run::new(&program, [part, "/tmp"]);
    let outcome = process::run(&mut inside.hartline_command(&["--interpret"])?, b"")?;
    check_equal(&expected, &outcome)?;
    let left = |folder: &Scratch| -> Result<Vec<(String, Vec<u8>)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder.path())? {
            let entry = entry?;
            let bytes = fs::read(entry.path()).unwrap_or_default();
            files.push((entry.file_name().to_string_lossy().into_owned(), bytes));
        }
        files.sort();
        Ok(files)
    };
    for options in [&["--interpret"][..], &[]] {
        let volume = Scratch::new()?;
        let outcome = in_volume(&run, volume.path(), options)?;
        check_equal(&expected, &outcome)?;
        if left(&folder)? != left(&volume)? {
            return Err(format!("{:?} is left", left(&volume)?).into());
        }
    }
    Ok(())
}

/// Runs a program with the folder or file `host` as `/volume`.
fn in_volume(run: &Run, host: &Path, options: &[&str]) -> Result<Outcome> {
    let volume = format!("{}:/volume", host.display());
    let options = [options, &["--volume", &volume]].concat();
    process::run(&mut run.hartline_command(&options)?, b"")
}

/// Runs a script of busybox with the folder or file `host` as `/volume`.
fn script(text: &str, host: &Path) -> Result<Outcome> {
    in_volume(&Run::new(&paths::busybox(), ["sh", "-c", text]), host, &[])
}

fn expect(outcome: &Outcome, code: i32, stdout: &str) -> Result<()> {
    match outcome.code == code && outcome.stdout_text() == stdout {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// What was there is read, what is written is there afterwards, also after the VM is killed.
fn both_sides() -> Result<()> {
    let folder = Scratch::new()?;
    fs::write(folder.path().join("in"), "from the host\n")?;
    let text = "cd /volume; cat in; echo from the guest > out; mkdir d; mv in d; chmod 640 out; \
                kill -9 $$";
    let outcome = script(text, folder.path())?;
    expect(&outcome, 128 + 9, "from the host\n")?;
    let out = folder.path().join("out");
    let mode = fs::metadata(&out)?.permissions().mode();
    let moved = fs::read_to_string(folder.path().join("d/in"))?;
    match (
        fs::read_to_string(out)?.as_str(),
        moved.as_str(),
        mode & 0o7777,
    ) {
        ("from the guest\n", "from the host\n", 0o640) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Links lead to files of the guest, whatever they lead to on the host.
fn links() -> Result<()> {
    let outside = Scratch::new()?;
    let folder = outside.path().join("volume");
    fs::create_dir(&folder)?;
    fs::write(outside.path().join("secret"), "secret\n")?;
    symlink("../secret", folder.join("up"))?;
    symlink(outside.path().join("secret"), folder.join("absolute"))?;
    symlink("/tmp", folder.join("tmp"))?;
    let text = "cd /volume; cat up absolute ../secret ../../../secret; echo x > absolute; \
                echo x > up; mkdir -p ../volume/../new; echo guest > tmp/file; cat /tmp/file; \
                ln -s / root; ls root/volume/.. | wc -l; cat root/etc/passwd; cd ..; pwd";
    let outcome = script(text, &folder)?;
    // The guest's root: dev, new, proc, tmp, volume, the program and the secret of its own.
    expect(&outcome, 0, "guest\n7\n/\n")?;
    let mut names = Vec::new();
    for entry in fs::read_dir(outside.path())? {
        names.push(entry?.file_name());
    }
    names.sort();
    let secret = fs::read_to_string(outside.path().join("secret"))?;
    match (names == ["secret", "volume"], secret.as_str()) {
        (true, "secret\n") => Ok(()),
        _ => Err(format!("{names:?} {secret}").into()),
    }
}

/// A volume may be a file. It cannot be removed or replaced, only written.
fn single_file() -> Result<()> {
    let folder = Scratch::new()?;
    let file = folder.path().join("file");
    fs::write(&file, "one\n")?;
    fs::write(folder.path().join("other"), "other\n")?;
    let text = "cat /volume; echo two >> /volume; rm /volume; mv /volume /x; ls /volume/..";
    let outcome = script(text, &file)?;
    if !outcome.stdout_text().starts_with("one\n") || outcome.stdout_text().contains("other") {
        return Err(format!("{outcome:?}").into());
    }
    match fs::read_to_string(&file)?.as_str() {
        "one\ntwo\n" => Ok(()),
        other => Err(other.into()),
    }
}

/// With `:ro` nothing that the program does reaches the host.
fn read_only_folder() -> Result<()> {
    let folder = Scratch::new()?;
    fs::write(folder.path().join("file"), "one\n")?;
    let volume = format!("{}:/volume:ro", folder.path().display());
    let text = "cat /volume/file; rm /volume/file; echo x > /volume/new; ls /volume";
    let run = Run::new(&paths::busybox(), ["sh", "-c", text]);
    let options = ["--volume", volume.as_str()];
    let outcome = process::run(&mut run.hartline_command(&options)?, b"")?;
    expect(&outcome, 0, "one\nnew\n")?;
    let entries = fs::read_dir(folder.path())?.count();
    match (
        entries,
        fs::read_to_string(folder.path().join("file"))?.as_str(),
    ) {
        (1, "one\n") => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Volumes are mounted in the order of the command line.
fn nested() -> Result<()> {
    let (outer, inner) = (Scratch::new()?, Scratch::new()?);
    fs::create_dir(outer.path().join("inner"))?;
    fs::write(inner.path().join("file"), "inside\n")?;
    let second = format!("{}:/volume/inner", inner.path().display());
    let text = "cat /volume/inner/file; echo x > /volume/inner/new; mv /volume/inner/new /volume; \
                ls /volume /volume/inner";
    let run = Run::new(&paths::busybox(), ["sh", "-c", text]);
    let first = format!("{}:/volume", outer.path().display());
    let options = ["--volume", first.as_str(), "--volume", second.as_str()];
    let outcome = process::run(&mut run.hartline_command(&options)?, b"")?;
    expect(
        &outcome,
        0,
        "inside\n/volume:\ninner\nnew\n\n/volume/inner:\nfile\n",
    )
}
