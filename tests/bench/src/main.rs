//! `hartline bench`: Hartline compared with native programs and with qemu-user.
//!
//! The `hartline` command starts this program, so that its users need not build it.

mod ablation;
mod cold;
mod compute;
mod debug;
mod disk;
mod io;
mod jit;
mod memory;
mod parallel;
mod programs;
mod results;
mod service;
mod snapshot;
mod suite;
mod syscalls;
mod threads;
mod versions;

use anyhow::Context;
use clap::{Parser, Subcommand};
use hartline_cli::command_line;
use hartline_vmm::report;
use std::io::{self as stdio, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare the speed with native programs and qemu-user, and measure the daemon
#[derive(Debug, Parser)]
#[command(name = "hartline-bench", bin_name = "hartline bench", version)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Compare computation: native code, qemu-riscv64 and Hartline run the same programs
    Compute(compute::Arguments),
    /// Measure first runs, with an empty cache, and second runs
    Cold(cold::Arguments),
    /// Compare programs that make code at run time, JavaScript, Java and Lua, as `cold` does
    Jit(cold::Arguments),
    /// Measure the effect of each technique of the translator
    Ablation(ablation::Arguments),
    /// Compare system calls: the same operations natively and under Hartline, with exits of the VM
    Syscalls(syscalls::Arguments),
    /// Measure whether threads keep several vCPUs busy, in translated code and in the interpreter
    Threads(threads::Arguments),
    /// Measure work in parts on two vCPUs, beside native threads and OpenMP
    Parallel(parallel::Arguments),
    /// Compare network servers: native code, qemu-riscv64 and a VM serve the same client
    Io(io::Arguments),
    /// Compare disks: a native program and a VM read 4 KiB at random offsets
    Disk(disk::Arguments),
    /// Measure programs that a debugger is attached to, beside the same without one
    Debug(debug::Arguments),
    /// Measure programs that go on from a snapshot, and calls and resets of a program
    Snapshot(snapshot::Arguments),
    /// Measure the daemon: times of runs, leaked resources, idle machines and restart (as root)
    Service(service::Arguments),
}

fn main() -> ExitCode {
    report::abort_on_panic();
    let result = match Arguments::try_parse() {
        Ok(arguments) => measure(&arguments.benchmark),
        Err(error) if error.use_stderr() => Err(anyhow::anyhow!(command_line::mistake(
            &error,
            "hartline bench --help"
        ))),
        Err(help) => help.print().map(|()| ExitCode::SUCCESS).map_err(Into::into),
    };
    result.unwrap_or_else(|error| {
        let message = command_line::one_line(error.as_ref());
        // A closed standard error must not become another failure.
        let _ = writeln!(stdio::stderr(), "hartline: {message}");
        ExitCode::from(report::FAILURE)
    })
}

fn measure(benchmark: &Benchmark) -> anyhow::Result<ExitCode> {
    match benchmark {
        Benchmark::Compute(arguments) => compute::main(arguments),
        Benchmark::Cold(arguments) => cold::main(arguments),
        Benchmark::Jit(arguments) => jit::main(arguments),
        Benchmark::Ablation(arguments) => ablation::main(arguments),
        Benchmark::Syscalls(arguments) => syscalls::main(arguments),
        Benchmark::Threads(arguments) => threads::main(arguments),
        Benchmark::Parallel(arguments) => parallel::main(arguments),
        Benchmark::Io(arguments) => io::main(arguments),
        Benchmark::Disk(arguments) => disk::main(arguments),
        Benchmark::Debug(arguments) => debug::main(arguments),
        Benchmark::Snapshot(arguments) => snapshot::main(arguments),
        Benchmark::Service(arguments) => service::main(arguments),
    }
}

/// Returns the path of the program `name` in the same build directory as this program.
///
/// # Errors
/// The program does not exist.
fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let path = own.with_file_name(name);
    anyhow::ensure!(
        path.is_file(),
        "{}: not found: hartline-bench measures the {name} beside it (make build)",
        path.display()
    );
    Ok(path)
}
