//! The `hartline` command.

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

mod bench;
mod build;
mod debug_dir;
mod disasm;
mod doctor;
mod gdb_listener;
mod inspect;
mod man;
mod meter;
mod percentiles;
mod perf_data;
mod place;
#[cfg(feature = "client")]
mod remote;
mod run;
mod serve;
mod variant;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use hartline_cli::command_line;
use std::io::{self, Write};
use std::process::ExitCode;

/// Run unmodified Linux/riscv64 programs on x86-64 in KVM virtual machines
#[derive(Debug, Parser)]
#[command(name = "hartline", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program in its own virtual machine
    Run(Box<run::Arguments>),
    /// Serve connections with VMs of a snapshot, which are reset after each connection
    Serve(serve::Arguments),
    /// Translate programs ahead of time, into the cache
    Build(build::Arguments),
    /// Show what the translator knows about a program
    Inspect(inspect::Arguments),
    /// Print RISC-V and x86-64 code side by side, or a stage of the translation
    Disasm(disasm::Arguments),
    /// Check whether this host can run programs, and how fast
    Doctor(doctor::Arguments),
    /// Add the function names of programs that ran with --perf-map to a file of perf record
    PerfData(perf_data::Arguments),
    /// Compare the speed with native programs and qemu-user, or measure the daemon
    Bench(bench::Arguments),
    #[cfg(feature = "client")]
    #[command(flatten)]
    Remote(remote::Command),
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands
    Man(man::Arguments),
}

fn main() -> ExitCode {
    hartline_vmm::report::abort_on_panic();
    let result = match Arguments::try_parse() {
        Ok(arguments) => match &arguments.command {
            Command::Run(arguments) => leave(run::main(arguments)),
            Command::Serve(arguments) => leave(serve::main(arguments)),
            Command::Build(arguments) => build::main(arguments),
            Command::Inspect(arguments) => inspect::main(arguments),
            Command::Disasm(arguments) => disasm::main(arguments),
            Command::Doctor(arguments) => doctor::main(arguments),
            Command::PerfData(arguments) => perf_data::main(arguments),
            Command::Bench(arguments) => bench::main(arguments),
            #[cfg(feature = "client")]
            Command::Remote(command) => remote::main(command),
            Command::Completions { shell } => completions(*shell),
            Command::Man(arguments) => man::main(arguments, Arguments::command()),
        },
        Err(error) => usage(&error),
    };
    result.unwrap_or_else(|error| ExitCode::from(failed(&error)))
}

/// Reports an error. Result: the exit code; exit codes of programs pass through.
fn failed(error: &anyhow::Error) -> u8 {
    say(&command_line::one_line(error.as_ref()));
    command_line::exit_code(error)
}

/// Prints the completions of a shell.
fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "hartline", &mut text);
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the process right after a run: other threads may still be translating, and exit handlers
/// would free LLVM's state under them.
fn leave(result: anyhow::Result<u8>) -> ! {
    let code = result.unwrap_or_else(|error| failed(&error));
    // SAFETY: the call ends all threads and runs no handlers of the C library, so nothing that they
    // use is freed before. Nothing is buffered, because runs write to descriptors.
    unsafe { libc::_exit(code.into()) }
}

/// Help and version go to standard output; a mistake becomes one line.
fn usage(error: &clap::Error) -> anyhow::Result<ExitCode> {
    if !error.use_stderr() {
        error.print()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut mistake = command_line::mistake(error, "hartline help");
    if cfg!(not(feature = "client")) && error.kind() == ErrorKind::InvalidSubcommand {
        mistake.push_str("; this hartline was built without the daemon's client");
    }
    say(&mistake);
    Ok(ExitCode::from(command_line::USAGE))
}

/// Writes a message to standard error. A closed standard error is no reason to fail.
fn say(message: &str) {
    let _ = writeln!(io::stderr(), "hartline: {message}");
}
