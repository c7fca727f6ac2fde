//! Files of the host that a program in a VM reads and writes. Calls have the same results as on
//! this machine, both sides see each other's changes, and the program never reaches a file outside
//! the volume. Block devices, too.

#[path = "volumes/disks.rs"]
mod disks;
#[path = "volumes/slow.rs"]
mod slow;

use hartline_tests::compare::{Run, check_equal};
use hartline_tests::dynamic::Root;
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline, paths};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The parts of `tests/programs/alone/volumes.c`.
const PARTS: &[&str] = &["files", "locks", "maps", "watching", "extended"];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for part in PARTS {
        suite.add_kvm(format!("as on this machine: {part}"), || same(part));
    }
    suite.add_kvm("both sides see changes", both_sides);
    suite.add_kvm("a task waits for slow storage", || beside("1"));
    suite.add_kvm("a task waits for slow storage, two vCPUs", || beside("2"));
    suite.add_kvm("links stay inside", links);
    suite.add_kvm("a file as a volume", single_file);
    suite.add_kvm("read-only folder", read_only_folder);
    suite.add_kvm("read-only folder of any size", large_read_only_folder);
    suite.add_kvm("a program in a volume is translated", program_in_volume);
    suite.add_kvm("a program in a volume changes", changing_program);
    suite.add_kvm("the first program is in a volume", first_program);
    suite.add_kvm("volume in a volume", nested);
    suite.add_kvm("sqlite3 with WAL, killed and opened again", database_killed);
    suite.add_kvm("sqlite3 with WAL, several processes", database_shared);
    suite.add_kvm("disk: contents", disks::contents);
    suite.add_kvm("disk: tasks beside one another", disks::tasks);
    suite.add_kvm("disk: what block devices have", disks::device);
    suite.add_kvm("disk: read-only, several, not one", disks::read_only);
    suite.add_kvm("disk: limited", disks::limited);
    suite.add_kvm("disk: the VMM is killed", disks::killed);
    suite.add_kvm("disk: a file that shrinks", disks::no_room);
    suite.add_root_kvm("disk: a host without room", disks::full);
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
    // The VM's file system in memory has the same results.
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

/// The guest reads existing files, and its writes persist, even if the VM is killed.
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

/// A thread that waits for storage of the host does not block other threads.
fn beside(cpus: &str) -> Result<()> {
    const EXPECTED: &str = "write(file, bytes, sizeof bytes): 10000\nfsync(file): 0\n\
        fdatasync(file): 0\npreadv(file, parts, 2, 0): 10000\nwhat was written\n\
        read(file, bytes, sizeof bytes): 0\nslow: the other one went on\n";
    let folder = Scratch::new()?;
    let program = compile::alone("volumes", "riscv64-linux-gnu-gcc")?;
    let run = Run::new(&program, ["beside", "/volume"]);
    let volume = format!("{}:/volume", folder.path().display());
    let options = ["--interpret", "--cpus", cpus, "--volume", &volume];
    expect(
        &slow::run(&mut run.hartline_command(&options)?)?,
        0,
        EXPECTED,
    )
}

/// Links refer to files of the guest, whatever they refer to on the host.
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
    // The guest's root contains dev, new, proc, root, sys, tmp, volume, the program and the guest's
    // secret.
    expect(&outcome, 0, "guest\n9\n/\n")?;
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

/// With `:ro`, no change of the program reaches the host.
fn read_only_folder() -> Result<()> {
    let folder = Scratch::new()?;
    fs::write(folder.path().join("file"), "one\n")?;
    let volume = format!("{}:/volume:ro", folder.path().display());
    let text = "exec 2>&1; cd /volume; cat file; rm file; mkdir new; mv file other; chmod 777 file; \
                ln -s x link; touch -d @1 file; ls; \
                (echo x > new); (echo x > file); grep -o ' /volume virtiofs r[ow]' /proc/mounts";
    let run = Run::new(&paths::busybox(), ["sh", "-c", text]);
    let options = ["--volume", volume.as_str()];
    let outcome = process::run(&mut run.hartline_command(&options)?, b"")?;
    let refused = |what: &str| format!("{what}: Read-only file system\n");
    let expected = [
        "one\n".to_owned(),
        refused("rm: can't remove 'file'"),
        refused("mkdir: can't create directory 'new'"),
        refused("mv: can't rename 'file'"),
        refused("chmod: file"),
        refused("ln: link"),
        refused("touch: file"),
        "file\n".to_owned(),
        refused("sh: can't create new"),
        refused("sh: can't create file"),
        " /volume virtiofs ro\n".to_owned(),
    ];
    expect(&outcome, 0, &expected.concat())?;
    let entries = fs::read_dir(folder.path())?.count();
    match (
        entries,
        fs::read_to_string(folder.path().join("file"))?.as_str(),
    ) {
        (1, "one\n") => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// No file of a read-only folder is read before the program reads it.
fn large_read_only_folder() -> Result<()> {
    let folder = Scratch::new()?;
    let large = fs::File::create(folder.path().join("large"))?;
    large.write_all_at(b"end", (1 << 40) - 3)?;
    fs::write(folder.path().join("late"), "before\n")?;
    let volume = format!("{}:/volume:ro", folder.path().display());
    let text = "tail -c 3 /volume/large; read line; cat /volume/late";
    let run = Run::new(&paths::busybox(), ["sh", "-c", text]);
    let mut child = (run.hartline_command(&["--volume", &volume])?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = child.stdout.take().ok_or("no output")?;
    let mut end = [0; 3];
    output.read_exact(&mut end)?;
    fs::write(folder.path().join("late"), "after\n")?;
    drop(child.stdin.take().map(|mut input| input.write_all(b"\n")));
    let mut rest = String::new();
    output.read_to_string(&mut rest)?;
    child.wait()?;
    match (&end, rest.as_str()) {
        (b"end", "after\n") => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// A program from a volume, writable or not, runs as fast as from the root.
fn program_in_volume() -> Result<()> {
    let folder = Scratch::new()?;
    fs::copy(paths::busybox(), folder.path().join("busybox"))?;
    fs::write(folder.path().join("data"), vec![b'x'; 1 << 20])?;
    let text = "/volume/busybox sha256sum /volume/data";
    let expected = process::run(
        Command::new("sha256sum").arg(folder.path().join("data")),
        b"",
    )?;
    let expected = expected
        .stdout_text()
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned();
    for how in ["", ":ro"] {
        let volume = format!("{}:/volume{how}", folder.path().display());
        let run = Run::new(&paths::busybox(), ["sh", "-c", text]);
        let outcome = run.hartline(&["--stats=json", "--volume", &volume])?;
        expect(&outcome, 0, &format!("{expected}  /volume/data\n"))?;
        // Interpreted, the hash would take some ten million instructions.
        hartline::check_interpreted(&outcome, 1_000_000)?;
    }
    Ok(())
}

fn first_program() -> Result<()> {
    let (root, folder) = (Scratch::new()?, Scratch::new()?);
    let inside = |name: &str| folder.path().join(name);
    fs::copy(paths::busybox(), inside("busybox"))?;
    fs::write(inside("text"), "no program\n")?;
    fs::write(inside("closed"), "\x7fELF")?;
    fs::set_permissions(inside("text"), fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(inside("closed"), fs::Permissions::from_mode(0o644))?;
    symlink("/volume", root.path().join("link"))?;
    let volume = format!("{}:/volume", folder.path().display());
    let run = |program: &str, options: &[&str]| -> Result<Outcome> {
        let mut command = Command::new(hartline::binary()?);
        command.args(["run", "--volume", &volume, "--rootfs"]);
        command.arg(root.path()).args(options).arg(program);
        process::run(command.args(["sh", "-c", "echo $0; exit 3"]), b"")
    };
    for program in ["/volume/busybox", "volume/./busybox", "/link/busybox"] {
        expect(&run(program, &[])?, 3, "sh\n")?;
    }
    expect(&run("/volume/busybox", &["--interpret"])?, 3, "sh\n")?;
    for (program, why) in [
        ("/volume/nothing", "no such file"),
        ("/link/nothing", "no such file"),
        ("/nothing", "no such file"),
        ("/volume/closed", "not an executable file"),
        ("/volume/text", "cannot be loaded"),
        ("/volume", "not an executable file"),
    ] {
        let outcome = run(program, &[])?;
        let message = outcome.stderr_text();
        if outcome.code != 125 || !message.contains(why) || message.lines().count() != 1 {
            return Err(format!("{program}: {outcome:?}").into());
        }
    }
    Ok(())
}

/// A program that is changed while it runs continues unchanged. The next exec runs its new
/// contents.
fn changing_program() -> Result<()> {
    let folder = Scratch::new()?;
    fs::copy(paths::busybox(), folder.path().join("busybox"))?;
    let other = compile::alone("volumes", "riscv64-linux-gnu-gcc")?;
    fs::copy(other, folder.path().join("other"))?;
    let text = "mkfifo /tmp/pipe; cd /volume; ./busybox echo one; \
                ./busybox sh -c 'read line; echo $line; while [ ${#line} -lt 9 ]; do \
                line=x$line; done; echo $line' < /tmp/pipe & \
                exec 3> /tmp/pipe; sleep 1; cat other > busybox; echo two >&3; wait; \
                ./busybox echo three; echo $?; cp /busybox busybox; ./busybox echo four";
    let run = Run::new(&paths::busybox(), ["sh", "-c", text]);
    let volume = format!("{}:/volume", folder.path().display());
    let outcome = run.hartline(&["--volume", &volume])?;
    expect(&outcome, 0, "one\ntwo\nxxxxxxtwo\n99\nfour\n")
}

/// A root directory with sqlite3 and a shell.
fn database_root() -> Result<&'static Root> {
    static ROOT: OnceLock<std::result::Result<Root, String>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        Root::new("volumes", ["sqlite3"].into_iter())
            .map_err(|error| error.message().unwrap_or("no root directory").to_owned())
    });
    root.as_ref().map_err(|error| error.as_str().into())
}

/// Returns statements that add `count` rows, each in its own transaction, and print its number when
/// it is committed.
fn inserts(count: usize) -> String {
    let mut text = String::from(
        ".timeout 60000\npragma journal_mode=wal;\n\
         create table if not exists t(id integer primary key, name text);\n",
    );
    for row in 0..count {
        text += &format!("insert into t(name) values('{row:0>100}') returning id;\n");
    }
    text
}

/// Transactions that were committed when the VM was killed are there afterwards.
fn database_killed() -> Result<()> {
    let root = database_root()?;
    let folder = Scratch::new()?;
    let volume = format!("{}:/volume", folder.path().display());
    let options = ["--interpret", "--volume", volume.as_str()];
    let mut sum = 0;
    for round in 0..3 {
        let run = root.run("sqlite3", &["/volume/db"]);
        let input = folder.path().join("input");
        fs::write(&input, inserts(20_000))?;
        let mut child = (run.hartline_command(&options)?)
            .stdin(fs::File::open(&input)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut last = 0_u64;
        let mut line = String::new();
        let mut end = None;
        while end.is_none_or(|end| Instant::now() < end) && output.read_line(&mut line)? > 0 {
            if let Ok(row) = line.trim().parse() {
                last = row;
                // A busy machine takes long until the first transaction.
                end.get_or_insert(Instant::now() + Duration::from_millis(300 + 400 * round));
            }
            line.clear();
        }
        child.kill()?;
        child.wait()?;
        let check = "pragma integrity_check; select max(id) = count(*), max(id) from t;";
        let run = root.run("sqlite3", &["/volume/db", check]);
        let outcome = process::run(&mut run.hartline_command(&options)?, b"")?;
        let text = outcome.stdout_text();
        let rows = text
            .trim()
            .strip_prefix("ok\n1|")
            .and_then(|n| n.parse::<u64>().ok());
        match rows {
            Some(rows) if rows >= last && rows > sum => sum = rows,
            _ => return Err(format!("{last} were committed, {sum} before: {outcome:?}").into()),
        }
    }
    Ok(())
}

/// Processes that share the database's index in memory lose no row.
fn database_shared() -> Result<()> {
    const WRITERS: usize = 3;
    const ROWS: usize = 60;
    let root = database_root()?;
    let folder = Scratch::new()?;
    fs::write(folder.path().join("input"), inserts(ROWS))?;
    let text = "cd /volume; for n in 1 2 3; do /bin/sqlite3 db < input > out$n & done; wait; \
                /bin/sqlite3 db 'pragma integrity_check; select count(*) from t'";
    let program = root.path().join("bin/busybox");
    let run = Run::new(&program, ["sh", "-c", text]).in_root(root.path(), "/bin/busybox");
    let outcome = in_volume(&run, folder.path(), &["--interpret"])?;
    expect(&outcome, 0, &format!("ok\n{}\n", WRITERS * ROWS))
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
