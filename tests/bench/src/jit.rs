//! `hartline bench jit`: programs that make code at run time, with an empty cache and after it.

use super::cold::{self, Arguments};
use super::suite::Benchmark;
use super::suite::Group::General;
use super::suite::Program::Jit;
use std::process::ExitCode;

/// The start of each engine, and what it computes. Java's heap would depend on the machine's memory.
const BENCHMARKS: &[Benchmark] = &[
    Benchmark::new("node-start", General, Jit("node"), &["-e", "1"]),
    Benchmark::new("java-start", General, Jit("java"), &["-version"]),
    Benchmark::new("node-bodies", General, Jit("node"), &["/bench/bodies.js"]),
    Benchmark::new("node-text", General, Jit("node"), &["/bench/text.js"]),
    Benchmark::new("node-grid", General, Jit("node"), &["/bench/grid.js"]),
    Benchmark::new(
        "java-planets",
        General,
        Jit("java"),
        &["-Xmx512m", "-cp", "/bench", "Planets"],
    ),
    Benchmark::new(
        "java-words",
        General,
        Jit("java"),
        &["-Xmx512m", "-cp", "/bench", "Words"],
    ),
    Benchmark::new(
        "java-sieve",
        General,
        Jit("java"),
        &["-Xmx512m", "-cp", "/bench", "Sieve"],
    ),
    Benchmark::new("lua-matrix", General, Jit("luajit"), &["/bench/matrix.lua"]),
    Benchmark::new("lua-tables", General, Jit("luajit"), &["/bench/tables.lua"]),
    Benchmark::new(
        "pypy-waves",
        General,
        Jit("pypy3"),
        &["-I", "-B", "/bench/waves.py"],
    ),
    Benchmark::new(
        "pypy-rules",
        General,
        Jit("pypy3"),
        &["-I", "-B", "/bench/rules.py"],
    ),
];

/// Runs `hartline bench jit`.
///
/// # Errors
/// As [`cold::compare`].
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    cold::compare(arguments, BENCHMARKS, &["jit"])
}
