//! The command lines of a benchmark in each of the three ways.

use super::suite::{Benchmark, Program};
use anyhow::{Context, bail};
use hartline_aot::technique::Technique;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The root directories of the programs that make code at run time.
const JIT: &str = "jit";

/// The shell of a script in its root directory, a static busybox.
const SHELL: &str = "usr/bin/busybox";

/// A way to run the same program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The x86-64 program itself.
    Native,
    /// The riscv64 program under Debian's qemu-riscv64.
    Qemu,
    /// The riscv64 program under this build's `hartline`.
    Hartline,
}

impl Way {
    /// All ways, in the order in which their runs alternate.
    pub const ALL: [Self; 3] = [Self::Native, Self::Qemu, Self::Hartline];

    /// Returns the name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Qemu => "qemu-riscv64",
            Self::Hartline => "hartline",
        }
    }
}

/// Why a benchmark has no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Hartline cannot run the program and says so.
    #[error("{0}")]
    NotYet(String),
    /// Any other failure.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// The directory made by `tests/bench/build.sh`.
#[derive(Debug, Clone)]
pub struct Programs {
    directory: PathBuf,
    hartline: PathBuf,
    /// Options of `hartline build` and `hartline run`.
    options: Vec<String>,
    /// A cache in place of the user's, with translations of executed functions only.
    cache: Option<PathBuf>,
    /// LLVM translates all functions, not only the warm ones.
    all: bool,
}

impl Programs {
    /// Checks that all files that `benchmarks` need exist.
    ///
    /// # Errors
    /// The first file that is missing, by name.
    pub fn open(
        directory: &Path,
        benchmarks: &[Benchmark],
        quick: bool,
        disabled: &[Technique],
    ) -> anyhow::Result<Self> {
        let hint = "make bench-programs prepares it";
        let found = directory
            .canonicalize()
            .with_context(|| format!("{}: no benchmark programs ({hint})", directory.display()))?;
        let programs = Self {
            directory: found,
            hartline: crate::beside("hartline")?,
            options: disabled
                .iter()
                .map(|name| format!("--disable={name}"))
                .collect(),
            cache: None,
            all: false,
        };
        let mut needed = vec![programs.qemu()];
        for benchmark in benchmarks {
            needed.push(programs.native(benchmark.program));
            needed.push(programs.riscv64(benchmark.program));
            let inputs = benchmark.inputs(quick);
            needed.extend(inputs.iter().map(|name| programs.input().join(name)));
        }
        for file in needed {
            if !file.exists() {
                bail!("{}: missing ({hint})", file.display());
            }
        }
        Ok(programs)
    }

    /// Returns the same programs with the translations in `cache`.
    pub fn with_cache(&self, cache: &Path) -> Self {
        Self {
            cache: Some(cache.to_owned()),
            ..self.clone()
        }
    }

    /// Uses a cache next to the programs, with translations of executed functions only.
    pub fn with_own_cache(self) -> Self {
        Self {
            cache: Some(self.directory.join("ablation")),
            ..self
        }
    }

    /// Returns the same programs, which `hartline run` runs with these options.
    pub fn with_options(&self, options: Vec<String>) -> Self {
        Self {
            options,
            ..self.clone()
        }
    }

    /// Returns a `hartline` command with the cache.
    pub fn hartline(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.hartline);
        command.arg(subcommand).args(&self.options);
        if let Some(cache) = &self.cache {
            command.env("HARTLINE_CACHE", cache);
        }
        command
    }

    fn qemu(&self) -> PathBuf {
        self.directory.join("qemu-riscv64")
    }

    fn input(&self) -> PathBuf {
        self.directory.join("input")
    }

    /// Returns the root directory of a dynamically linked program.
    fn root(&self, architecture: &str, name: &str) -> PathBuf {
        self.directory.join("roots").join(architecture).join(name)
    }

    fn native(&self, program: Program) -> PathBuf {
        match program {
            Program::Static(name) => self.directory.join("native").join(name),
            Program::Script(name) => self.root("amd64", name).join(SHELL),
            Program::Debian(name) => self.root("amd64", name).join("usr/bin").join(name),
            Program::Jit(name) => self.root("amd64", JIT).join("usr/bin").join(name),
        }
    }

    fn riscv64(&self, program: Program) -> PathBuf {
        match program {
            Program::Static(name) => self.directory.join("riscv64").join(name),
            Program::Script(name) => self.root("riscv64", name).join(SHELL),
            Program::Debian(name) => self.root("riscv64", name).join("usr/bin").join(name),
            Program::Jit(name) => self.root("riscv64", JIT).join("usr/bin").join(name),
        }
    }

    /// Translates the files that `benchmark` runs, so that no measured run does.
    ///
    /// # Errors
    /// [`Failure::NotYet`] for a dynamically linked program that Hartline refuses.
    pub fn translate(&self, benchmark: &Benchmark) -> Result<Duration, Failure> {
        let start = Instant::now();
        if self.cache.is_none() && !matches!(benchmark.program, Program::Static(_)) {
            // Fail early if the program does not run at all: translating its libraries takes
            // minutes.
            self.run(benchmark, Way::Hartline, true)?;
        }
        let variants: &[&[&str]] = match benchmark.program.handles_faults() {
            true => &[&[], &["--precise"]],
            false => &[&[]],
        };
        for variant in variants {
            let mut command = self.hartline("build");
            command.args(*variant);
            command.args(self.cache.as_ref().map(|_| "--ran"));
            command.args(self.all.then_some("--all"));
            let output = finish(command.args(self.files(benchmark.program)?))?;
            if !output.status.success() {
                let name = benchmark.program.name();
                let message = last_line(&output);
                return Err(anyhow::anyhow!("{name}: not translated: {message}").into());
            }
        }
        Ok(start.elapsed())
    }

    /// Makes LLVM translate all functions before the first run, or only the warm ones.
    pub fn translate_all(&mut self, all: bool) {
        self.all = all;
    }

    /// Returns the riscv64 ELF files of a program: the program itself or the programs it starts,
    /// the loader, and libraries.
    fn files(&self, program: Program) -> anyhow::Result<Vec<PathBuf>> {
        let (name, mut files) = match program {
            Program::Static(_) => return Ok(vec![self.riscv64(program)]),
            Program::Debian(name) => (name, vec![self.riscv64(program)]),
            Program::Jit(_) => (JIT, vec![self.riscv64(program)]),
            Program::Script(name) => {
                let folder = self.root("riscv64", name).join("usr/bin");
                (name, files_of(&folder, |_| true)?)
            }
        };
        let library = self.root("riscv64", name).join("usr/lib");
        for folder in [library.join("riscv64-linux-gnu"), library] {
            files.extend(files_of(&folder, |path| {
                path.as_os_str().as_bytes().windows(3).any(|s| s == b".so")
            })?);
        }
        Ok(files)
    }

    /// Runs `benchmark` to its end. Result: the time it took, and its standard output.
    ///
    /// # Errors
    /// The program cannot be started or does not exit with 0; [`Failure::NotYet`] if Hartline
    /// refuses a dynamically linked program.
    pub fn run(
        &self,
        benchmark: &Benchmark,
        way: Way,
        quick: bool,
    ) -> Result<(Duration, Vec<u8>), Failure> {
        let mut command = self.command(benchmark, way, quick);
        let start = Instant::now();
        let output = finish(&mut command)?;
        let elapsed = start.elapsed();
        if output.status.success() {
            return Ok((elapsed, output.stdout));
        }
        let line = last_line(&output);
        if way == Way::Hartline
            && !matches!(benchmark.program, Program::Static(_))
            && output.status.code() == Some(i32::from(hartline_vmm::report::FAILURE))
        {
            let reason = line.strip_prefix("hartline: ").unwrap_or(&line);
            return Err(Failure::NotYet(reason.to_owned()));
        }
        let (way, status) = (way.name(), output.status);
        Err(anyhow::anyhow!("{way}: {status}: {line}").into())
    }

    /// Returns the command of one run, with the input files in its working directory.
    pub fn command(&self, benchmark: &Benchmark, way: Way, quick: bool) -> Command {
        let program = benchmark.program;
        let start = self.launcher(program, way);
        let mut command = match way {
            Way::Hartline => self.hartline_command(benchmark, quick),
            Way::Native | Way::Qemu => {
                let file = match way {
                    Way::Native => self.native(program),
                    _ => self.riscv64(program),
                };
                let words = match program {
                    // The launcher enters the root directory.
                    Program::Jit(name) => [start.clone(), vec![usr_bin(name)]].concat(),
                    // The shell that runs a script needs no loader.
                    Program::Script(_) if way == Way::Native => vec![file],
                    _ => [start.clone(), vec![file]].concat(),
                };
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                command
            }
        };
        command.args(benchmark.arguments(quick));
        if let Program::Script(name) = program {
            let folder = match way {
                Way::Native => self.root("amd64", name).join("usr/bin"),
                Way::Qemu => self.root("riscv64", name).join("usr/bin"),
                Way::Hartline => PathBuf::from("/usr/bin"),
            };
            command.arg(folder).args(start);
        }
        command.current_dir(self.input());
        command
    }

    /// Returns the words before a program's file that start it in its root directory.
    fn entrance(&self, way: Way) -> Vec<PathBuf> {
        let enter = self.directory.join("enter.sh");
        match way {
            Way::Native => vec![enter, self.root("amd64", JIT)],
            Way::Qemu => vec![enter, self.root("riscv64", JIT), "/qemu-riscv64".into()],
            Way::Hartline => Vec::new(),
        }
    }

    /// Returns the words before a program's file that start it. A dynamically linked program runs
    /// with the libraries and the loader of its root directory, not with this machine's.
    fn launcher(&self, program: Program, way: Way) -> Vec<PathBuf> {
        let root = |architecture| match program {
            Program::Static(_) | Program::Jit(_) => None,
            Program::Debian(name) | Program::Script(name) => Some(self.root(architecture, name)),
        };
        if matches!(program, Program::Jit(_)) {
            return self.entrance(way);
        }
        match way {
            Way::Hartline => Vec::new(),
            Way::Qemu => match root("riscv64") {
                Some(root) => vec![self.qemu(), "-L".into(), root],
                None => vec![self.qemu()],
            },
            Way::Native => root("amd64").map_or_else(Vec::new, |root| {
                vec![
                    root.join("lib64/ld-linux-x86-64.so.2"),
                    "--inhibit-cache".into(),
                    "--library-path".into(),
                    root.join("usr/lib/x86_64-linux-gnu"),
                ]
            }),
        }
    }

    /// Returns `hartline run` with each input file as a volume in the guest's working directory.
    fn hartline_command(&self, benchmark: &Benchmark, quick: bool) -> Command {
        let mut command = self.hartline("run");
        for name in benchmark.inputs(quick) {
            let file = self.input().join(name);
            command
                .arg("--volume")
                .arg(format!("{}:/{name}:ro", file.display()));
        }
        match benchmark.program {
            Program::Static(_) => command.arg(self.riscv64(benchmark.program)),
            Program::Debian(name) => command
                .arg("--rootfs")
                .arg(self.root("riscv64", name))
                .arg(usr_bin(name)),
            // Its threads compile and collect garbage beside the program, as they do natively.
            Program::Jit(name) => command
                .args(["--cpus", "2", "--mem", "2G", "--rootfs"])
                .arg(self.directory.join("roots/riscv64/jit.erofs"))
                .arg(usr_bin(name)),
            Program::Script(name) => command
                .arg("--rootfs")
                .arg(self.root("riscv64", name))
                .arg(format!("/{SHELL}")),
        };
        command
    }
}

/// Returns the path of a program in its root directory.
fn usr_bin(name: &str) -> PathBuf {
    Path::new("/usr/bin").join(name)
}

/// Returns the files in a folder that are `wanted`.
fn files_of(folder: &Path, wanted: impl Fn(&Path) -> bool) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if wanted(&path) && path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

/// Runs a command to its end, without input and in the environment that all ways share.
pub fn finish(command: &mut Command) -> anyhow::Result<Output> {
    command
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .output()
        .with_context(|| format!("cannot start {:?}", command.get_program()))
}

/// Returns the last line of a program's standard error.
pub fn last_line(output: &Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr);
    message.lines().last().unwrap_or("no message").to_owned()
}

/// Runs a program to its end.
///
/// # Errors
/// It cannot be started or fails.
pub fn run(command: &mut Command, way: Way) -> anyhow::Result<Output> {
    let output = finish(command)?;
    if !output.status.success() {
        let (way, status) = (way.name(), output.status);
        bail!("{way}: {status}: {}", last_line(&output));
    }
    Ok(output)
}

/// Parses the output of a program that prints nanoseconds.
///
/// # Errors
/// The output is no number.
pub fn nanoseconds(output: &Output) -> anyhow::Result<f64> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .with_context(|| format!("it printed {text:?}"))
}
