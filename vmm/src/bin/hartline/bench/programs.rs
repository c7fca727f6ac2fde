//! The benchmarks, and how one is started in each of the three ways.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One benchmark: a program of the directory that `tests/bench/build.sh` makes.
#[derive(Debug, Clone, Copy)]
pub struct Benchmark {
    /// Its name in results and for `--only`.
    pub name: &'static str,
    /// File name of the program, the same for both architectures.
    pub program: &'static str,
    arguments: &'static [&'static str],
    /// Arguments of `--quick`.
    quick: &'static [&'static str],
}

/// All of them. Each takes a good part of a second natively, except sha256sum, where
/// the native busybox uses the processor's SHA instructions.
pub const BENCHMARKS: [Benchmark; 17] = [
    Benchmark {
        name: "busybox-sha256sum",
        program: "busybox",
        arguments: &["sha256sum", "logs.txt", "logs.txt", "logs.txt"],
        quick: &["sha256sum", "logs-quick.txt"],
    },
    Benchmark {
        name: "busybox-gzip",
        program: "busybox",
        arguments: &["gzip", "-c", "logs.txt"],
        quick: &["gzip", "-c", "logs-quick.txt"],
    },
    Benchmark {
        name: "busybox-awk",
        program: "busybox",
        arguments: &["awk", "-f", "report.awk", "logs.txt"],
        quick: &["awk", "-f", "report.awk", "logs-quick.txt"],
    },
    Benchmark {
        name: "secp256k1-verify",
        program: "secp256k1",
        arguments: &["20000"],
        quick: &["2000"],
    },
    Benchmark {
        name: "calls",
        program: "kernels",
        arguments: &["calls", "10"],
        quick: &["calls", "1"],
    },
    Benchmark {
        name: "indirect-calls",
        program: "kernels",
        arguments: &["indirect", "25"],
        quick: &["indirect", "2"],
    },
    Benchmark {
        name: "chase",
        program: "kernels",
        arguments: &["chase", "40"],
        quick: &["chase", "2"],
    },
    Benchmark {
        name: "fibonacci",
        program: "kernels",
        arguments: &["fibonacci", "100"],
        quick: &["fibonacci", "3"],
    },
    Benchmark {
        name: "interpreter",
        program: "kernels",
        arguments: &["interpreter", "250"],
        quick: &["interpreter", "5"],
    },
    Benchmark {
        name: "mixed",
        program: "kernels",
        arguments: &["mixed", "8000"],
        quick: &["mixed", "200"],
    },
    Benchmark {
        name: "quicksort",
        program: "kernels",
        arguments: &["quicksort", "11"],
        quick: &["quicksort", "1"],
    },
    Benchmark {
        name: "search",
        program: "kernels",
        arguments: &["search", "35"],
        quick: &["search", "2"],
    },
    Benchmark {
        name: "sieve",
        program: "kernels",
        arguments: &["sieve", "90"],
        quick: &["sieve", "3"],
    },
    Benchmark {
        name: "fft",
        program: "kernels",
        arguments: &["fft", "1200"],
        quick: &["fft", "20"],
    },
    Benchmark {
        name: "mandelbrot",
        program: "kernels",
        arguments: &["mandelbrot", "15"],
        quick: &["mandelbrot", "1"],
    },
    Benchmark {
        name: "matmul",
        program: "kernels",
        arguments: &["matmul", "130"],
        quick: &["matmul", "3"],
    },
    Benchmark {
        name: "nbody",
        program: "kernels",
        arguments: &["nbody", "320"],
        quick: &["nbody", "8"],
    },
];

/// A way to run the same program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The x86-64 program itself.
    Native,
    /// The riscv64 program under Debian's qemu-riscv64.
    Qemu,
    /// The riscv64 program under this very `hartline`.
    Hartline,
}

impl Way {
    /// In the order in which they alternate.
    pub const ALL: [Self; 3] = [Self::Native, Self::Qemu, Self::Hartline];

    /// For messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Qemu => "qemu-riscv64",
            Self::Hartline => "hartline",
        }
    }
}

/// The directory made by `tests/bench/build.sh`.
#[derive(Debug)]
pub struct Programs {
    directory: PathBuf,
    hartline: PathBuf,
}

impl Programs {
    /// Check that everything that `benchmarks` need is there.
    ///
    /// # Errors
    /// Names the first file that is missing.
    pub fn open(directory: &Path, benchmarks: &[Benchmark]) -> anyhow::Result<Self> {
        let hint = "make bench-programs prepares it";
        let found = directory
            .canonicalize()
            .with_context(|| format!("{}: no benchmark programs ({hint})", directory.display()))?;
        let programs = Self {
            directory: found,
            hartline: std::env::current_exe().context("cannot find the hartline program")?,
        };
        let mut needed = vec![programs.directory.join("qemu-riscv64")];
        for benchmark in benchmarks {
            needed.push(programs.native(benchmark));
            needed.push(programs.riscv64(benchmark));
            needed.extend(programs.inputs(benchmark, true));
            needed.extend(programs.inputs(benchmark, false));
        }
        for file in needed {
            if !file.is_file() {
                bail!("{}: missing ({hint})", file.display());
            }
        }
        Ok(programs)
    }

    fn native(&self, benchmark: &Benchmark) -> PathBuf {
        self.directory.join("native").join(benchmark.program)
    }

    fn riscv64(&self, benchmark: &Benchmark) -> PathBuf {
        self.directory.join("riscv64").join(benchmark.program)
    }

    /// Input files: the arguments that have a file extension.
    fn inputs(&self, benchmark: &Benchmark, quick: bool) -> Vec<PathBuf> {
        let mut names: Vec<_> = benchmark.arguments(quick).to_vec();
        names.retain(|name| name.ends_with(".txt") || name.ends_with(".awk"));
        names.sort_unstable();
        names.dedup();
        let input = self.directory.join("input");
        names.iter().map(|name| input.join(name)).collect()
    }

    /// Translate the program of `benchmark`, so that no measured run does.
    ///
    /// # Errors
    /// `hartline build` fails.
    pub fn translate(&self, benchmark: &Benchmark) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let output = Command::new(&self.hartline)
            .arg("build")
            .arg(self.riscv64(benchmark))
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", self.hartline.display()))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            let line = message.lines().last().unwrap_or("no message");
            bail!("{}: not translated: {line}", benchmark.program);
        }
        Ok(start.elapsed())
    }

    /// Run `benchmark` to its end: how long that took, and its standard output.
    ///
    /// # Errors
    /// It cannot be started or does not exit with 0.
    pub fn run(
        &self,
        benchmark: &Benchmark,
        way: Way,
        quick: bool,
    ) -> anyhow::Result<(Duration, Vec<u8>)> {
        let mut command = match way {
            Way::Native => Command::new(self.native(benchmark)),
            Way::Qemu => {
                let mut command = Command::new(self.directory.join("qemu-riscv64"));
                command.arg(self.riscv64(benchmark));
                command
            }
            Way::Hartline => self.hartline(benchmark, quick),
        };
        command
            .args(benchmark.arguments(quick))
            .current_dir(self.directory.join("input"))
            .stdin(Stdio::null());
        let start = Instant::now();
        let output = command
            .output()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let elapsed = start.elapsed();
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            let line = message.lines().last().unwrap_or("no message");
            let (name, way) = (benchmark.name, way.name());
            bail!("{name}: {way}: {}: {line}", output.status);
        }
        Ok((elapsed, output.stdout))
    }

    /// `hartline run` with each input file as a volume in the guest's working directory.
    fn hartline(&self, benchmark: &Benchmark, quick: bool) -> Command {
        let mut command = Command::new(&self.hartline);
        command.arg("run");
        for input in self.inputs(benchmark, quick) {
            let name = input.file_name().unwrap_or_default().to_string_lossy();
            command
                .arg("--volume")
                .arg(format!("{}:/{name}:ro", input.display()));
        }
        command.arg(self.riscv64(benchmark));
        command
    }
}

impl Benchmark {
    fn arguments(&self, quick: bool) -> &'static [&'static str] {
        if quick { self.quick } else { self.arguments }
    }
}
