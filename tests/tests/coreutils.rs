//! Debian's riscv64 coreutils in a VM, against Debian's amd64 ones on this machine. One shell runs
//! all commands; output and exit code of each must be equal.

use hartline_tests::compare::check_equal;
use hartline_tests::dynamic::Root;
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::{self, Scratch};
use hartline_tests::{Result, hartline, paths};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

/// The programs that the commands use.
const PROGRAMS: &[&str] = &[
    "[",
    "basename",
    "base32",
    "base64",
    "basenc",
    "b2sum",
    "cat",
    "chmod",
    "chown",
    "cksum",
    "comm",
    "cp",
    "csplit",
    "cut",
    "date",
    "dd",
    "df",
    "dircolors",
    "dirname",
    "du",
    "echo",
    "dash",
    "env",
    "expand",
    "expr",
    "factor",
    "false",
    "fmt",
    "fold",
    "groups",
    "head",
    "id",
    "install",
    "join",
    "link",
    "ln",
    "logname",
    "ls",
    "md5sum",
    "mkdir",
    "mkfifo",
    "mknod",
    "mktemp",
    "mv",
    "nice",
    "nl",
    "nohup",
    "nproc",
    "numfmt",
    "od",
    "paste",
    "pathchk",
    "pr",
    "printenv",
    "printf",
    "ptx",
    "pwd",
    "readlink",
    "realpath",
    "rm",
    "rmdir",
    "seq",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "shred",
    "shuf",
    "sleep",
    "sort",
    "split",
    "stat",
    "stty",
    "sum",
    "sync",
    "tac",
    "tail",
    "tee",
    "test",
    "timeout",
    "touch",
    "tr",
    "true",
    "truncate",
    "tsort",
    "tty",
    "uname",
    "unexpand",
    "uniq",
    "unlink",
    "wc",
    "whoami",
    "yes",
];

/// Commands of the shell; a row runs in its own folder, with `/data` beside it.
const ROWS: &[&str] = &[
    "cd /data/tree; ls -ldA *; ls -lA a/b/c",
    "ls -1 --sort=size /data",
    "ls -R /data/tree",
    "ls -i /data | wc -l",
    "ls --zero /data/tree | od -c | head",
    "ls -l --time-style=+%Y /data/words.txt /nowhere",
    "cp -a /data/tree copy; find copy | sort; stat -c '%n %A %h %s %Y' copy/*",
    "cp -r /data/tree copy; cp -r copy copy/a; rm -r copy; ls",
    "cp --sparse=always /data/binary.bin b; cmp b /data/binary.bin; stat -c %s b",
    "cp -l /data/old.txt . 2>&1; cp -s /data/old.txt soft; readlink soft; cat soft",
    "cp --reflink=auto /data/old.txt x; cat x; cp -n /data/new.txt x; cat x; cp -u /data/new.txt x; cat x",
    "cp /data/old.txt /data/new.txt nowhere; cp /data/tree .; cp x x; touch y; cp y y",
    "mkdir -p a/b/c; mkdir -m 700 d; mkdir a; rmdir a; rmdir -p a/b/c; ls -l | wc -l; stat -c %a d",
    "touch a b; mv a c; mv b c d; mkdir d; mv -t d c b; ls d; mv d d/e; mv -T d f; ls",
    "touch a; ln a b; ln -s a c; ln -s nowhere d; stat -c '%n %h %F' *; ln a b; ln -f c b; ln -sr /data/tree e; readlink e",
    "link /data/old.txt x; ls x; touch y; link y z; stat -c %h y; unlink y; ls; unlink y",
    "touch -d '2001-02-03 04:05:06.789 UTC' f; stat -c '%y %Y' f; touch -r f g; stat -c %.Y g; touch -c h; ls",
    "touch -a -d @5 f; touch -m -d @7 f; stat -c '%X %Y' f",
    "touch f; chmod 4711 f; stat -c '%a %A' f; chmod u-s,g=u,o+w f; stat -c %a f; chmod +t .; stat -c %A .; chmod 9 f",
    "umask 027; touch f; mkdir d; stat -c %a f d; chmod --reference=d f; stat -c %a f; mkfifo p; stat -c %F p",
    "touch f; chown 5:6 f; stat -c '%u %g' f; chown :7 f; stat -c '%u %g' f; chown nobody_here f",
    "install -D -m 640 /data/old.txt a/b/c; stat -c '%a %s' a/b/c; install -d x/y; ls -F x",
    "rm nothing; rm -f nothing; mkdir d; rm d; touch d/f; rm -r d; ls; rm -r .; rm ''",
    "truncate -s 5K f; stat -c %s f; truncate -s -1K f; stat -c %s f; truncate -s %1000 f; stat -c %s f; od -An -tx1 f | head -2",
    "dd if=/data/binary.bin of=out bs=1000 skip=3 count=7 seek=2 status=none; cksum out; stat -c %s out",
    "dd if=/data/words.txt of=x conv=ucase,notrunc bs=512 count=2 2>&1 | head -2; head -c 60 x",
    "dd if=/dev/zero bs=64K count=20 status=none | wc -c; dd if=/dev/urandom bs=100 count=3 status=none | wc -c",
    "shred -n 2 -z -s 100 f; touch f; shred -n 2 -z -s 100 f; od -An -tx1 f | head -3; shred -u f; ls",
    "split -l 700 /data/words.txt part-; wc -l part-*; cat part-* | cmp - /data/words.txt",
    "split -n 5 -d /data/binary.bin x; sha256sum x*; split -b 100000 --filter='wc -c' /data/binary.bin",
    "csplit -s -f p /data/old.txt /gamma/ '{0}'; head p*; csplit /data/old.txt /nothing/",
    "wc /data/words.txt /data/binary.bin; wc -L /data/words.txt; printf 'a b' | wc",
    "cat -A /data/dos.txt /data/tabs.txt; cat nothing; cat < /data/old.txt > x; cat x x",
    "tac /data/old.txt; tac -s e /data/new.txt",
    "head -n -2 /data/old.txt; head -c 10 /data/old.txt; tail -c 10 /data/old.txt; tail -n +3 /data/old.txt",
    "echo first > f; (sleep 0.3; echo later >> f; sleep 0.3; echo end >> f) & tail -f ---disable-inotify -s 0.1 --pid=$! f; echo ended",
    "nl -ba -s: -w3 /data/old.txt; od -A d -t x1z /data/dos.txt; od -t f8 -N 32 /data/binary.bin",
    "base64 -w 30 /data/other.bin | head -3; base64 /data/binary.bin | base64 -d | cmp - /data/binary.bin; base32 /data/old.txt",
    "basenc --base16 /data/old.txt; basenc --z85 -d /data/old.txt; basenc --base64url /data/other.bin | tail -1",
    "md5sum /data/*.txt; sha1sum /data/*.bin; sha512sum /data/old.txt; b2sum -l 128 /data/old.txt",
    "sha256sum /data/*.txt > sums; sha256sum -c sums; sed -i s/^./0/ sums; sha256sum -c sums 2>&1",
    "sum /data/old.txt; sum -s /data/old.txt; cksum /data/old.txt; cksum -a sha256 /data/old.txt",
    "sort -k2 /data/words.txt | sha1sum; sort -t, -k4n,4 -k1r /data/table.csv | head -3; sort -c /data/words.txt",
    "sort -R --random-source=/data/binary.bin /data/old.txt; sort -m /data/old.txt /data/old.txt; sort -V -u /data/numbers.txt | tail -2",
    "sort --parallel=2 -S 20K /data/numbers.txt | sha1sum; sort -h /data/numbers.txt | head -2; sort -o /data/x /nowhere",
    "uniq -c /data/old.txt; sort /data/words.txt | uniq -d | head -3; printf 'a\\na\\nb\\n' | uniq -u",
    "comm -12 /data/old.txt /data/new.txt; comm --total /data/old.txt /data/new.txt; join -t, -j 1 /data/old.txt /data/new.txt",
    "cut -c 2-4 /data/old.txt; cut -d, -f 3- /data/table.csv | head -2; paste -s -d, /data/old.txt; paste /data/old.txt /data/new.txt",
    "tr a-z A-Z < /data/old.txt; tr -d aeiou < /data/old.txt; tr -cs a-z '\\n' < /data/dos.txt; tr '[:lower:]' x < /data/new.txt",
    "expand -t 4 /data/tabs.txt; unexpand -a /data/tabs.txt; fold -w 7 /data/old.txt; fmt -w 20 /data/old.txt",
    "pr -2 -l 20 -h x -D y /data/old.txt; ptx /data/old.txt; tsort /data/words.txt 2>&1 | head -2",
    "numfmt --to=iec 1000000 1024 5; numfmt --from=si 5K 3M; echo '1 2000 x' | numfmt --field 2 --to=si; numfmt x",
    "factor 1 2 97 1234567890123456789 18446744073709551557; factor x; seq 3 | factor",
    "seq 3 -1 -2; seq -w 8 11; seq -s, 1 0.25 2; seq -f '%05.1f' 3; seq 5 1; seq x",
    "expr 7 \\* 6 + 1; expr 10 / 3; expr length hello; expr hello : 'h\\(.*\\)o'; expr 5 \\< 3; expr 1 / 0; expr",
    "/bin/echo -e 'a\\tb\\x41\\c' z; /bin/echo -n x; /bin/printf '%5.2f|%-5s|%x|%c|%q\\n' 3.14159 ab 255 z \"it's\"; /bin/printf %d x",
    "/bin/test -f /data/old.txt && echo yes; /bin/test 3 -gt 4 || echo no; /bin/[ a = b ]; echo $?; /bin/test -d /data -a -x /data; echo $?",
    "/bin/test /data/old.txt -ot /data/new.txt; echo $?; touch a; /bin/test a -nt /data/old.txt; echo $?; /bin/test -L /data/tree/link; echo $?",
    "basename /a/b/c.txt .txt; basename -a x/y z/; dirname /a/b/ c /; pathchk -p 'a b'; pathchk ''",
    "readlink -f /data/tree/link; readlink /data/tree/dangling; readlink -e /data/tree/dangling; readlink -m a/../b/./c | sed 's#.*/#/#'",
    "realpath /data/tree/../old.txt; realpath --relative-to=/data/tree /data/old.txt; realpath -s /data/tree/link; realpath /no/where",
    "cd /data/tree/a/up; /bin/pwd; /bin/pwd -L; cd ..; /bin/pwd",
    "mktemp -d tmp.XXXXXX | wc -c; mktemp -u x.XXX | cut -c 1-2; mktemp bad; ls | wc -l",
    "date -u -d @86400 '+%F %T %s %N %j %U'; date -u -d '2024-02-29 +1 year' +%F; date -u -d nonsense; TZ=UTC-2 date -d @0 +%R",
    "id -u; id -g; id -un; whoami; groups; id nobody_here; logname",
    "uname -s; uname -n | wc -l; nproc | wc -l; uname -x",
    "env -i A=1 B=2 /bin/printenv | sort; env -u PATH /bin/env | grep -c PATH; A=x /bin/printenv A B; env A=5 /bin/sh -c 'echo $A'; env nothing",
    // The values themselves may differ: the tests may run with another nice value than 0.
    "a=$(nice); b=$(nice -n 5 nice); echo $((b - a)); nohup true; timeout 5 false; echo $?",
    "sleep 0.01 0.01; sleep x; true x; false; yes | head -3; yes no | head -c 10; tty < /dev/null; stty < /dev/null",
    "du -a --apparent-size -b /data/tree/a/b | sort | sed 's/^[0-9]*\\t\\(.*[bc]\\)$/\\1/'; du -s /nowhere",
    "df --output=target / | head -1; df /nowhere; sync; sync /data/old.txt; sync /nowhere",
    "stat -c '%n %F %a %s %b' /data/old.txt /data/tree/link; stat -L -c %F /data/tree/link; stat -f -c '%T' /proc; stat /nowhere",
    "tee a b < /data/old.txt; cmp a b; echo more | tee -a a; tail -1 a; echo x | tee /nowhere/x",
    "mkfifo p; cat p & cat /data/old.txt > p; wait; rm p; mknod q p; stat -c %F q; mknod q p",
    "seq 4000 | sort -n -r | head -2; seq 3000 | tac | sha1sum; cat /data/words.txt | tr ' ' '\\n' | sort | uniq -c | sort -rn | head -5",
    "echo ${PWD##*/} | wc -c; exec 3> f; echo three >&3; exec 3>&-; cat f; cat <<END | tr a-z A-Z\nhere\nEND",
    "dircolors -b | head -c 10; dircolors -x; shuf -i 1-9 --random-source=/data/binary.bin; shuf -e -n 0 a b",
    "for n in 1 2 3 4 5 6 7 8; do seq $n > f$n; done; cat f* | sort | uniq -c; rm f[1-4]; ls; wc -l f*",
    "mkdir d; chmod 000 d; ls d; chmod 755 d; echo x > d/f; chmod 444 d/f; stat -c %a d/f; rm -f d/f; ls d",
    "ls -l /dev/null /dev/zero /dev/full | cut -c 1-10; echo x > /dev/full; cat /dev/null; head -c 3 /dev/zero | od -An -tx1",
    "yes | head -c 100000 > f; cp f g; cmp f g && cat f g | wc -c; truncate -s 50000 f; cmp f g; sum f",
];

/// The number of rows that one VM runs.
const PART: usize = 9;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for first in (0..ROWS.len()).step_by(PART) {
        let last = (first + PART).min(ROWS.len());
        suite.add_kvm(format!("commands {first} to {}", last - 1), move || {
            coreutils(first, &ROWS[first..last])
        });
    }
    suite.run()
}

/// Returns the root directories: with amd64 and with riscv64 programs.
fn roots() -> Result<&'static (Scratch, Root)> {
    static ROOTS: OnceLock<std::result::Result<(Scratch, Root), String>> = OnceLock::new();
    let make = || -> Result<(Scratch, Root)> {
        let root = Root::new("coreutils", PROGRAMS.iter().copied())?;
        shell(root.path(), &paths::busybox())?;
        let native = native_root()?;
        // Both roots get the same files, without the scripts that other tests run.
        for entry in fs::read_dir(root.path().join("data"))?.flatten() {
            if !native.path().join("data").join(entry.file_name()).exists() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok((native, root))
    };
    let roots = ROOTS.get_or_init(|| {
        make().map_err(|error| error.message().unwrap_or("no root directories").to_owned())
    });
    roots.as_ref().map_err(|error| error.as_str().into())
}

/// Runs commands on this machine and in a VM; `first` is the number of the first one.
fn coreutils(first: usize, commands: &[&str]) -> Result<()> {
    let (native, root) = roots()?;
    let (name, text) = (format!("/script-{first}"), script(first, commands));
    for folder in [native.path(), root.path()] {
        fs::write(folder.join(&name[1..]), &text)?;
    }
    let expected = process::run(&mut native_command(native.path(), &name)?, b"")?;
    // Translating a hundred programs takes longer than interpreting each a few times.
    let run = root.run("dash", &[&name]);
    let actual = process::run(&mut run.hartline_command(&["--interpret"])?, b"")?;
    let expected = rows(&expected, commands.len())?;
    let actual = rows(&actual, commands.len())?;
    let mut wrong = String::new();
    for ((command, expected), actual) in commands.iter().zip(&expected).zip(&actual) {
        let outcome = |text: &str| Outcome {
            code: 0,
            stdout: text.as_bytes().to_vec(),
            stderr: Vec::new(),
        };
        if let Err(error) = check_equal(&outcome(expected), &outcome(actual)) {
            wrong += &format!("{command}\n{}\n", error.message().unwrap_or("differs"));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.into()),
    }
}

/// The text before the output of each row.
const MARK: &str = "=== row ";

fn script(first: usize, commands: &[&str]) -> String {
    let mut text = String::from("export LC_ALL=C TZ=UTC PATH=/bin:/usr/bin; exec 2>&1\n");
    for (number, row) in (first..).zip(commands) {
        text += &format!(
            "echo '{MARK}{number}'; mkdir /scratch/{number}; cd /scratch/{number}\n\
             (\n{row}\n) < /dev/null\necho \"code $?\"\n"
        );
    }
    text
}

/// Returns the output of each row.
fn rows(outcome: &Outcome, count: usize) -> Result<Vec<String>> {
    let text = outcome.stdout_text();
    let rows: Vec<String> = text.split(MARK).skip(1).map(str::to_owned).collect();
    match rows.len() == count {
        true => Ok(rows),
        false => Err(format!("{} rows of {}: {outcome:?}", rows.len(), count).into()),
    }
}

/// Puts a shell and its dependencies, apart from coreutils, into a root directory.
fn shell(root: &Path, busybox: &Path) -> Result<()> {
    let inside = root.join("bin/busybox");
    if inside.exists() {
        fs::remove_file(&inside)?;
    }
    fs::copy(busybox, &inside)?;
    for (name, target) in [
        ("sh", "dash"),
        ("sed", "busybox"),
        ("grep", "busybox"),
        ("find", "busybox"),
        ("cmp", "busybox"),
    ] {
        let link = root.join("bin").join(name);
        if !link.exists() {
            symlink(target, link)?;
        }
    }
    Ok(())
}

/// Makes a root directory with Debian's amd64 coreutils.
fn native_root() -> Result<Scratch> {
    let (root, debian) = (Scratch::new()?, paths::debian_amd64());
    let path = root.path();
    for folder in ["usr/bin", "usr/lib64", "proc", "dev"] {
        fs::create_dir_all(path.join(folder))?;
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
    ] {
        symlink(target, path.join(link))?;
    }
    let copy = |from: &Path, to: &str| -> Result<()> {
        let outcome = Command::new("cp")
            .arg("-a")
            .arg(from)
            .arg(path.join(to))
            .output()?;
        match outcome.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&outcome.stderr).into_owned().into()),
        }
    };
    for program in PROGRAMS {
        copy(&debian.join("usr/bin").join(program), "usr/bin")?;
    }
    fs::create_dir_all(path.join("usr/lib"))?;
    copy(&debian.join("usr/lib/x86_64-linux-gnu"), "usr/lib")?;
    copy(&debian.join("usr/lib64/ld-linux-x86-64.so.2"), "usr/lib64")?;
    tree::populate(path)?;
    shell(path, &debian.join("usr/bin/busybox"))?;
    Ok(root)
}

/// Returns the command that runs the script in `root` on this machine, with its `/dev` and `/proc`.
fn native_command(root: &Path, name: &str) -> Result<Command> {
    let mut command = Command::new("unshare");
    if fs::metadata("/proc/self")?.uid() != 0 {
        command.arg("--map-root-user");
    }
    let script = "mount --rbind /dev \"$1/dev\" && mount --rbind /proc \"$1/proc\" && \
                  exec chroot \"$1\" /bin/dash \"$2\"";
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(root)
        .arg(name)
        .env_clear()
        .envs(hartline::ENVIRONMENT);
    Ok(command)
}
