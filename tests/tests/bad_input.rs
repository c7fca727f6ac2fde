//! Bad input causes one line on standard error that names the problem, and exit code 125, or 2 for a
//! mistake in the command line. It leaves
//! nothing in the cache and causes no panic and no hang.

#[path = "bad_input/cache.rs"]
mod cache;
#[path = "bad_input/interpreter.rs"]
mod interpreter;

use hartline_tests::compile;
use hartline_tests::elf::{Elf, field, segment};
use hartline_tests::hartline::BASELINE;
use hartline_tests::process::{self, Outcome};
use hartline_tests::random::Random;
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A way to damage the valid file, and words of which the error has at least one.
type Row = (&'static str, fn(Elf) -> Elf, &'static [&'static str]);

const FILES: &[Row] = &[
    (
        "empty file",
        |elf| elf.truncated(0),
        &["not an elf", "empty"],
    ),
    (
        "text file",
        |_| Elf {
            bytes: b"#!/bin/sh\necho hello\n".repeat(20),
        },
        &["not an elf"],
    ),
    ("32-bit", |elf| elf.with(field::CLASS, 1, 1), &["32-bit"]),
    ("big-endian", |elf| elf.with(field::DATA, 1, 2), &["endian"]),
    (
        "x86-64",
        |elf| elf.with(field::MACHINE, 2, 62),
        &["x86", "machine", "architecture"],
    ),
    (
        "aarch64",
        |elf| elf.with(field::MACHINE, 2, 183),
        &["machine", "architecture", "aarch64"],
    ),
    (
        "object file",
        |elf| elf.with(field::TYPE, 2, 1),
        &["type", "executable"],
    ),
    (
        "core file",
        |elf| elf.with(field::TYPE, 2, 4),
        &["type", "executable"],
    ),
    (
        "RV64E",
        |elf| elf.with(field::FLAGS, 4, 8),
        &["abi", "rve", "flags"],
    ),
    (
        "no program headers",
        |elf| elf.with(field::PHNUM, 2, 0),
        &["segment", "program header"],
    ),
    (
        "program headers past the end",
        |elf| elf.with(field::PHOFF, 8, 1 << 40),
        &["truncated", "program header", "end"],
    ),
    (
        "program headers wrap",
        |elf| elf.with(field::PHOFF, 8, u64::MAX - 8),
        &["truncated", "program header", "end"],
    ),
    (
        "odd size of program headers",
        |elf| elf.with(field::PHENTSIZE, 2, 57),
        &["program header"],
    ),
    ("entry 0", |elf| elf.with(field::ENTRY, 8, 0), &["entry"]),
    (
        "entry in data",
        |elf| {
            let data = elf.header(elf.loaded()[1]);
            let address = elf.number(data + segment::VADDR, 8);
            elf.with(field::ENTRY, 8, address)
        },
        &["entry"],
    ),
    (
        "odd entry",
        |elf| {
            let entry = elf.number(field::ENTRY, 8);
            elf.with(field::ENTRY, 8, entry + 1)
        },
        &["entry"],
    ),
    (
        "p_filesz above p_memsz",
        |elf| change(elf, 1, segment::MEMSZ, |_, _| 16),
        &["memory", "p_memsz", "filesz"],
    ),
    (
        "segment past the end of the file",
        |elf| change(elf, 1, segment::OFFSET, |offset, _| offset + (1 << 30)),
        &["truncated", "end"],
    ),
    (
        "segment wraps in the file",
        |elf| {
            change(elf, 1, segment::OFFSET, |offset, _| {
                (offset & 0xfff) | (u64::MAX << 12)
            })
        },
        &["wrap", "truncated", "end"],
    ),
    (
        "segment wraps in memory",
        |elf| {
            change(elf, 1, segment::VADDR, |address, _| {
                (address & 0xfff) | (u64::MAX << 12)
            })
        },
        &["wrap", "user space", "address"],
    ),
    (
        "segment above user space",
        |elf| {
            change(elf, 1, segment::VADDR, |address, _| {
                (address & 0xfff) | (1 << 40)
            })
        },
        &["user space", "address"],
    ),
    (
        "segment below user space",
        |elf| change(elf, 1, segment::VADDR, |address, _| address & 0xfff),
        &["user space", "address"],
    ),
    (
        "segments overlap",
        |elf| {
            let text = elf.number(elf.header(elf.loaded()[0]) + segment::VADDR, 8);
            change(elf, 1, segment::VADDR, move |address, _| {
                (address & 0xfff) | (text & !0xfff)
            })
        },
        &["overlap"],
    ),
    (
        "segment not congruent",
        |elf| change(elf, 1, segment::VADDR, |address, _| address + 8),
        &["congruent", "page", "align"],
    ),
    (
        "absurd memory size",
        |elf| change(elf, 1, segment::MEMSZ, |_, _| 1 << 38),
        &["size", "memory", "large", "user space"],
    ),
    (
        "absurd memory size that wraps",
        |elf| change(elf, 1, segment::MEMSZ, |_, _| u64::MAX - 4096),
        &["wrap", "size", "user space"],
    ),
    ("code far apart", code_far_apart, &["code spans"]),
];

/// Makes the second segment a code segment 1 GiB away, in a file without sections: section headers
/// would show that there is no code between the two segments.
fn code_far_apart(elf: Elf) -> Elf {
    let end = elf.boundaries().last().copied().unwrap_or(0) + 1;
    let elf = elf.truncated(end);
    let header = elf.header(elf.loaded()[1]);
    // p_flags: PF_R and PF_X.
    let elf = elf.with(header + 4, 4, 5);
    change(elf, 1, segment::VADDR, |address, _| address + (1 << 30))
}

/// Makes the file ask for a program interpreter. Such a file can be translated, as a part of a
/// dynamically linked program, but not run alone.
fn dynamically_linked(elf: Elf) -> Elf {
    // The GNU_STACK or attributes header becomes PT_INTERP with the file's first bytes.
    let other =
        (0..elf.number(field::PHNUM, 2) as usize).find(|index| !elf.loaded().contains(index));
    let header = elf.header(other.unwrap_or(0));
    let text = elf
        .bytes
        .windows(3)
        .position(|bytes| bytes == b"ok\n")
        .unwrap_or(0);
    let mut elf = elf
        .with(header, 4, 3)
        .with(header + segment::OFFSET, 8, text as u64)
        .with(header + segment::FILESZ, 8, 12);
    elf.bytes[text..text + 12].copy_from_slice(b"/lib/ld.so.1");
    elf.bytes[text + 11] = 0;
    elf
}

/// Changes one field of loaded segment `index`; `new` gets the old value and the file.
fn change(elf: Elf, index: usize, offset: usize, new: impl Fn(u64, &Elf) -> u64) -> Elf {
    let at = elf.header(elf.loaded()[index]) + offset;
    let value = new(elf.number(at, 8), &elf);
    elf.with(at, 8, value)
}

/// Command lines with a mistake, and words of the error.
const MISTAKES: &[(&[&str], &[&str])] = &[
    (&["--no-such-option", "GOOD"], &["no-such-option"]),
    (&["--mem", "much", "GOOD"], &["mem", "much"]),
    (&["--mem", "1", "GOOD"], &["mem"]),
    (&["--mem", "99999999G", "GOOD"], &["mem"]),
    (&["--timeout=-1", "GOOD"], &["timeout"]),
    (&["--timeout", "nan", "GOOD"], &["timeout"]),
    (&["--cpus", "0", "GOOD"], &["cpus"]),
    (&["--cpus", "65", "GOOD"], &["cpus"]),
    (&["--interrupts", "sometimes", "GOOD"], &["interrupts"]),
    (&["-p", "0:80", "GOOD"], &["0:80", "-p", "HOST:GUEST"]),
    (&["--env", "novalue", "GOOD"], &["env", "novalue"]),
    (&["--volume", "nonsense", "GOOD"], &["volume", "nonsense"]),
    (&["--pin", "0", "GOOD"], &["must be 2"]),
    (&[], &["program"]),
];

/// Command lines that name missing or unusable things, and words of the error.
const COMMAND_LINES: &[(&[&str], &[&str])] = &[
    (
        &["--interrupts", "posted", "GOOD"],
        &["interrupts", "posted"],
    ),
    (&["--net", "tap:tap0", "GOOD"], &["net"]),
    (
        &["--volume", "/nonexistent:/x:ro", "GOOD"],
        &["/nonexistent"],
    ),
    (&["--volume", "/nonexistent:/x", "GOOD"], &["/nonexistent"]),
    (&["--volume", "/dev/null:/x", "GOOD"], &["volume"]),
    (&["--volume", "/etc:/", "GOOD"], &["root"]),
    (&["--rootfs", "/nonexistent", "/bin/sh"], &["/nonexistent"]),
    (&["--rootfs", "GOOD", "/bin/sh"], &["tar", "good"]),
    (&["--rootfs", "FOLDER", "/no/program"], &["/no/program"]),
    (&["--rootfs", "FOLDER", "/"], &["directory", "/"]),
    (&["/nonexistent/program"], &["/nonexistent/program"]),
    (&["FOLDER"], &["directory"]),
    (&["/dev/null"], &["/dev/null"]),
];

fn main() -> ExitCode {
    let seed = std::env::var("HARTLINE_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    println!("HARTLINE_SEED={seed}");
    let mut suite = Suite::new();
    for (name, spoil, words) in FILES {
        suite.add_kvm(format!("build: {name}"), move || {
            spoiled("build", *spoil, words)
        });
        suite.add_kvm(format!("run: {name}"), move || {
            spoiled("run", *spoil, words)
        });
    }
    interpreter::add(&mut suite);
    suite.add_kvm("run: dynamically linked", || {
        spoiled("run", dynamically_linked, &["--rootfs"])
    });
    suite.add_kvm("build: truncated everywhere", || truncated("build"));
    suite.add_kvm("run: truncated everywhere", || truncated("run"));
    for (code, lines) in [(2, MISTAKES), (125, COMMAND_LINES)] {
        for (arguments, words) in lines {
            suite.add_kvm(format!("hartline run {}", arguments.join(" ")), move || {
                command_line(arguments, code, words)
            });
        }
    }
    suite.add_kvm("good file", good_file);
    suite.add_kvm("good position-independent file", || {
        check_good(&Place::new(&Elf::position_independent()?)?.run("run")?)
    });
    suite.add_kvm("section headers cut off", without_sections);
    suite.add_kvm("damaged cache entries", cache::damaged_cache);
    suite.add_kvm(
        "damaged additions to cache entries",
        cache::damaged_additions,
    );
    suite.add_kvm("changes of what is known", cache::known_files);
    suite.add_kvm("many builds at once", cache::many_builds);
    suite.add_kvm("killed build", cache::killed_build);
    suite.add_kvm("build: cache folder cannot be written", || {
        cache::unwritable_cache("build")
    });
    suite.add_kvm("run: cache folder cannot be written", || {
        cache::unwritable_cache("run")
    });
    suite.add_kvm("no /dev/kvm", || without_kvm("", &["/dev/kvm"]));
    suite.add_kvm("/dev/kvm is something else", || {
        without_kvm("touch /dev/kvm; ", &["/dev/kvm"])
    });
    suite.add_kvm("random damage to headers", move || random_damage(seed));
    suite.add_kvm("damaged tar files", move || {
        damaged_roots(seed, "root.tar", tar)
    });
    suite.add_kvm("damaged EROFS images", move || {
        damaged_roots(seed, "root.erofs", erofs)
    });
    suite.run()
}

/// A folder with the program to try and an empty cache.
struct Place {
    folder: Scratch,
}

impl Place {
    fn new(elf: &Elf) -> Result<Self> {
        let folder = Scratch::new()?;
        fs::create_dir_all(folder.path().join("cache"))?;
        fs::create_dir_all(folder.path().join("folder"))?;
        fs::write(folder.path().join("good-or-bad"), &elf.bytes)?;
        Ok(Self { folder })
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("good-or-bad")
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn command(&self, subcommand: &str) -> Result<Command> {
        let mut command = hartline::command(subcommand)?;
        command.env("HARTLINE_CACHE", self.cache());
        // Only what `build` makes is in the cache.
        command.env(BASELINE, "off");
        if subcommand == "build" {
            // One image, without the baseline translator's.
            command.arg("--all");
        }
        Ok(command)
    }

    fn run(&self, subcommand: &str) -> Result<Outcome> {
        process::run(self.command(subcommand)?.arg(self.program()), b"")
    }

    /// Returns the files in the cache, except records about this host and about checked files, and the
    /// code of the functions in an image.
    fn cached(&self) -> Result<Vec<PathBuf>> {
        let mut found = files(&self.cache())?;
        found.retain(|path| *path != self.cache().join("probe.json") && *path != self.known());
        let of_image = |path: &PathBuf| {
            let is_code = path.extension().is_some_and(|end| end == "pieces");
            is_code && path.with_extension("img").exists()
        };
        found.retain(|path| !of_image(path));
        Ok(found)
    }

    /// Returns the path of the validated-image cache.
    fn known(&self) -> PathBuf {
        self.cache().join("validated")
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// Fails unless `outcome` is a refusal: exit code 125, nothing on standard output, and one line on
/// standard error with one of `words`.
fn check_refusal(outcome: &Outcome, words: &[&str]) -> Result<()> {
    check_refusal_with(125, outcome, words)
}

/// As [`check_refusal`], with the exit code.
fn check_refusal_with(code: i32, outcome: &Outcome, words: &[&str]) -> Result<()> {
    let message = outcome.stderr_text();
    let lower = message.to_lowercase();
    let good = outcome.code == code
        && outcome.stdout.is_empty()
        && message.starts_with("hartline: ")
        && message.lines().count() == 1
        && message.ends_with('\n')
        && words.iter().any(|word| lower.contains(word));
    if good {
        Ok(())
    } else {
        Err(format!("expected one of {words:?}: {outcome:?}").into())
    }
}

fn refused(elf: &Elf, subcommand: &str, words: &[&str]) -> Result<()> {
    let place = Place::new(elf)?;
    let outcome = place.run(subcommand)?;
    check_refusal(&outcome, words)?;
    if !outcome.stderr_text().contains("good-or-bad") {
        return Err(format!("the file is not named: {}", outcome.stderr_text()).into());
    }
    match place.cached()?.as_slice() {
        [] => Ok(()),
        left => Err(format!("left in the cache: {left:?}").into()),
    }
}

fn spoiled(subcommand: &str, spoil: fn(Elf) -> Elf, words: &[&str]) -> Result<()> {
    refused(&spoil(Elf::good()?), subcommand, words)
}

fn truncated(subcommand: &str) -> Result<()> {
    let elf = Elf::good()?;
    let boundaries = elf.boundaries();
    for length in boundaries {
        refused(
            &elf.clone().truncated(length),
            subcommand,
            &["truncated", "not an elf", "empty"],
        )
        .map_err(|error| format!("{length} bytes: {}", error.message().unwrap_or_default()))?;
    }
    Ok(())
}

fn command_line(arguments: &[&str], code: i32, words: &[&str]) -> Result<()> {
    let place = Place::new(&Elf::good()?)?;
    let mut command = place.command("run")?;
    for argument in arguments {
        match *argument {
            "GOOD" => command.arg(place.program()),
            "FOLDER" => command.arg(place.folder.path().join("folder")),
            other => command.arg(other),
        };
    }
    check_refusal_with(code, &process::run(&mut command, b"")?, words)
}

fn check_good(outcome: &Outcome) -> Result<()> {
    if outcome.code == 7 && outcome.stdout == b"ok\n" && outcome.stderr.is_empty() {
        Ok(())
    } else {
        Err(format!("{outcome:?}").into())
    }
}

/// The valid file, from which all others were made, runs and is translated once.
fn good_file() -> Result<()> {
    let place = Place::new(&Elf::good()?)?;
    check_good(&place.run("run")?)?;
    for _ in 0..2 {
        cache::built(&place)?;
        check_good(&place.run("run")?)?;
        if place.cached()?.len() != 1 {
            return Err(format!("in the cache: {:?}", place.cached()?).into());
        }
    }
    Ok(())
}

/// Section headers and symbols are hints: a file without them runs.
fn without_sections() -> Result<()> {
    let elf = Elf::good()?;
    let end = elf.boundaries().last().copied().unwrap_or(0) + 1;
    check_good(&Place::new(&elf.truncated(end))?.run("run")?)
}

/// Packs the contents of a root directory into a file.
type Packer = fn(&Path, &Path) -> Command;

fn tar(from: &Path, to: &Path) -> Command {
    let mut command = Command::new("tar");
    command.arg("-cf").arg(to).arg("-C").arg(from).arg(".");
    command
}

fn erofs(from: &Path, to: &Path) -> Command {
    let mut command = Command::new("mkfs.erofs");
    command.arg("--quiet").arg(to).arg(from);
    command
}

/// A truncated or changed root file system image is refused, or its contents are used.
fn damaged_roots(seed: u64, name: &str, packer: Packer) -> Result<()> {
    let place = Place::new(&Elf::good()?)?;
    let root = place.folder.path().join("root");
    fs::create_dir_all(root.join("folder"))?;
    fs::copy(place.program(), root.join("good-or-bad"))?;
    fs::write(root.join("folder/file"), "contents")?;
    std::os::unix::fs::symlink("file", root.join("folder/link"))?;
    let image = place.folder.path().join(name);
    compile::check(&mut packer(&root, &image))?;
    let whole = fs::read(&image)?;
    let mut random = Random::new(seed);
    let mut damaged: Vec<Vec<u8>> = [0, 1, 511, 512, 700, 1024, whole.len() / 2]
        .map(|length| whole[..length].to_vec())
        .to_vec();
    for _ in 0..40 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            let block = random.within(0, bytes.len() as i64 / 512 - 1) as usize;
            let at = block * 512 + random.below(512) as usize;
            bytes[at] = random.bits() as u8;
        }
        damaged.push(bytes);
    }
    for (number, bytes) in damaged.iter().enumerate() {
        fs::write(&image, bytes)?;
        let mut command = place.command("run")?;
        command.args(["--interpret", "--timeout", "10", "--rootfs"]);
        let outcome = process::run(command.arg(&image).arg("/good-or-bad"), b"")?;
        let refused = outcome.code == 125 && check_refusal(&outcome, &[""]).is_ok();
        if !(refused || matches!(outcome.code, 7 | 124 | 132 | 133 | 135 | 139))
            || outcome.stderr_text().contains("panicked")
        {
            return Err(format!("HARTLINE_SEED={seed}, number {number}: {outcome:?}").into());
        }
    }
    Ok(())
}

/// Hides `/dev/kvm` in a mount namespace; `prepare` may put another file in its place.
fn without_kvm(prepare: &str, words: &[&str]) -> Result<()> {
    let place = Place::new(&Elf::good()?)?;
    let inner = place.command("run")?;
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c"]);
    command
        .arg(format!("mount -t tmpfs none /dev && {prepare}exec \"$@\""))
        .arg("sh");
    command
        .arg(inner.get_program())
        .args(inner.get_args())
        .arg(place.program());
    command.env_clear();
    command.envs(
        inner
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    check_refusal(&process::run(&mut command, b"")?, words)
}

/// Random changes in the headers: the result is a refusal or the end of a program, in bounded time.
fn random_damage(seed: u64) -> Result<()> {
    let good = Elf::good()?;
    let end = good.header(good.number(field::PHNUM, 2) as usize);
    let mut random = Random::new(seed);
    for number in 0..60 {
        let mut elf = good.clone();
        for _ in 0..=random.below(4) {
            let at = random.within(4, end as i64 - 1) as usize;
            elf.bytes[at] = if random.chance(50) {
                random.bits() as u8
            } else {
                elf.bytes[at] ^ (1 << random.below(8))
            };
        }
        let place = Place::new(&elf)?;
        let outcome = process::run(
            place
                .command("run")?
                .args(["--timeout", "300"])
                .arg(place.program()),
            b"",
        )?;
        let message = outcome.stderr_text();
        let ended = matches!(outcome.code, 7 | 132 | 133 | 135 | 139);
        if !(ended || outcome.code == 125 && check_refusal(&outcome, &[""]).is_ok())
            || message.contains("panicked")
        {
            return Err(format!("number {number}: {outcome:?}").into());
        }
    }
    Ok(())
}
