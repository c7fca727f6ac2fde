//! Debian's dynamically linked programs: loader, shared libraries, and translation of each file on
//! its own; compared byte for byte and by exit code with the reference.

use hartline_tests::compare::{Run, check_equal};
use hartline_tests::compile::check;
use hartline_tests::dynamic::{ANSWERS, Root};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline, process};
use std::fs;
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};

/// How to run a row. Translating everything would take too long; an interpreted row still tests the
/// loader and the system calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Translated,
    Interpreted,
    /// Translated, but only on request (`cargo test … -- --ignored`): the translation takes
    /// minutes.
    Long,
}
use How::{Interpreted, Long, Translated};

/// Standard input of a row: a file of the root directory.
type Input = Option<&'static str>;

/// Program, arguments, standard input. The paths come from `tree::populate`.
const ROWS: &[(How, &str, &[&str], Input)] = &[
    (
        Interpreted,
        "ls",
        &["-1aF", "/data/tree", "/data/tree/a"],
        None,
    ),
    (
        Interpreted,
        "ls",
        &["-ln", "--full-time", "/data/words.txt", "/nowhere"],
        None,
    ),
    (Interpreted, "ls", &["-C", "-w", "60", "/data"], None),
    (
        Translated,
        "wc",
        &["/data/words.txt", "/data/binary.bin"],
        None,
    ),
    (
        Interpreted,
        "sort",
        &["-t,", "-k4,4", "-k3,3nr", "-k1,1n", "/data/table.csv"],
        None,
    ),
    (Interpreted, "sort", &["-u", "-n"], Some("data/numbers.txt")),
    (Translated, "tr", &["a-z", "A-Z"], Some("data/words.txt")),
    (
        Translated,
        "od",
        &["-A", "x", "-t", "x1z", "-N", "5000", "/data/binary.bin"],
        None,
    ),
    (Translated, "bc", &["-l", "/data/pi.bc"], None),
    (
        Translated,
        "xz",
        &["-c", "-6", "-T1", "/data/words.txt"],
        None,
    ),
    (Translated, "xz", &["-dc", "/data/binary.bin.xz"], None),
    (Translated, "bzip2", &["-c", "/data/words.txt"], None),
    (Translated, "bzip2", &["-dc", "/data/words.txt.bz2"], None),
    (Translated, "gzip", &["-9nc", "/data/words.txt"], None),
    (Translated, "gzip", &["-dc", "/data/tree.tar.gz"], None),
    (Translated, "lua5.4", &["/data/test.lua"], None),
    (Interpreted, "lua5.4", &["-e", "error('told')"], None),
    (
        Interpreted,
        "cat",
        &["-n", "/data/dos.txt", "/data/old.txt"],
        None,
    ),
    (
        Interpreted,
        "cat",
        &["-A", "/data/tabs.txt", "/data/missing"],
        None,
    ),
    (Interpreted, "tac", &["/data/old.txt"], None),
    (
        Interpreted,
        "head",
        &["-n", "3", "/data/words.txt", "/data/table.csv"],
        None,
    ),
    (Interpreted, "head", &["-c", "-100", "/data/new.txt"], None),
    (
        Interpreted,
        "tail",
        &["-n", "+2990"],
        Some("data/words.txt"),
    ),
    (
        Interpreted,
        "cut",
        &["-d,", "-f2,4", "--output-delimiter=;"],
        Some("data/table.csv"),
    ),
    (Interpreted, "cut", &["-c", "3-7"], Some("data/old.txt")),
    (
        Interpreted,
        "paste",
        &["-d:", "/data/old.txt", "/data/new.txt"],
        None,
    ),
    (
        Interpreted,
        "join",
        &["/data/old.txt", "/data/new.txt"],
        None,
    ),
    (
        Interpreted,
        "comm",
        &["/data/old.txt", "/data/new.txt"],
        None,
    ),
    (Interpreted, "uniq", &["-c", "/data/dos.txt"], None),
    (Interpreted, "nl", &["-ba", "/data/tabs.txt"], None),
    (Interpreted, "fold", &["-sw", "30"], Some("data/old.txt")),
    (Interpreted, "fmt", &["-w", "40"], Some("data/new.txt")),
    (Interpreted, "expand", &["-t", "4", "/data/tabs.txt"], None),
    (Interpreted, "unexpand", &["-a", "/data/tabs.txt"], None),
    (
        Interpreted,
        "pr",
        &["-h", "title", "-D", "date", "/data/old.txt"],
        None,
    ),
    (Interpreted, "csplit", &["/data/old.txt", "/gamma/"], None),
    (Interpreted, "tsort", &["/data/old.txt"], None),
    (
        Interpreted,
        "shuf",
        &["--random-source=/data/binary.bin", "-i", "1-20"],
        None,
    ),
    (Interpreted, "ptx", &["/data/old.txt"], None),
    (Interpreted, "base64", &["/data/old.txt"], None),
    (Interpreted, "base64", &["-d"], Some("data/dos.txt")),
    (Interpreted, "base32", &["/data/old.txt"], None),
    (Interpreted, "b2sum", &["/data/old.txt"], None),
    (Interpreted, "sum", &["/data/binary.bin"], None),
    (Interpreted, "seq", &["-f", "%g", "1", "0.25", "3"], None),
    (Interpreted, "seq", &["-w", "8", "11"], None),
    (
        Interpreted,
        "factor",
        &["1234567890123456789", "97", "18446744073709551617"],
        None,
    ),
    (
        Interpreted,
        "expr",
        &["12", "*", "(", "3", "+", "4", ")"],
        None,
    ),
    (
        Interpreted,
        "expr",
        &["hartline", ":", "har\\(.*\\)e"],
        None,
    ),
    (
        Interpreted,
        "printf",
        &["%5d|%-6s|%x|%.3e\\n", "42", "ab", "255", "1234.5"],
        None,
    ),
    (Interpreted, "echo", &["-e", "a\\tb\\x41"], None),
    (Interpreted, "test", &["-d", "/data/tree"], None),
    (
        Interpreted,
        "test",
        &["/data/old.txt", "-nt", "/data/new.txt"],
        None,
    ),
    (Interpreted, "[", &["1", "-gt", "2", "]"], None),
    (Interpreted, "true", &[], None),
    (Interpreted, "false", &[], None),
    (Interpreted, "basename", &["/a/b.txt", ".txt"], None),
    (Interpreted, "dirname", &["/a/b.txt", "c"], None),
    (Interpreted, "pathchk", &["-p", "/a b"], None),
    (
        Interpreted,
        "realpath",
        &["/data/tree/a/../link", "/bin"],
        None,
    ),
    (Interpreted, "readlink", &["-f", "/data/tree/link"], None),
    (
        Interpreted,
        "stat",
        &[
            "-c",
            "%n %s %a %u %F %Y",
            "/data/tree/script.sh",
            "/data/tree",
        ],
        None,
    ),
    (
        Interpreted,
        "du",
        &["-b", "--apparent-size", "/data/words.txt"],
        None,
    ),
    (
        Interpreted,
        "date",
        &["-u", "-d", "2024-02-29 12:34:56 +3 days", "+%A %j %s %F"],
        None,
    ),
    (Interpreted, "date", &["--date=nonsense"], None),
    (Interpreted, "numfmt", &["--to=iec", "1000000", "5"], None),
    (Interpreted, "env", &["-i"], None),
    (Interpreted, "printenv", &["HOME"], None),
    (Interpreted, "id", &["-un"], None),
    (Interpreted, "uname", &["-s", "-m"], None),
    (Interpreted, "pwd", &[], None),
    (
        Interpreted,
        "dd",
        &[
            "if=/data/binary.bin",
            "bs=1000",
            "skip=3",
            "count=2",
            "status=none",
        ],
        None,
    ),
    (
        Interpreted,
        "cp",
        &["-v", "/data/old.txt", "/scratch/new"],
        None,
    ),
    (
        Interpreted,
        "mv",
        &["-v", "/data/old.txt", "/scratch/new"],
        None,
    ),
    (
        Interpreted,
        "ln",
        &["-sv", "/data/old.txt", "/scratch/link"],
        None,
    ),
    (Interpreted, "mkdir", &["-pv", "/scratch/a/b"], None),
    (Interpreted, "rm", &["-rv", "/data/tree/a/b/c"], None),
    (Interpreted, "rmdir", &["/data/tree"], None),
    (Interpreted, "touch", &["/nowhere/file"], None),
    (Interpreted, "tee", &["/scratch/copy"], Some("data/old.txt")),
    (
        Interpreted,
        "split",
        &["-b", "1000", "--verbose", "/data/words.txt", "/scratch/x"],
        None,
    ),
    (Interpreted, "truncate", &["-s", "5", "/data/old.txt"], None),
    (Interpreted, "sha256sum", &["/data/old.txt"], None),
    (
        Interpreted,
        "sqlite3",
        &[":memory:", ".read /data/test.sql"],
        None,
    ),
    (
        Interpreted,
        "sqlite3",
        &["/scratch/test.db", ".read /data/test.sql"],
        None,
    ),
    (Interpreted, "perl", &["-e", PERL], None),
    (
        Interpreted,
        "perl",
        &[
            "-ne",
            "$n{length($1)}++ while /(\\w+)/g; END { print \"$_ $n{$_}\\n\" for sort { $a <=> $b } keys %n }",
            "/data/words.txt",
        ],
        None,
    ),
    (Interpreted, "perl", &["-e", "die \"told\\n\""], None),
    (
        Interpreted,
        "python3.13",
        &[
            "-S",
            "-c",
            "import sys; print(sum(range(1000)), sys.version_info[:2])",
        ],
        None,
    ),
    (Long, "sqlite3", &[":memory:", ".read /data/test.sql"], None),
    (Long, "perl", &["-e", PERL], None),
    (Long, "python3.13", &["/data/test.py"], None),
];

const PERL: &str = "my %h = map { $_ => $_ ** 2 } 1 .. 9; print join(',', map { \"$_=$h{$_}\" } sort keys %h), \"\\n\"; $_ = 'hello world'; s/(\\w+)/<\\u$1>/g; printf \"%s %.6f %s\\n\", $_, sqrt 2, join '', reverse split //, 'abc'; local $@; eval { die { code => 7 } }; print $@->{code}, \"\\n\"; exit $@->{code};";

const PYTHON: &str = "python3.13";

/// Exit code of the dynamic loader if it cannot start the program.
const LOADER_FAILED: i32 = 127;

/// The root directories, made when they are needed.
#[derive(Default)]
struct Roots {
    tools: OnceLock<std::result::Result<Root, String>>,
    python: OnceLock<std::result::Result<Root, String>>,
}

impl Roots {
    /// Returns the root directory for a program. Python's library is in a separate one, since each
    /// run packs its whole root.
    fn with(&self, program: &str) -> Result<&Root> {
        let root = match program {
            PYTHON => self.python.get_or_init(|| {
                let root = Root::new("python-root", std::iter::once(PYTHON));
                told(root.and_then(|root| root.add_python().map(|()| root)))
            }),
            _ => self.tools.get_or_init(|| {
                let programs = ROWS.iter().map(|(_, program, ..)| *program);
                told(Root::new("tools-root", programs.filter(|p| *p != PYTHON)))
            }),
        };
        root.as_ref().map_err(|error| error.as_str().into())
    }
}

/// Converts the error into a text, which can be cloned.
fn told(root: Result<Root>) -> std::result::Result<Root, String> {
    root.map_err(|error| error.message().unwrap_or("unknown").to_owned())
}

fn main() -> ExitCode {
    let mut suite = Suite::new();
    let roots = Arc::<Roots>::default();
    for (number, (how, program, arguments, input)) in ROWS.iter().enumerate() {
        let name = format!("{number:03} {program} {}", arguments.join(" "));
        let roots = Arc::clone(&roots);
        let test = move || compare(&roots, *how, program, arguments, *input);
        match how {
            Long => suite.add_long_kvm(name, test),
            Translated | Interpreted => suite.add_kvm(name, test),
        }
    }
    suite.add_kvm("libraries come, go and change", || {
        let root = libraries_root("libraries-root")?;
        for file in ["libraries", ANSWERS[0], ANSWERS[1]] {
            root.translate(file)?;
        }
        let run = root.run("libraries", &[]);
        let expected = run.reference()?;
        check_equal(&expected, &run.hartline(&[])?)?;
        check_equal(&expected, &run.interpreted()?)?;
        // Unchanged libraries must not be interpreted, even if the result is right.
        let counted = run.hartline(&["--stats=json"])?;
        hartline::check_interpreted(&counted, 100_000)
    });
    suite.add_kvm("libraries come and go beside threads", || {
        let root = libraries_root("threads-root")?;
        for file in ["libraries", ANSWERS[0], ANSWERS[1]] {
            root.translate(file)?;
        }
        let run = root.run("libraries", &["threads"]);
        let expected = run.reference()?;
        for cpus in ["1", "2"] {
            check_equal(&expected, &run.hartline(&["--cpus", cpus])?)?;
        }
        check_equal(&expected, &run.interpreted()?)
    });
    suite.add_kvm("a library that is cut off", || {
        let root = libraries_root("truncated-root")?;
        let path = root.path().join(&ANSWERS[0][1..]);
        for length in [100, 0] {
            let library = fs::File::options().write(true).open(&path)?;
            library.set_len(length)?;
            let run = root.run("libraries", &[]);
            check_equal(&run.reference()?, &run.interpreted()?)?;
        }
        Ok(())
    });
    let image_roots = Arc::clone(&roots);
    suite.add_kvm("an EROFS image is as its directory", move || {
        erofs_image(&image_roots)
    });
    suite.run()
}

/// Programs from an EROFS image behave as from the directory that it was made of. A truncated image
/// is refused.
fn erofs_image(roots: &Roots) -> Result<()> {
    let root = roots.with("wc")?;
    root.translate("wc")?;
    let place = Scratch::new()?;
    let image = place.path().join("root.erofs");
    let mut make = Command::new("mkfs.erofs");
    let options = ["--quiet", "-d0", "--preserve-mtime"];
    check(make.args(options).arg(&image).arg(root.path()))?;
    let mut files = vec!["--".to_owned()];
    for folder in ["usr/bin", "usr/lib/riscv64-linux-gnu", "data"] {
        for entry in fs::read_dir(root.path().join(folder))? {
            let name = entry?.file_name();
            files.push(format!("/{folder}/{}", name.to_string_lossy()));
        }
    }
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let listing: &[&str] = &["-lnAR", "--full-time", "/usr", "/data", "/scratch"];
    for (program, arguments) in [("wc", &files[..]), ("ls", listing)] {
        let path = format!("/usr/bin/{program}");
        let run = Run::new(&root.path().join(&path[1..]), arguments.iter().copied());
        let expected = root.run(program, arguments).hartline(&[])?;
        check_equal(&expected, &run.in_root(&image, &path).hartline(&[])?)?;
    }
    let length = fs::metadata(&image)?.len();
    fs::File::options()
        .write(true)
        .open(&image)?
        .set_len(length - 4096)?;
    let run = Run::new(&root.path().join("usr/bin/wc"), ["/data"]).in_root(&image, "/usr/bin/wc");
    let outcome = process::run(&mut run.hartline_command(&[])?, b"")?;
    match (outcome.code, outcome.stderr_text()) {
        (125, text) if text.contains("EROFS image: the superblock claims") => Ok(()),
        _ => Err(format!("{outcome:?}").into()),
    }
}

/// Makes a root directory with the program `libraries`.
fn libraries_root(name: &str) -> Result<Root> {
    let root = Root::new(name, std::iter::once("true"))?;
    root.add_libraries()?;
    Ok(root)
}

fn compare(roots: &Roots, how: How, program: &str, arguments: &[&str], input: Input) -> Result<()> {
    let root = roots.with(program)?;
    let mut run = root.run(program, arguments);
    if let Some(input) = input {
        run = run.with_stdin(fs::read(root.path().join(input))?);
    }
    let actual = match how {
        Interpreted => run.interpreted()?,
        Translated | Long => {
            root.translate(program)?;
            run.hartline(&[])?
        }
    };
    let expected = run.reference()?;
    if expected.code == LOADER_FAILED {
        // Two equal error messages are not a success.
        return Err(format!("the reference cannot load it: {}", expected.stderr_text()).into());
    }
    check_equal(&expected, &actual)
}
