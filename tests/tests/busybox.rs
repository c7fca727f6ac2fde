//! Debian's prebuilt riscv64 busybox: applets with real inputs, compared byte for byte and by exit
//! code with the reference.

use hartline_tests::compare::{Run, check_equal};
use hartline_tests::suite::Suite;
use hartline_tests::tree::{self, Scratch};
use hartline_tests::{Result, hartline, paths, process};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};
use std::sync::OnceLock;

/// Standard input of a row.
enum Input {
    /// Nothing.
    Empty,
    /// A file of the root directory.
    File(&'static str),
    /// A text.
    Text(&'static str),
}
use Input::{Empty, File, Text};

/// Applet, arguments, standard input. The paths come from `tree::populate`.
const ROWS: &[(&str, &[&str], Input)] = &[
    ("sha1sum", &["/data/binary.bin", "/data/words.txt"], Empty),
    ("sha256sum", &["/data/binary.bin", "/data/tree.tar"], Empty),
    ("sha256sum", &["-"], File("data/binary.bin")),
    ("sha512sum", &["/data/binary.bin"], Empty),
    ("sha3sum", &["/data/binary.bin"], Empty),
    (
        "md5sum",
        &["/data/binary.bin", "/data/missing", "/data/numbers.txt"],
        Empty,
    ),
    ("crc32", &["/data/binary.bin"], Empty),
    ("gzip", &["-c", "/data/words.txt"], Empty),
    ("gzip", &["-1", "-c"], File("data/binary.bin")),
    ("gzip", &["-tv", "/data/words.txt.gz"], Empty),
    ("gunzip", &["-c", "/data/words.txt.gz"], Empty),
    ("gunzip", &["-c", "/data/tree.tar.gz"], Empty),
    ("bzip2", &["-c", "/data/words.txt"], Empty),
    ("bunzip2", &["-c", "/data/words.txt.bz2"], Empty),
    ("bzcat", &[], File("data/words.txt.bz2")),
    ("xz", &["-d", "-c", "/data/words.txt.xz"], Empty),
    ("xzcat", &["/data/binary.bin.xz"], Empty),
    ("unlzma", &["-c", "/data/words.lzma"], Empty),
    (
        "awk",
        &[
            "-F,",
            "NR > 1 { sum[$4] += $3; n[$4]++ } END { for (c in sum) printf \"%s %.2f %d\\n\", c, sum[c], n[c] }",
            "/data/table.csv",
        ],
        Empty,
    ),
    (
        "awk",
        &[
            "{ for (i = 1; i <= NF; i++) count[tolower($i)]++ } END { for (w in count) print count[w], w }",
            "/data/words.txt",
        ],
        Empty,
    ),
    (
        "awk",
        &[
            "BEGIN { for (i = 1; i < 60; i++) { x = x * 1.5 + i / 7; printf \"%d %.10f %s %x\\n\", i, x, substr(\"abcdefghij\", i % 10), i * i } }",
        ],
        Empty,
    ),
    (
        "awk",
        &[
            "BEGIN { while ((getline line < \"/data/numbers.txt\") > 0) { n++; if (line ~ /7$/) { s += line; gsub(/7/, \"<&>\", line); last = line } } print n, s, last }",
        ],
        Empty,
    ),
    (
        "awk",
        &[
            "function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) } BEGIN { print f(20); print length(\"x\") index(\"hartline\", \"line\") }",
        ],
        Empty,
    ),
    (
        "awk",
        &[
            "{ print $1 > \"/tmp/first\" } END { close(\"/tmp/first\"); while ((getline l < \"/tmp/first\") > 0) n++; print n }",
            "/data/words.txt",
        ],
        Empty,
    ),
    (
        "sed",
        &[
            "-n",
            "s/\\(fox\\) \\([a-z]*\\)/[\\2 \\1]/gp; $=",
            "/data/words.txt",
        ],
        Empty,
    ),
    (
        "sed",
        &[
            "-E",
            "-e",
            "/^the/d",
            "-e",
            "s/[0-9]+/<&>/g",
            "-e",
            "y/abc/xyz/",
            "/data/words.txt",
        ],
        Empty,
    ),
    ("sed", &["1!G;h;$!d", "/data/old.txt"], Empty),
    ("sed", &[":a;N;$!ba;s/\\n/+/g"], File("data/numbers.txt")),
    ("sort", &["/data/words.txt"], Empty),
    ("sort", &["-n", "-u", "/data/numbers.txt"], Empty),
    (
        "sort",
        &["-t,", "-k4,4", "-k3,3nr", "-k1,1n", "/data/table.csv"],
        Empty,
    ),
    ("sort", &["-r", "-f", "-s", "-k2", "/data/words.txt"], Empty),
    ("uniq", &["-c"], Text("a\na\nb\nB\nb\nc\nc\nc\n")),
    (
        "grep",
        &["-n", "-i", "quick.*lazy", "/data/words.txt"],
        Empty,
    ),
    (
        "grep",
        &["-E", "-c", "^(the|a) .*(42|end\\.)$", "/data/words.txt"],
        Empty,
    ),
    ("grep", &["-r", "-l", "a", "/data/tree"], Empty),
    ("grep", &["-o", "-w", "RISC-V", "/data/words.txt"], Empty),
    ("grep", &["nothing like this", "/data/words.txt"], Empty),
    (
        "bc",
        &["-l"],
        Text(
            "scale=60\n4*a(1)\ne(1)\nsqrt(2)\n2^521-1\nfor(i=1;i<15;i++) i^i/7\ndefine f(n){if(n<2)return 1;return n*f(n-1)}\nf(60)\n",
        ),
    ),
    (
        "dc",
        &[],
        Text("50k 2v p 3 7 ^ p 16o 48879 p [la1+dsa*pla10>y]sy 0sa1 lyx\n"),
    ),
    ("tar", &["-tvf", "/data/tree.tar"], Empty),
    (
        "tar",
        &["-xOf", "/data/tree.tar", "tree/a/b/two.txt"],
        Empty,
    ),
    ("unxz", &["-c", "/data/tree.tar.xz"], Empty),
    (
        "tar",
        &[
            "-cf",
            "-",
            "-C",
            "/data/tree",
            "four.txt",
            "script.sh",
            "link",
        ],
        Empty,
    ),
    ("tar", &["-xvf", "/data/tree.tar", "-C", "/scratch"], Empty),
    ("cpio", &["-itv"], File("data/tree.cpio")),
    (
        "find",
        &["/data/tree/a/b", "-type", "f", "-size", "+1k", "-print"],
        Empty,
    ),
    (
        "find",
        &["/data/tree", "-maxdepth", "1", "-name", "*.txt"],
        Empty,
    ),
    (
        "find",
        &[
            "/data/tree",
            "-type",
            "l",
            "-o",
            "-name",
            "empty",
            "-o",
            "-perm",
            "755",
            "-name",
            "*.sh",
        ],
        Empty,
    ),
    (
        "find",
        &[
            "/data/old.txt",
            "-newer",
            "/data/words.txt",
            "-o",
            "-mtime",
            "+3",
            "-print",
        ],
        Empty,
    ),
    (
        "od",
        &["-A", "x", "-t", "x1", "-N", "1000", "/data/binary.bin"],
        Empty,
    ),
    (
        "od",
        &["-t", "d4", "-t", "o2", "-N", "500", "/data/binary.bin"],
        Empty,
    ),
    ("od", &["-t", "f8", "-N", "800", "/data/binary.bin"], Empty),
    ("hexdump", &["-C", "-n", "1000", "/data/binary.bin"], Empty),
    ("xxd", &["-l", "600", "/data/binary.bin"], Empty),
    ("xxd", &["-r", "-p"], Text("48617274 6c696e65 0a\n")),
    ("strings", &["-n", "5", "/bin/busybox"], Empty),
    ("cmp", &["/data/binary.bin", "/data/other.bin"], Empty),
    ("cmp", &["-l", "/data/binary.bin", "/data/other.bin"], Empty),
    ("diff", &["/data/old.txt", "/data/new.txt"], Empty),
    (
        "diff",
        &["-u", "-L", "a", "-L", "b", "/data/old.txt", "/data/new.txt"],
        Empty,
    ),
    (
        "patch",
        &["--dry-run", "/data/old.txt", "/data/change.patch"],
        Empty,
    ),
    ("cut", &["-d,", "-f2,4", "/data/table.csv"], Empty),
    ("cut", &["-c3-7,10", "/data/words.txt"], Empty),
    ("paste", &["-d:", "/data/old.txt", "/data/new.txt"], Empty),
    ("tr", &["a-z", "A-Z"], File("data/words.txt")),
    ("tr", &["-cs", "a-zA-Z", "\\n"], File("data/words.txt")),
    ("wc", &["/data/words.txt", "/data/binary.bin"], Empty),
    ("head", &["-n", "17", "/data/words.txt"], Empty),
    ("head", &["-c", "777", "/data/binary.bin"], Empty),
    ("tail", &["-n", "+2990", "/data/words.txt"], Empty),
    ("tail", &["-c", "333"], File("data/binary.bin")),
    ("tac", &["/data/words.txt"], Empty),
    ("rev", &["/data/words.txt"], Empty),
    ("nl", &["-b", "a", "/data/old.txt"], Empty),
    ("fold", &["-s", "-w", "30", "/data/words.txt"], Empty),
    ("expand", &["-t", "4", "/data/tabs.txt"], Empty),
    (
        "unexpand",
        &["-a", "-t", "4"],
        Text("a       b    c        d\n        e\n"),
    ),
    ("dos2unix", &[], File("data/dos.txt")),
    ("unix2dos", &[], File("data/old.txt")),
    ("base64", &["/data/binary.bin"], Empty),
    (
        "base64",
        &["-d"],
        Text("SGFydGxpbmUgcnVucyBSSVNDLVYgcHJvZ3JhbXMK"),
    ),
    ("uuencode", &["/data/words.txt", "name"], Empty),
    (
        "cat",
        &["-n", "/data/old.txt", "-", "/data/new.txt"],
        Text("from standard input\n"),
    ),
    ("cat", &["-A", "/data/tabs.txt"], Empty),
    (
        "cp",
        &["-r", "-v", "/data/tree/a/b", "/scratch/copy"],
        Empty,
    ),
    ("mv", &["/data/old.txt", "/scratch/moved"], Empty),
    ("rm", &["-r", "-f", "/data/tree"], Empty),
    ("mkdir", &["-p", "/scratch/x/y/z"], Empty),
    ("rmdir", &["/data/tree"], Empty),
    ("ln", &["-s", "/data/words.txt", "/data/words.txt"], Empty),
    ("touch", &["/data/missing/file"], Empty),
    (
        "dd",
        &[
            "if=/data/binary.bin",
            "bs=1000",
            "skip=7",
            "count=11",
            "status=none",
        ],
        Empty,
    ),
    (
        "stat",
        &[
            "-c",
            "%n %s %F %a %h %Y",
            "/data/tree/a/one.txt",
            "/data/tree/link",
            "/data/tree/empty/.",
        ],
        Empty,
    ),
    ("ls", &["-1R", "/data/tree"], Empty),
    ("ls", &["-1s", "/data/missing"], Empty),
    ("du", &["-b", "/data/tree/four.txt"], Empty),
    ("readlink", &["-f", "/data/tree/a/up/tree/link"], Empty),
    ("realpath", &["/data/tree/../tree/a/up"], Empty),
    ("basename", &["/data/words.txt", ".txt"], Empty),
    ("dirname", &["/data/tree/a"], Empty),
    (
        "expr",
        &[
            "(", "17", "*", "3", ")", "%", "7", "+", "length", "hartline",
        ],
        Empty,
    ),
    ("expr", &["match", "hartline", "h\\(.*\\)e"], Empty),
    (
        "factor",
        &["999962000357", "1234567890123", "97", "1024"],
        Empty,
    ),
    ("seq", &["-w", "1", "0.25", "30"], Empty),
    (
        "printf",
        &[
            "%5.2f|%-8s|%x|%o|%c|%b\\n",
            "3.14159",
            "left",
            "255",
            "8",
            "Z",
            "tab\\there",
        ],
        Empty,
    ),
    ("echo", &["-e", "one\\ttwo\\x41\\0101\\c", "hidden"], Empty),
    ("test", &["/data/old.txt", "-ot", "/data/new.txt"], Empty),
    (
        "test",
        &[
            "-x",
            "/data/tree/script.sh",
            "-a",
            "-L",
            "/data/tree/dangling",
        ],
        Empty,
    ),
    (
        "date",
        &["-u", "-d", "@1234567890", "+%F %T %A %j %s"],
        Empty,
    ),
    ("cal", &["2", "2024"], Empty),
    ("id", &["-u"], Empty),
    ("env", &[], Empty),
    ("uname", &["-s", "-m"], Empty),
    ("pwd", &[], Empty),
    ("tee", &["/scratch/copy"], File("data/words.txt")),
    ("shuf", &["-n", "0", "/data/words.txt"], Empty),
    ("truncate", &["-s", "100", "/data/words.txt"], Empty),
    ("ipcalc", &["-n", "-b", "-m", "10.20.30.40/19"], Empty),
    (
        "mkpasswd",
        &["-m", "sha512", "-S", "saltsalt", "password"],
        Empty,
    ),
    ("ar", &["-t", "/data/words.txt"], Empty),
    ("false", &[], Empty),
    ("nonexistent", &[], Empty),
    (
        "sh",
        &[
            "-c",
            "i=0; s=0; while [ $i -lt 3000 ]; do i=$((i + 1)); s=$(((s * 31 + i) % 1000003)); done; echo $s; exit 7",
        ],
        Empty,
    ),
    (
        "sh",
        &[
            "-c",
            "while read a b c; do n=$((n + ${#a})); case $b in f*) m=$m.${b%x};; esac; done < /data/words.txt; echo $n ${#m}",
        ],
        Empty,
    ),
    (
        "sh",
        &[
            "-c",
            "f() { local x=$1; [ $x -le 1 ] && return 1; f $((x - 1)); r=$((r + x)); }; f 200; echo $r > /scratch/r; read v < /scratch/r; printf '%05d %s\\n' $v \"${v#?}\"; cd /data/tree && pwd; echo *.txt a/*; trap 'echo bye' EXIT; kill -0 $$; set -- x y z; shift; echo $# $*; unset v; echo ${v:-none}",
        ],
        Empty,
    ),
    ("sh", &["-c", "echo out; echo err >&2; cat <missing"], Empty),
    (
        "sh",
        &[],
        Text(
            "x='a b'; for w in $x \"$x\"; do echo \"<$w>\"; done\nif ! test -e /nowhere; then echo no; fi\nexit 3\n",
        ),
    ),
];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add("the reference has every applet", reference_has_every_applet);
    for (number, (applet, arguments, input)) in ROWS.iter().enumerate() {
        let name = format!("{number:03} {applet} {}", arguments.join(" "));
        suite.add_kvm(name, move || compare(applet, arguments, input));
    }
    suite.add_kvm("gzip and gunzip round trip", || {
        round_trip("gzip", "gunzip")
    });
    suite.add_kvm("bzip2 and bunzip2 round trip", || {
        round_trip("bzip2", "bunzip2")
    });
    suite.add_kvm("root directory from a tar file", root_from_tar);
    suite.add_kvm("read-only volume", read_only_volume);
    suite.add_kvm("standard input is passed on as it comes", dialogue);
    suite.add_kvm("options of the kernel", kernel_options);
    suite.add_kvm("nothing is left behind", nothing_left);
    let exit = suite.run();
    if let Some(Ok(root)) = ROOT.get() {
        // All runs have ended; left-over files are not a failure.
        let _ = std::fs::remove_dir_all(root);
    }
    exit
}

static ROOT: OnceLock<std::result::Result<std::path::PathBuf, String>> = OnceLock::new();

/// Returns the root directory of all rows, which no row changes.
fn root() -> Result<&'static std::path::Path> {
    let root = ROOT.get_or_init(|| {
        let path = paths::work().join(format!("busybox-root-{}", std::process::id()));
        tree::populate(&path).map(|()| path).map_err(|error| {
            error
                .message()
                .unwrap_or("cannot make the root directory")
                .to_owned()
        })
    });
    root.as_deref().map_err(|error| error.as_str().into())
}

fn busybox(applet: &str, arguments: &[&str]) -> Result<Run> {
    let arguments = std::iter::once(applet).chain(arguments.iter().copied());
    Ok(Run::new(&paths::busybox(), arguments).in_root(root()?, "/bin/busybox"))
}

fn run_of_row(applet: &str, arguments: &[&str], input: &Input) -> Result<Run> {
    let run = busybox(applet, arguments)?;
    Ok(match input {
        Empty => run,
        File(name) => run.with_stdin(std::fs::read(root()?.join(name))?),
        Text(text) => run.with_stdin(*text),
    })
}

fn compare(applet: &str, arguments: &[&str], input: &Input) -> Result<()> {
    let run = run_of_row(applet, arguments, input)?;
    let (mut expected, mut actual) = (run.reference()?, run.hartline(&[])?);
    if lists_in_any_order(applet, arguments) {
        sort_lines(&mut expected.stdout);
        sort_lines(&mut actual.stdout);
    }
    check_equal(&expected, &actual)
}

/// Returns whether the order of the output may differ: directories are read in the file system's
/// order, and the environment is unordered.
fn lists_in_any_order(applet: &str, arguments: &[&str]) -> bool {
    matches!(applet, "find" | "env") || matches!(applet, "grep" | "cp") && arguments.contains(&"-r")
}

fn sort_lines(text: &mut Vec<u8>) {
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    *text = lines.concat();
}

/// Checks for all applets: a row with a missing applet would compare two error messages.
fn reference_has_every_applet() -> Result<()> {
    let (mut applets, mut missing) = (Vec::new(), Vec::new());
    for (applet, arguments, input) in ROWS {
        let outcome = run_of_row(applet, arguments, input)?.reference()?;
        if outcome.stderr_text().contains("applet not found") {
            missing.push(applet);
        } else {
            applets.push(applet);
        }
    }
    if missing != [&"nonexistent"] {
        return Err(format!("busybox lacks applets: {missing:?}").into());
    }
    applets.sort_unstable();
    applets.dedup();
    if applets.len() < 40 {
        return Err(format!("only {} applets", applets.len()).into());
    }
    Ok(())
}

fn round_trip(pack: &str, unpack: &str) -> Result<()> {
    let original = tree::bytes(500_000, 3)
        .iter()
        .map(|byte| byte % 23 + b'a')
        .collect::<Vec<_>>();
    let packed = busybox(pack, &["-c"])?
        .with_stdin(original.clone())
        .hartline(&[])?;
    if packed.code != 0 || packed.stdout.len() >= original.len() * 3 / 4 {
        return Err(format!(
            "{pack}: {} bytes, exit {}",
            packed.stdout.len(),
            packed.code
        )
        .into());
    }
    let unpacked = busybox(unpack, &["-c"])?
        .with_stdin(packed.stdout)
        .hartline(&[])?;
    if unpacked.code != 0 || unpacked.stdout != original {
        return Err(format!(
            "{unpack}: exit {}: {}",
            unpacked.code,
            unpacked.stderr_text()
        )
        .into());
    }
    Ok(())
}

/// `--rootfs` takes a tar file as well as a directory.
fn root_from_tar() -> Result<()> {
    let folder = Scratch::new()?;
    let tar = folder.path().join("root.tar");
    let mut pack = std::process::Command::new("tar");
    hartline_tests::compile::check(pack.arg("-cf").arg(&tar).arg("-C").arg(root()?).arg("."))?;
    let mut run = busybox(
        "sh",
        &[
            "-c",
            "cd /data/tree; echo *; read x < a/one.txt; test -L link && exit 9",
        ],
    )?;
    let expected = run.hartline(&[])?;
    run.root = Some((tar, "/bin/busybox".to_owned()));
    let actual = run.hartline(&[])?;
    if expected.code != 9 {
        return Err(format!("{expected:?}").into());
    }
    check_equal(&expected, &actual)
}

/// `--volume` shows a file of the host in the guest.
fn read_only_volume() -> Result<()> {
    let file = root()?.join("data/binary.bin");
    let volume = format!("{}:/some/where:ro", file.display());
    let run = Run::new(&paths::busybox(), ["sha256sum", "/some/where"]);
    let outcome = run.hartline(&["--volume", &volume])?;
    let here = process::run(std::process::Command::new("sha256sum").arg(&file), b"")?;
    if outcome.code != 0 || outcome.stdout.get(..64) != here.stdout.get(..64) {
        return Err(format!("{outcome:?}").into());
    }
    Ok(())
}

/// Each line is answered before the next one is sent: the output does not wait for the end of the
/// input or for a full buffer.
fn dialogue() -> Result<()> {
    let run = Run::new(&paths::busybox(), ["cat"]);
    hartline::translate(&run.program)?;
    let mut command = run.hartline_command(&["--timeout", "600"])?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (mut input, output) = child
        .stdin
        .take()
        .zip(child.stdout.take())
        .ok_or("no pipes")?;
    let mut lines = BufReader::new(output).lines();
    for number in 0..50 {
        let line = format!("line {number}");
        writeln!(input, "{line}")?;
        match lines.next().transpose()? {
            Some(answer) if answer == line => {}
            other => return Err(format!("{line} was answered by {other:?}").into()),
        }
    }
    drop(input);
    match process::wait(&mut child)?.map(process::shell_code) {
        Some(0) if lines.next().is_none() => Ok(()),
        other => Err(format!("exit code {other:?}").into()),
    }
}

/// `/proc/config.gz` is a whole gzip file. `zcat` compares checksum and length.
fn kernel_options() -> Result<()> {
    let outcome = busybox("zcat", &["/proc/config.gz"])?.hartline(&[])?;
    let text = String::from_utf8_lossy(&outcome.stdout);
    let has = |line| text.lines().any(|found| found == line);
    if outcome.code != 0
        || !has("CONFIG_SYSVIPC=y")
        || !has("# CONFIG_IO_URING is not set")
        || !text.ends_with("CONFIG_VIRTIO_NET=y\n")
    {
        return Err(format!("zcat: {outcome:?}").into());
    }
    Ok(())
}

/// No file and no process is left after a run, whether it ends or is killed.
fn nothing_left() -> Result<()> {
    let folder = Scratch::new()?;
    for (arguments, limit, code) in [(["true", ""], "600", 0), (["sleep", "1000"], "1", 124)] {
        let run = Run::new(&paths::busybox(), arguments);
        hartline::translate(&run.program)?;
        let mut command = run.hartline_command(&["--timeout", limit])?;
        command
            .env("TMPDIR", folder.path())
            .current_dir(folder.path())
            .process_group(0);
        let mut child = command.stderr(Stdio::null()).spawn()?;
        let actual = process::wait(&mut child)?.map(process::shell_code);
        let (files, processes) = (
            std::fs::read_dir(folder.path())?.count(),
            processes_of_group(child.id())?,
        );
        if actual != Some(code) || files != 0 || processes != 0 {
            return Err(format!("{actual:?}, {files} files, {processes} processes").into());
        }
    }
    Ok(())
}

/// Number of processes in a process group (`/proc/PID/stat`, field 5).
fn processes_of_group(group: u32) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name, field 2, is in parentheses and may hold anything.
        let after_name = stat.rsplit(") ").next().unwrap_or_default();
        count += usize::from(after_name.split(' ').nth(2) == Some(group.to_string().as_str()));
    }
    Ok(count)
}
