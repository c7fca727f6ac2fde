//! The list of benchmarks with their programs and arguments.

use Group::{Assembly, FloatingPoint, General};
use Program::{Debian, Script, Static};
use std::path::Path;

/// A group of benchmarks with a common purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Integers and pointers: the same source for both architectures.
    General,
    /// Double-precision arithmetic: the same source for both architectures.
    FloatingPoint,
    /// The x86-64 program uses hand-written assembly, or instructions without a RISC-V counterpart.
    /// Only the comparison with qemu is meaningful.
    Assembly,
}

/// Where a program comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// A statically linked file of this name, one for each architecture.
    Static(&'static str),
    /// Debian's `/usr/bin/NAME`, dynamically linked, in a separate root directory.
    Debian(&'static str),
    /// A shell script for busybox that starts Debian programs of the root directory with this name.
    /// Its arguments are the benchmark's, the folder with these programs, and the launcher of the
    /// programs.
    Script(&'static str),
    /// `/usr/bin/NAME` in the root directory `jit`, in which all ways start it, because it looks for
    /// its files at absolute paths.
    Jit(&'static str),
}

impl Program {
    /// Returns whether the program handles SIGSEGV, to report it, and so runs with the precise
    /// variant: redis, zstd and bzip2 do.
    pub const fn handles_faults(self) -> bool {
        match self {
            Self::Script(_) => true,
            Self::Debian(name) => matches!(name.as_bytes(), b"zstd" | b"bzip2"),
            Self::Static(_) | Self::Jit(_) => false,
        }
    }

    /// Returns the file name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Static(name) | Self::Debian(name) | Self::Script(name) | Self::Jit(name) => name,
        }
    }
}

/// One benchmark.
#[derive(Debug, Clone, Copy)]
pub struct Benchmark {
    /// The name in results and for `--filter`.
    pub name: &'static str,
    /// The group whose mean it counts for.
    pub group: Group,
    /// The program to run.
    pub program: Program,
    /// Arguments, of which the last one is repeated `times` times.
    full: &'static [&'static str],
    times: usize,
    /// Arguments for `--quick`.
    quick: &'static [&'static str],
}

impl Benchmark {
    /// Makes a benchmark with these arguments.
    pub const fn new(
        name: &'static str,
        group: Group,
        program: Program,
        arguments: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            group,
            program,
            full: arguments,
            times: 1,
            quick: arguments,
        }
    }

    /// Repeats the last argument, an input file, so that a run takes long enough.
    const fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Sets smaller arguments for `--quick`.
    const fn quickly(mut self, arguments: &'static [&'static str]) -> Self {
        self.quick = arguments;
        self
    }

    /// Returns the program's arguments, the `--quick` ones if `quick`.
    pub fn arguments(&self, quick: bool) -> Vec<&'static str> {
        if quick {
            return self.quick.to_vec();
        }
        let mut arguments = self.full.to_vec();
        if let Some(last) = self.full.last() {
            arguments.extend(std::iter::repeat_n(*last, self.times.saturating_sub(1)));
        }
        arguments
    }

    /// Returns the names of the input files: the words of the arguments that have a file extension,
    /// without absolute paths.
    pub fn inputs(&self, quick: bool) -> Vec<&'static str> {
        let words = self
            .arguments(quick)
            .into_iter()
            .flat_map(str::split_whitespace);
        let mut names: Vec<_> = words
            .filter(|word| Path::new(word).extension().is_some() && !word.starts_with('/'))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Selects the benchmarks that match one of `filters`; without any, all. The full name of a
/// benchmark selects that one alone; any other word selects each name that contains it.
pub fn select(filters: &[String]) -> Result<Vec<Benchmark>, String> {
    select_of(BENCHMARKS, filters)
}

/// As [`select`], from a list.
pub fn select_of(all: &[Benchmark], filters: &[String]) -> Result<Vec<Benchmark>, String> {
    let fits = |name: &str, filter: &String| {
        if all.iter().any(|benchmark| benchmark.name == filter) {
            name == filter
        } else {
            name.contains(filter.as_str())
        }
    };
    for filter in filters {
        if !all.iter().any(|benchmark| fits(benchmark.name, filter)) {
            let names: Vec<_> = all.iter().map(|benchmark| benchmark.name).collect();
            return Err(format!(
                "--filter {filter}: no such benchmark (there are {})",
                names.join(", ")
            ));
        }
    }
    let wanted = |benchmark: &&Benchmark| {
        filters.is_empty() || filters.iter().any(|filter| fits(benchmark.name, filter))
    };
    Ok(all.iter().filter(wanted).copied().collect())
}

/// The Mersenne prime 2¹²⁷⁹ − 1 in hexadecimal.
const PRIME: &str = "\
    7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\
    ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\
    ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\
    ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

/// All benchmarks. In the first two groups each takes 0.4 to 1.5 seconds natively.
pub const BENCHMARKS: &[Benchmark] = &[
    Benchmark::new(
        "busybox-gzip",
        General,
        Static("busybox"),
        &["gzip", "-c", "logs.txt"],
    )
    .quickly(&["gzip", "-c", "logs-quick.txt"]),
    Benchmark::new(
        "busybox-awk",
        General,
        Static("busybox"),
        &["awk", "-f", "report.awk", "logs.txt"],
    )
    .quickly(&["awk", "-f", "report.awk", "logs-quick.txt"]),
    Benchmark::new("secp256k1-verify", General, Static("secp256k1"), &["20000"]).quickly(&["2000"]),
    Benchmark::new("calls", General, Static("kernels"), &["calls", "10"]).quickly(&["calls", "1"]),
    Benchmark::new(
        "indirect-calls",
        General,
        Static("kernels"),
        &["indirect", "25"],
    )
    .quickly(&["indirect", "2"]),
    Benchmark::new("chase", General, Static("kernels"), &["chase", "40"]).quickly(&["chase", "2"]),
    Benchmark::new(
        "fibonacci",
        General,
        Static("kernels"),
        &["fibonacci", "100"],
    )
    .quickly(&["fibonacci", "3"]),
    Benchmark::new(
        "interpreter",
        General,
        Static("kernels"),
        &["interpreter", "250"],
    )
    .quickly(&["interpreter", "5"]),
    Benchmark::new("mixed", General, Static("kernels"), &["mixed", "8000"])
        .quickly(&["mixed", "200"]),
    Benchmark::new(
        "quicksort",
        General,
        Static("kernels"),
        &["quicksort", "11"],
    )
    .quickly(&["quicksort", "1"]),
    Benchmark::new("search", General, Static("kernels"), &["search", "35"])
        .quickly(&["search", "2"]),
    Benchmark::new("sieve", General, Static("kernels"), &["sieve", "90"]).quickly(&["sieve", "3"]),
    Benchmark::new(
        "sqlite3",
        General,
        Debian("sqlite3"),
        &[":memory:", ".read shop.sql"],
    ),
    Benchmark::new(
        "xz-compress",
        General,
        Debian("xz"),
        &["-T1", "-6", "-c", "corpus.txt"],
    ),
    Benchmark::new(
        "zstd-compress",
        General,
        Debian("zstd"),
        &[
            "-q",
            "--single-thread",
            "--no-asyncio",
            "-3",
            "-c",
            "corpus.txt",
        ],
    )
    .times(20),
    Benchmark::new(
        "bzip2-compress",
        General,
        Debian("bzip2"),
        &["-c", "corpus.txt"],
    )
    .times(2),
    Benchmark::new(
        "bzip2-decompress",
        General,
        Debian("bzip2"),
        &["-t", "corpus.bzip2"],
    )
    .times(5),
    Benchmark::new(
        "python3-floats",
        General,
        Debian("python3.13"),
        &["-I", "-S", "-B", "loops.py", "floats", "120000"],
    )
    .quickly(&["-I", "-S", "-B", "loops.py", "floats", "1000"]),
    Benchmark::new(
        "python3-objects",
        General,
        Debian("python3.13"),
        &["-I", "-S", "-B", "loops.py", "objects", "1000000"],
    )
    .quickly(&["-I", "-S", "-B", "loops.py", "objects", "10000"]),
    Benchmark::new(
        "python3-text",
        General,
        Debian("python3.13"),
        &["-I", "-S", "-B", "loops.py", "text", "40000"],
    )
    .quickly(&["-I", "-S", "-B", "loops.py", "text", "400"]),
    Benchmark::new("bc-pi", General, Debian("bc"), &["-l", "pi.bc"]),
    Benchmark::new("lua", General, Debian("lua5.4"), &["queens.lua", "50"])
        .quickly(&["queens.lua", "1"]),
    Benchmark::new(
        "perl-regex",
        General,
        Debian("perl"),
        &["log.pl", "5", "logs-quick.txt"],
    )
    .quickly(&["log.pl", "1", "logs-quick.txt"]),
    Benchmark::new(
        "redis",
        General,
        Script("redis"),
        &["sh", "redis.sh", "6000"],
    )
    .quickly(&["sh", "redis.sh", "200"]),
    Benchmark::new("fft", FloatingPoint, Static("kernels"), &["fft", "1200"])
        .quickly(&["fft", "20"]),
    Benchmark::new(
        "mandelbrot",
        FloatingPoint,
        Static("kernels"),
        &["mandelbrot", "15"],
    )
    .quickly(&["mandelbrot", "1"]),
    Benchmark::new(
        "matmul",
        FloatingPoint,
        Static("kernels"),
        &["matmul", "130"],
    )
    .quickly(&["matmul", "3"]),
    Benchmark::new("nbody", FloatingPoint, Static("kernels"), &["nbody", "320"])
        .quickly(&["nbody", "8"]),
    Benchmark::new(
        "busybox-sha256sum",
        Assembly,
        Static("busybox"),
        &["sha256sum", "logs.txt"],
    )
    .times(3)
    .quickly(&["sha256sum", "logs-quick.txt"]),
    Benchmark::new(
        "xz-decompress",
        Assembly,
        Debian("xz"),
        &["-T1", "-t", "corpus.xz"],
    )
    .times(20),
    Benchmark::new(
        "zstd-decompress",
        Assembly,
        Debian("zstd"),
        &["-q", "--single-thread", "--no-asyncio", "-t", "corpus.zstd"],
    )
    .times(20),
    Benchmark::new(
        "openssl-sha256",
        Assembly,
        Debian("openssl"),
        &[
            "kdf",
            "-keylen",
            "32",
            "-kdfopt",
            "digest:SHA256",
            "-kdfopt",
            "pass:hartline",
            "-kdfopt",
            "salt:kvm",
            "-kdfopt",
            "iter:500000",
            "PBKDF2",
        ],
    )
    .quickly(&[
        "kdf",
        "-keylen",
        "32",
        "-kdfopt",
        "digest:SHA256",
        "-kdfopt",
        "pass:hartline",
        "-kdfopt",
        "salt:kvm",
        "-kdfopt",
        "iter:10000",
        "PBKDF2",
    ]),
    Benchmark::new(
        "openssl-aes",
        Assembly,
        Debian("openssl"),
        &[
            "mac",
            "-cipher",
            "AES-256-CBC",
            "-macopt",
            "hexkey:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
            "-in",
            "logs.txt",
            "CMAC",
        ],
    )
    .quickly(&[
        "mac",
        "-cipher",
        "AES-256-CBC",
        "-macopt",
        "hexkey:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        "-in",
        "logs-quick.txt",
        "CMAC",
    ]),
    Benchmark::new(
        "openssl-bignum",
        Assembly,
        Debian("openssl"),
        &["prime", "-hex", PRIME],
    )
    .times(5),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_name_selects_one_and_a_part_several() {
        let names = |filter: &str| -> Vec<_> {
            let selected = select(&[filter.to_owned()]).unwrap();
            selected.iter().map(|benchmark| benchmark.name).collect()
        };
        assert_eq!(names("calls"), ["calls"]);
        assert_eq!(names("call"), ["calls", "indirect-calls"]);
        assert_eq!(select(&[]).unwrap().len(), BENCHMARKS.len());
        let error = select(&["nothing".to_owned()]).unwrap_err();
        assert!(error.contains("--filter nothing"), "{error}");
    }

    #[test]
    fn names_are_unique() {
        for (i, benchmark) in BENCHMARKS.iter().enumerate() {
            assert!(
                BENCHMARKS[..i]
                    .iter()
                    .all(|other| other.name != benchmark.name)
            );
        }
    }

    #[test]
    fn arguments_are_repeated_and_inputs_found() {
        let find = |name: &str| select(&[name.to_owned()]).unwrap()[0];
        let hash = find("busybox-sha256sum");
        assert_eq!(
            hash.arguments(false),
            ["sha256sum", "logs.txt", "logs.txt", "logs.txt"]
        );
        assert_eq!(hash.inputs(false), ["logs.txt"]);
        assert_eq!(hash.arguments(true), ["sha256sum", "logs-quick.txt"]);
        assert_eq!(find("sqlite3").inputs(false), ["shop.sql"]);
        assert!(find("calls").inputs(false).is_empty());
    }
}
