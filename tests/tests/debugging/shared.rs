//! Debug information that dwz(1) has moved to a file that several programs share (`.gnu_debugaltlink`).

use super::stack::gdb_text;
use super::{O0, O2, SEGV};
use hartline_tests::compile::{self, check};
use hartline_tests::process::{self, Outcome};
use hartline_tests::random::{self, Random};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the programs say that the shared file is.
const PATH: &str = "/usr/lib/debug/.dwz/crash.debug";
/// Crashes in which functions are inlined, whose names are in the shared file only.
const KINDS: [&str; 4] = ["load", "qsort", "longjmp", "pointer"];

pub fn add(suite: &mut Suite) {
    suite.add_kvm("shared debug file: by build id", by_build_id);
    suite.add_kvm("shared debug file: by name in a directory", by_name);
    suite.add_kvm("shared debug file: by name in the root directory", in_root);
    suite.add("shared debug file: disassembly", disassembly);
    suite.add_kvm("shared debug file: missing, or another one", missing);
    suite.add_kvm("shared debug file: damaged", damaged);
}

/// A program whose debug information is shared, and the same program before.
struct Shared {
    folder: Scratch,
    program: PathBuf,
    whole: PathBuf,
}

impl Shared {
    fn new() -> Result<Self> {
        let folder = Scratch::new()?;
        let at = |name: &str| folder.path().join(name);
        let [program, other, whole] = ["program", "other", "whole/program"].map(at);
        fs::create_dir(at("whole"))?;
        fs::copy(compile::crash(O2)?, &whole)?;
        fs::copy(&whole, &program)?;
        fs::copy(compile::crash(O0)?, &other)?;
        let mut dwz = Command::new("dwz");
        dwz.arg("-m").arg(at("shared")).args(["-M", PATH]);
        check(dwz.arg(&program).arg(&other))?;
        Ok(Self {
            folder,
            program,
            whole,
        })
    }

    fn file(&self) -> Result<Vec<u8>> {
        Ok(fs::read(self.folder.path().join("shared"))?)
    }

    /// The shared file's build id, as a name in a directory of debug files.
    fn name(&self) -> Result<String> {
        let mut readelf = Command::new("riscv64-linux-gnu-readelf");
        let output = readelf.arg("-n").arg(self.folder.path().join("shared"));
        let text = String::from_utf8(output.output()?.stdout)?;
        let mut lines = text.lines();
        let id = lines.find_map(|line| line.trim().strip_prefix("Build ID: "));
        let (first, rest) = id.ok_or("no build id")?.split_at(2);
        Ok(format!(".build-id/{first}/{rest}.debug"))
    }

    /// A new directory of debug files, with a file of this name.
    fn directory(&self, name: &str, contents: &[u8]) -> Result<String> {
        let directory = self.folder.path().join("debug");
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        put(&directory.join(name), contents)?;
        Ok(directory.display().to_string())
    }

    /// The stack of a crash, as it is reported.
    fn stack(&self, kind: &str, directory: &str) -> Result<String> {
        stack(&run(&self.program, &["--debug-dir", directory], kind)?)
    }

    /// Checks that the stacks are those of the program with its own debug information.
    fn check(&self, options: &[&str], program: &Path) -> Result<()> {
        for kind in KINDS {
            let expected = stack(&run(&self.whole, &[], kind)?)?;
            let got = stack(&run(program, options, kind)?)?;
            if got != expected || !got.contains(" (inlined) at ") || got.contains("??") {
                return Err(format!("{kind}: {got}\nnot\n{expected}").into());
            }
        }
        Ok(())
    }

    /// Checks that the program's own part of the debug information is used, and no other.
    fn check_alone(&self, directory: &str) -> Result<()> {
        for kind in KINDS {
            let expected = stack(&run(&self.program, &[], kind)?)?;
            let got = self.stack(kind, directory)?;
            let whole = stack(&run(&self.whole, &[], kind)?)?;
            let is_right = got == expected && got.contains("?? (inlined) at ");
            if !is_right || got.lines().count() != whole.lines().count() {
                return Err(format!("{kind}: {got}\nnot\n{expected}").into());
            }
        }
        Ok(())
    }
}

/// Writes a file, and makes the directories above it.
fn put(path: &Path, contents: &[u8]) -> Result<()> {
    fs::create_dir_all(path.parent().ok_or("no parent")?)?;
    Ok(fs::write(path, contents)?)
}

fn run(program: &Path, options: &[&str], kind: &str) -> Result<Outcome> {
    let mut command = hartline::command("run")?;
    command.args(options).arg("--").arg(program).arg(kind);
    process::run(&mut command, b"")
}

/// The lines of the stack in a report.
fn stack(outcome: &Outcome) -> Result<String> {
    let text = outcome.stderr_text();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    match outcome.code == 128 + SEGV && !lines.is_empty() {
        true => Ok(lines.join("\n")),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// gdb, which finds the file too, sees the same inlined function in the core dump.
fn by_build_id() -> Result<()> {
    let shared = Shared::new()?;
    let directory = shared.directory(&shared.name()?, &shared.file()?)?;
    shared.check(&["--debug-dir", &directory], &shared.program)?;
    let core = shared.folder.path().join("core");
    let options = ["--core", &core.to_string_lossy()];
    run(&shared.program, &options, "load")?;
    let setting = format!("set debug-file-directory {directory}");
    let file = format!("file {}", shared.program.display());
    let text = gdb_text(&shared.whole, &core, &[&setting, &file, "frame", "frame 1"])?;
    process::check_order(&text, &["#0  load (", "#1  null_load ("])
}

/// The part of the name from `.dwz` on counts.
fn by_name() -> Result<()> {
    let shared = Shared::new()?;
    let directory = shared.directory(".dwz/crash.debug", &shared.file()?)?;
    shared.check(&["--debug-dir", &directory], &shared.program)
}

fn in_root() -> Result<()> {
    let shared = Shared::new()?;
    let root = shared.folder.path().join("root");
    put(&root.join(&PATH[1..]), &shared.file()?)?;
    fs::copy(&shared.program, root.join("program"))?;
    let options = ["--rootfs", &root.to_string_lossy()];
    shared.check(&options, Path::new("/program"))
}

/// Source lines beside the instructions need nothing of the shared file, which may be there or not.
fn disassembly() -> Result<()> {
    let shared = Shared::new()?;
    let shown = |program: &Path, options: &[&str]| -> Result<String> {
        let mut command = hartline::command("disasm")?;
        command.arg("--source").args(options);
        let outcome = process::run(command.arg(program).arg("by_function_pointer"), b"")?;
        match outcome.code == 0 && outcome.stdout_text().contains("crash.c:") {
            true => Ok(outcome.stdout_text()),
            false => Err(format!("{outcome:?}").into()),
        }
    };
    let expected = shown(&shared.whole, &[])?;
    let name = shared.name()?;
    let nonsense = random::Random::new(random::seed()).bits().to_le_bytes();
    for contents in [&shared.file()?[..], &nonsense] {
        let directory = shared.directory(&name, contents)?;
        let got = shown(&shared.program, &["--debug-dir", &directory])?;
        if got != expected {
            return Err(format!("{got}\nnot\n{expected}").into());
        }
    }
    match shown(&shared.program, &[])? == expected {
        true => Ok(()),
        false => Err("without the file".into()),
    }
}

/// Files that are not used: none, one with another build id, another program, and a name that leads out of
/// the directory.
fn missing() -> Result<()> {
    let shared = Shared::new()?;
    let (name, file) = (shared.name()?, shared.file()?);
    shared.check_alone(&shared.directory("nothing", b"")?)?;
    let id: Vec<u8> = (name.split(['/', '.']).filter(|part| !part.is_empty()))
        .filter(|part| part.chars().all(|digit| digit.is_ascii_hexdigit()))
        .flat_map(|part| part.as_bytes().as_chunks::<2>().0)
        .map(|digits| u8::from_str_radix(&String::from_utf8_lossy(digits), 16))
        .collect::<std::result::Result<_, _>>()?;
    let at = file.windows(id.len()).position(|bytes| bytes == id);
    let mut other = file.clone();
    other[at.ok_or("no build id in the file")?] ^= 1;
    for name in [&name, ".dwz/crash.debug"] {
        shared.check_alone(&shared.directory(name, &other)?)?;
        shared.check_alone(&shared.directory(name, &fs::read(&shared.whole)?)?)?;
        shared.check_alone(&shared.directory(name, b"")?)?;
    }
    Ok(())
}

/// Damaged files: the program crashes as before, and its report has the places of the program's own part. Names
/// may be damaged too: they are in the shared file.
fn damaged() -> Result<()> {
    let shared = Shared::new()?;
    let (name, file) = (shared.name()?, shared.file()?);
    let mut random = Random::new(random::seed());
    for round in 0..20 {
        let mut bytes = file.clone();
        // Behind the ELF header and the build id: the sections and their headers.
        let first: u64 = 0x40 + 0x24;
        for _ in 0..1 << (round % 10) {
            let at = first + random.below(bytes.len() as u64 - first);
            bytes[usize::try_from(at)?] = random.bits().to_le_bytes()[0];
        }
        let directory = shared.directory(&name, &bytes)?;
        for kind in KINDS {
            let got = shared.stack(kind, &directory)?;
            if !got.lines().any(|line| line.ends_with("/crash.c:27")) {
                return Err(format!("round {round}, {kind}: {got}").into());
            }
        }
    }
    let bytes: Vec<u8> = (0..file.len())
        .map(|_| random.bits().to_le_bytes()[0])
        .collect();
    shared.check_alone(&shared.directory(&name, &bytes)?)
}
