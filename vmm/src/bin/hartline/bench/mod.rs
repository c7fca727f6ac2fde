//! `hartline bench`: Hartline compared with native programs and with qemu-user.

mod ablation;
mod compute;
mod disk;
mod io;
mod programs;
mod results;
mod service;
mod suite;
mod syscalls;
mod versions;

use std::process::ExitCode;

/// Arguments of `hartline bench`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, clap::Subcommand)]
enum Benchmark {
    /// Computation: the same programs as native code, under qemu-riscv64 and under Hartline
    Compute(compute::Arguments),
    /// Techniques of the translator: what each is worth on the same programs
    Ablation(ablation::Arguments),
    /// System calls: the same operations natively and under Hartline, with exits of the VM
    Syscalls(syscalls::Arguments),
    /// Network: a server as native code, under qemu-riscv64 and in a VM, and its client
    Io(io::Arguments),
    /// Disks: 4 KiB reads at random places by a native program and in a VM
    Disk(disk::Arguments),
    /// The daemon: times of runs, what is left of them, idle machines, restart (as root)
    Service(service::Arguments),
}

/// Run the benchmark and print its results.
///
/// # Errors
/// A program is missing, fails, or prints something else in one of the three ways.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.benchmark {
        Benchmark::Compute(arguments) => compute::main(arguments),
        Benchmark::Ablation(arguments) => ablation::main(arguments),
        Benchmark::Syscalls(arguments) => syscalls::main(arguments),
        Benchmark::Io(arguments) => io::main(arguments),
        Benchmark::Disk(arguments) => disk::main(arguments),
        Benchmark::Service(arguments) => service::main(arguments),
    }
}
