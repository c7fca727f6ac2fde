//! Building guest programs with the riscv64 cross compiler.
//!
//! All programs of a folder become one executable, which selects by its first argument like
//! busybox: the C library in it is translated once, not once per program.

use crate::{Result, hartline, paths};
use std::collections::HashMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

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

/// The builds of the control-flow programs. They differ in where functions begin, how registers are
/// saved, how jump tables look, and whether constants share a segment with the code.
pub const CONTROL_VARIANTS: [Variant; 3] = [
    Variant {
        name: "O0",
        flags: &["-O0", "-static"],
    },
    Variant {
        name: "Os-millicode",
        flags: &["-Os", "-msave-restore", "-static", "-Wl,-z,separate-code"],
    },
    Variant {
        name: "O3-absolute-stripped",
        flags: &["-O3", "-fno-pic", "-mcmodel=medlow", "-static", "-s"],
    },
];

/// A folder of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// `tests/programs/*.c`.
    Programs,
    /// `tests/programs/control`: control flow that surprises, and atomics.
    Control,
    /// `tests/programs/conformance`: assertions about the system calls.
    Conformance,
}

impl Set {
    fn folder(self) -> PathBuf {
        let programs = paths::repository().join("tests/programs");
        match self {
            Set::Programs => programs,
            Set::Control => programs.join("control"),
            Set::Conformance => programs.join("conformance"),
        }
    }

    /// Returns the file names of the programs, sorted. C++ files count in the control-flow set
    /// only, because the C++ library makes an executable larger.
    fn files(self) -> Result<Vec<String>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.folder())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".c") || self == Set::Control && name.ends_with(".cpp") {
                files.push(name);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Returns the names of the programs, which are the first arguments of the executable.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn names(self) -> Result<Vec<String>> {
        let files = self.files()?;
        Ok(files.iter().map(|file| stem(file).to_owned()).collect())
    }

    fn name(self) -> &'static str {
        match self {
            Set::Programs => "programs",
            Set::Control => "control",
            Set::Conformance => "conformance",
        }
    }

    /// Builds the executable of all programs of the set.
    ///
    /// # Errors
    /// The compiler is missing or refuses.
    pub fn build(self, variant: Variant) -> Result<PathBuf> {
        self.build_with(variant, [C, CPP])
    }

    /// Builds the executable for this machine.
    ///
    /// # Errors
    /// As [`Set::build`].
    pub fn build_here(self) -> Result<PathBuf> {
        let variant = Variant {
            name: "native",
            flags: &["-O1", "-pthread"],
        };
        self.build_with(variant, ["cc", "c++"])
    }

    /// Builds the executable with compilers for C and C++.
    fn build_with(self, variant: Variant, compilers: [&str; 2]) -> Result<PathBuf> {
        let output = paths::work().join(self.name()).join(variant.name);
        once(&output, || {
            let objects = output.with_extension("objects");
            fs::create_dir_all(&objects)?;
            let table = objects.join("table.c");
            fs::write(&table, table_of(&self.names()?))?;
            let [c, cpp] = compilers;
            let mut linker = match self {
                Set::Programs | Set::Conformance => Command::new(c),
                Set::Control => Command::new(cpp),
            };
            linker.args(variant.flags);
            let mut compile = |source: &Path, name: &str, defines: &[String]| -> Result<()> {
                let object = objects.join(name).with_extension("o");
                let mut compiler = compiler(name, compilers);
                compiler.args(["-frounding-math", "-g1", "-c"]);
                compiler.args(variant.flags).args(defines);
                check(compiler.arg(source).arg("-o").arg(&object))?;
                linker.arg(object);
                Ok(())
            };
            compile(&table, "table.c", &[])?;
            for file in self.files()? {
                let main = format!("-Dmain={}_main", stem(&file));
                compile(&self.folder().join(&file), &file, &[main])?;
            }
            check(linker.args(["-lm", "-latomic", "-o"]).arg(&output))
        })
    }
}

const C: &str = "riscv64-linux-gnu-gcc";
const CPP: &str = "riscv64-linux-gnu-g++";

/// A file's name without its extension.
fn stem(file: &str) -> &str {
    file.split('.').next().unwrap_or(file)
}

/// Returns the compiler for a file, C or C++, with the language standard.
fn compiler(file: &str, [c, cpp]: [&str; 2]) -> Command {
    let (name, standard) = match file.ends_with(".cpp") {
        true => (cpp, "-std=c++17"),
        false => (c, "-std=gnu17"),
    };
    let mut command = Command::new(name);
    command.arg(standard);
    command
}

/// Builds the executable of the C programs in `tests/programs`.
///
/// # Errors
/// As [`Set::build`].
pub fn programs(variant: Variant) -> Result<PathBuf> {
    Set::Programs.build(variant)
}

/// Returns the names of the programs in `tests/programs/alone`, each a separate executable.
///
/// # Errors
/// The folder cannot be read.
pub fn alone_names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(alone_sources())? {
        names.push(stem(&entry?.file_name().to_string_lossy()).to_owned());
    }
    names.sort();
    Ok(names)
}

/// The folder of the C programs that are built alone.
pub fn alone_sources() -> PathBuf {
    Set::Programs.folder().join("alone")
}

/// Builds the program `name` of `tests/programs/alone`, statically linked by `compiler`.
///
/// # Errors
/// The compiler is missing or refuses.
pub fn alone(name: &str, compiler: &str) -> Result<PathBuf> {
    let output = paths::work()
        .join("programs")
        .join(format!("{name}-{compiler}"));
    once(&output, || {
        let source = alone_sources().join(format!("{name}.c"));
        let mut command = Command::new(compiler);
        command.args(["-std=gnu17", "-O2", "-static", "-pthread"]);
        command
            .arg("-I")
            .arg(paths::repository().join("guest-runtime/sdk"));
        check(command.arg(source).arg("-o").arg(&output))
    })
}

/// Builds the program that crashes, with debug information and these flags.
///
/// # Errors
/// The compiler is missing or refuses.
pub fn crash(variant: Variant) -> Result<PathBuf> {
    let output = paths::work().join("programs/crash").join(variant.name);
    once(&output, || {
        let mut command = Command::new(C);
        command.args([
            "-std=gnu17",
            "-g",
            "-pthread",
            "-fstack-protector-strong",
            "-w",
        ]);
        command.args(variant.flags);
        let source = alone_sources().join("crash.c");
        check(command.arg(source).arg("-o").arg(&output))
    })
}

/// Builds the program `tests/programs/rust`, statically linked, for a target of Rust. Cargo does nothing if it is up
/// to date.
///
/// # Errors
/// Rust's library for the target is missing (`make test-setup`), or the compiler refuses.
pub fn rust(target: &str) -> Result<PathBuf> {
    const PACKAGE: &str = "hartline-test-program";
    let built = hartline::cargo(&[PACKAGE], &["build", "--offline", "--target", target]);
    built.map_err(|error| format!("{error}; run `make test-setup`"))?;
    Ok(paths::target().join(target).join("release").join(PACKAGE))
}

/// Builds a program of `tests/programs/debugged`, in C or C++, with debug information, in a folder.
///
/// # Errors
/// The compiler is missing or refuses.
pub fn debugged(folder: &Path, source: &str, variant: Variant) -> Result<PathBuf> {
    let output = folder.join(stem(source));
    let (name, standard) = match source.ends_with(".cc") {
        true => (CPP, "-std=gnu++20"),
        false => (C, "-std=gnu17"),
    };
    let mut command = Command::new(name);
    command.args([standard, "-g", "-pthread"]);
    command.arg(Set::Programs.folder().join("debugged").join(source));
    check(command.args(variant.flags).arg("-o").arg(&output))?;
    Ok(output)
}

/// Builds the C++ program, statically linked and stripped.
///
/// # Errors
/// The compiler is missing or refuses.
pub fn streams() -> Result<PathBuf> {
    let output = paths::work().join("programs/streams");
    once(&output, || {
        let mut compiler = compiler("streams.cpp", [C, CPP]);
        compiler.args(["-O2", "-static", "-s", "-o"]).arg(&output);
        check(compiler.arg(Set::Programs.folder().join("streams.cpp")))
    })
}

/// Builds the program of `tests/programs/float`, which has no C library.
///
/// # Errors
/// The compiler is missing or refuses.
pub fn float_cases() -> Result<PathBuf> {
    let output = paths::work().join("programs/float");
    once(&output, || {
        let folder = Set::Programs.folder().join("float");
        let mut compiler = compiler("cases.c", [C, CPP]);
        compiler.args(["-O2", "-static", "-nostdlib", "-ffreestanding", "-fno-pic"]);
        compiler.arg(folder.join("cases.c"));
        check(
            compiler
                .arg(folder.join("kernels.S"))
                .arg("-o")
                .arg(&output),
        )
    })
}

/// Builds the program of `tests/programs/service`, which has no C library.
///
/// # Errors
/// The compiler is missing or refuses.
pub fn service() -> Result<PathBuf> {
    let output = paths::work().join("programs/service");
    once(&output, || {
        let mut compiler = compiler("service.c", [C, CPP]);
        compiler.args(["-O1", "-static", "-nostdlib", "-ffreestanding", "-o"]);
        check(
            compiler
                .arg(&output)
                .arg(Set::Programs.folder().join("service/service.c")),
        )
    })
}

/// Builds `tests/programs/libraries/SOURCE`, dynamically linked, as `output`.
///
/// # Errors
/// The compiler is missing or refuses.
pub fn dynamic(source: &str, flags: &[&str], output: &Path) -> Result<()> {
    let mut compiler = Command::new("riscv64-linux-gnu-gcc");
    // Without the C extension, an instruction that is changed has one form.
    compiler.args(["-O2", "-march=rv64g"]).args(flags);
    let source = paths::repository()
        .join("tests/programs/libraries")
        .join(source);
    check(compiler.arg(source).arg("-o").arg(output))
}

/// Runs a compiler, assembler or linker.
///
/// # Errors
/// The program is missing or fails; the error has its messages.
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

/// Returns a `main` that calls the program named by the first argument.
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

/// Makes the file `output` with `make`, unless it was made from the same sources. If several test
/// processes need the file at the same time, only one of them makes it.
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
    let lock = File::create(output.with_added_extension("lock"))?;
    lock.lock()?;
    let (key, stamp) = (sources_key()?, output.with_added_extension("key"));
    let is_made = output.exists() && fs::read_to_string(&stamp).is_ok_and(|made| made == key);
    if !is_made {
        // An interrupted `make` must leave no valid stamp.
        let _ = fs::remove_file(&stamp);
        make()?;
        fs::write(&stamp, key)?;
    }
    done.insert(output.to_path_buf(), true);
    Ok(output.to_path_buf())
}

/// Hashes the inputs of all executables: sources, compilers, and this file, which has the flags.
fn sources_key() -> Result<String> {
    static KEY: OnceLock<u64> = OnceLock::new();
    if let Some(key) = KEY.get() {
        return Ok(format!("{key:016x}"));
    }
    let mut hasher = DefaultHasher::new();
    include_bytes!("compile.rs").hash(&mut hasher);
    for compiler in [C, CPP, "cc", "c++"] {
        let version = Command::new(compiler).arg("--version").output();
        // A missing compiler is reported where it is used.
        version
            .map_or_else(|_| Vec::new(), |output| output.stdout)
            .hash(&mut hasher);
    }
    hash_sources(&Set::Programs.folder(), &mut hasher)?;
    hash_sources(&paths::repository().join("guest-runtime/sdk"), &mut hasher)?;
    Ok(format!("{:016x}", KEY.get_or_init(|| hasher.finish())))
}

/// Hashes the names and contents of a folder's files.
fn hash_sources(folder: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let entries: std::io::Result<Vec<_>> = fs::read_dir(folder)?.collect();
    let mut paths: Vec<PathBuf> = entries?.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    for path in paths {
        path.hash(hasher);
        match path.is_dir() {
            true => hash_sources(&path, hasher)?,
            false => fs::read(&path)?.hash(hasher),
        }
    }
    Ok(())
}
