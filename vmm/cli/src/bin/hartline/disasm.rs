//! `hartline disasm`: the code of a program before, during and after translation.

use crate::translation::{Translation, Variant};
use anyhow::Context;
use hartline_aot::technique::Technique;
use hartline_aot::translate::Stage;
use hartline_aot::translator::Translator;
use hartline_vmm::program;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `hartline disasm`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Translate without a technique, to measure its effect (repeatable)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    disable: Vec<Technique>,
    #[command(flatten)]
    variant: Variant,
    /// Print a stage of translation instead of RISC-V and x86-64 side by side
    #[arg(long, value_enum, value_name = "STAGE")]
    emit: Option<Emit>,
    /// The riscv64 file
    elf: PathBuf,
    /// A function, by name or 0x address [default: all]
    symbol: Option<String>,
}

/// Values of `--emit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Emit {
    /// LLVM IR as lifted
    Ir,
    /// LLVM IR after optimisation
    Opt,
    /// x86-64 assembly
    Asm,
}

/// Print the code on standard output.
///
/// # Errors
/// The file is no riscv64 program, has no such function, or LLVM failed.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let path = &arguments.elf;
    let elf = program::read(path)?;
    let translation = Translation::for_looking(&arguments.disable)?;
    let name = || path.display().to_string();
    let options = translation.options(arguments.variant.number());
    let translator = Translator::new(&elf, &options).with_context(name)?;
    let symbol = arguments.symbol.as_deref();
    let mut output = BufWriter::new(io::stdout().lock());
    let mut written = Ok(());
    match arguments.emit {
        None => translator
            .disassemble(symbol, |text| {
                if written.is_ok() {
                    written = output.write_all(text.as_bytes());
                }
            })
            .with_context(name)?,
        Some(emit) => {
            let stage = match emit {
                Emit::Ir => Stage::Ir,
                Emit::Opt => Stage::Optimised,
                Emit::Asm => Stage::Assembly,
            };
            let text = translator.emit(symbol, stage).with_context(name)?;
            written = output.write_all(text.as_bytes());
        }
    }
    match written.and_then(|()| output.flush()) {
        // A closed pager is no failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
