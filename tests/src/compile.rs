//! Building guest programs with the riscv64 cross compiler.
//!
//! All C programs of `tests/programs` become one executable, which looks at its
//! first argument like busybox: the C library in it is translated once, not once
//! per program.

use crate::{Result, paths};
use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Flags of one build of the C programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Name of the executable.
    pub name: &'static str,
    /// Compiler and linker flags.
    pub flags: &'static [&'static str],
}

/// The builds that tests run: three optimisation levels, with and without symbols.
pub const VARIANTS: [Variant; 3] = [
    Variant {
        name: "O0",
        flags: &["-O0", "-static"],
    },
    Variant {
        name: "O2",
        flags: &["-O2", "-static"],
    },
    Variant {
        name: "O3-stripped",
        flags: &["-O3", "-static", "-s"],
    },
];

/// Names of the programs in `tests/programs/*.c`.
///
/// # Errors
/// The folder cannot be read.
pub fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(sources())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            names.extend(
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    Ok(names)
}

/// The executable of all C programs, built once per test process.
///
/// # Errors
/// The compiler is missing or refuses.
pub fn programs(variant: Variant) -> Result<PathBuf> {
    let output = paths::work().join("programs").join(variant.name);
    once(&output, || {
        let folder = output.with_extension("objects");
        fs::create_dir_all(&folder)?;
        let names = names()?;
        let mut objects = Vec::new();
        for name in &names {
            let object = folder.join(format!("{name}.o"));
            let mut compiler = Command::new("riscv64-linux-gnu-gcc");
            compiler
                .args(["-std=gnu17", "-frounding-math", "-g1", "-c"])
                .args(variant.flags);
            compiler.arg(format!("-Dmain={name}_main"));
            check(
                compiler
                    .arg(sources().join(format!("{name}.c")))
                    .arg("-o")
                    .arg(&object),
            )?;
            objects.push(object);
        }
        let table = folder.join("table.c");
        fs::write(&table, table_of(&names))?;
        let mut linker = Command::new("riscv64-linux-gnu-gcc");
        linker.args(variant.flags).arg(&table).args(&objects);
        check(linker.args(["-lm", "-latomic", "-o"]).arg(&output))
    })
}

/// The C++ program, statically linked and stripped.
///
/// # Errors
/// The compiler is missing or refuses.
pub fn streams() -> Result<PathBuf> {
    let output = paths::work().join("programs/streams");
    once(&output, || {
        let mut compiler = Command::new("riscv64-linux-gnu-g++");
        compiler
            .args(["-std=c++17", "-O2", "-static", "-s", "-o"])
            .arg(&output);
        check(compiler.arg(sources().join("streams.cpp")))
    })
}

/// Runs a compiler, assembler or linker.
///
/// # Errors
/// It is missing, or its messages.
pub fn check(command: &mut Command) -> Result<()> {
    let output = command.output().map_err(|error| {
        format!(
            "cannot run {:?}: {error}; run `make test-setup`",
            command.get_program()
        )
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

fn sources() -> PathBuf {
    paths::repository().join("tests/programs")
}

/// A `main` that calls the program named by the first argument.
fn table_of(names: &[String]) -> String {
    let mut text = String::from("#include <string.h>\n");
    for name in names {
        let _ = writeln!(text, "int {name}_main(int, char **);");
    }
    text.push_str("int main(int argc, char **argv) {\n    if (argc < 2) return 124;\n");
    for name in names {
        let _ = writeln!(
            text,
            "    if (!strcmp(argv[1], \"{name}\")) return {name}_main(argc - 1, argv + 1);"
        );
    }
    text.push_str("    return 124;\n}\n");
    text
}

/// Makes the file `output` with `make`, once per process and one at a time.
fn once(output: &Path, make: impl FnOnce() -> Result<()>) -> Result<PathBuf> {
    static DONE: Mutex<Option<HashMap<PathBuf, bool>>> = Mutex::new(None);
    let mut done = DONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let done = done.get_or_insert_default();
    match done.get(output) {
        Some(true) => return Ok(output.to_path_buf()),
        Some(false) => return Err(format!("{} could not be built", output.display()).into()),
        None => {}
    }
    done.insert(output.to_path_buf(), false);
    if let Some(folder) = output.parent() {
        fs::create_dir_all(folder)?;
    }
    make()?;
    done.insert(output.to_path_buf(), true);
    Ok(output.to_path_buf())
}
