//! A new version of a program: `hartline build` reuses the machine code of the functions that the old
//! version has at other addresses, and the program still behaves as with the reference.

use hartline_tests::compare::check_equal;
use hartline_tests::compile::check;
use hartline_tests::dynamic::Root;
use hartline_tests::process::Outcome;
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline, paths, process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The programs of `tests/programs` that are linked together. `handlers` handles faults, so its code
/// is in the precise variant.
const PROGRAMS: [&str; 5] = ["sorting", "jumps", "recursion", "formats", "handlers"];

/// The function that differs, in front of all others, in the old and in the new version.
const OLD: &str = "int number(int n) { return n; }\n";
const NEW: &str = "int number(int n) {
    int sum = 0;
    for (int i = 1; i <= n; i++) sum += i % 3 ? i * n : sum / i;
    return sum;
}
";

/// What the first argument selects.
const MAIN: &str = "#include <stdio.h>
#include <string.h>
int number(int);
int main(int argc, char **argv) {
    if (argc < 2) return 124;
    printf(\"%d\\n\", number(argc + 9));
    fflush(stdout);
";

/// The numbers in the line of `hartline build` for a file.
#[derive(Debug)]
struct Built {
    functions: usize,
    reused: usize,
}

/// A root directory with both versions, and an empty cache.
struct Versions {
    root: Root,
    place: Scratch,
}

impl Versions {
    fn new() -> Result<Self> {
        let root = Root::new("versions-root", std::iter::once("true"))?;
        let place = Scratch::new()?;
        let versions = Self { root, place };
        let work = versions.place.path().join("objects");
        fs::create_dir_all(&work)?;
        for (name, number) in [("old", OLD), ("new", NEW)] {
            link(&work, number, &versions.program(name))?;
        }
        Ok(versions)
    }

    fn cache(&self) -> PathBuf {
        self.place.path().join("cache")
    }

    fn program(&self, name: &str) -> PathBuf {
        self.root.path().join("usr/bin").join(name)
    }

    fn build(&self, name: &str, options: &[&str]) -> Result<Built> {
        let mut build = hartline::command("build")?;
        build.env("HARTLINE_CACHE", self.cache()).arg("--all");
        build.args(options).arg(self.program(name));
        let outcome = process::run(&mut build, b"")?;
        if outcome.code != 0 {
            return Err(format!("{outcome:?}").into());
        }
        built(&outcome)
    }
}

/// Links the programs, with the function `number` first.
fn link(work: &Path, number: &str, output: &Path) -> Result<()> {
    let first = work.join("number.c");
    fs::write(&first, number)?;
    let table = work.join("main.c");
    let mut text = MAIN.to_owned();
    for name in PROGRAMS {
        text += &format!(
            "    int {name}_main(int, char **);\n    if (!strcmp(argv[1], \"{name}\")) \
             return {name}_main(argc - 1, argv + 1);\n"
        );
    }
    fs::write(&table, text + "    return 124;\n}\n")?;
    let compiler = || {
        let mut command = Command::new("riscv64-linux-gnu-gcc");
        command.args(["-std=gnu17", "-O2", "-fPIE", "-frounding-math"]);
        command
    };
    let mut linker = compiler();
    linker.args(["-pie", "-fno-toplevel-reorder"]).arg(&first);
    for name in PROGRAMS {
        let object = work.join(name).with_extension("o");
        let source = paths::repository().join(format!("tests/programs/{name}.c"));
        let mut compile = compiler();
        compile.arg(format!("-Dmain={name}_main")).arg("-c");
        check(compile.arg(source).arg("-o").arg(&object))?;
        linker.arg(object);
    }
    check(linker.arg(&table).args(["-lm", "-o"]).arg(output))
}

/// Reads the line of `hartline build`.
fn built(outcome: &Outcome) -> Result<Built> {
    let text = outcome.stdout_text();
    let number_before = |what: &str| -> Option<usize> {
        let before = text.split(what).next().filter(|_| text.contains(what))?;
        before.rsplit(' ').next()?.parse().ok()
    };
    Ok(Built {
        functions: number_before(" functions").ok_or_else(|| format!("no functions in {text}"))?,
        reused: number_before(" of them reused").unwrap_or(0),
    })
}

/// Builds the old version, then the new one, in both variants, and runs the new one.
fn reuse() -> Result<()> {
    let versions = Versions::new()?;
    for options in [&[][..], &["--precise"]] {
        let (old, new) = (
            versions.build("old", options)?,
            versions.build("new", options)?,
        );
        let made = new.functions - new.reused;
        // Only the changed function is made. The linker may change the instructions of a few others.
        if old.reused > old.functions / 4 || new.functions < 40 || !(1..=4).contains(&made) {
            return Err(format!("{options:?}: {old:?}, {new:?}").into());
        }
    }
    for program in PROGRAMS {
        let run = versions.root.run("new", &[program]);
        let mut command = run.hartline_command(&[])?;
        command.env("HARTLINE_CACHE", versions.cache());
        let outcome = process::run(&mut command, b"")?;
        let expected = run.reference()?;
        if expected.code != 0 || expected.stdout.is_empty() {
            return Err(format!("{program}: {expected:?}").into());
        }
        check_equal(&expected, &outcome)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_kvm("a new version reuses the functions that moved", reuse);
    suite.run()
}
