//! `hartline disasm`: the code of a program before, during and after translation.

use crate::debug_dir::DebugDirectories;
use crate::variant::Variant;
use anyhow::Context;
use hartline_aot::technique::Technique;
use hartline_aot::translate::Stage;
use hartline_aot::translator::{SourceLine, Translator};
use hartline_debug::budget::Budget;
use hartline_debug::find;
use hartline_debug::module::Module;
use hartline_embed::translation::Translation;
use hartline_vmm::program;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
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
    /// Show the source line of the code in a first column
    #[arg(long, conflicts_with = "emit")]
    source: bool,
    #[command(flatten)]
    debug: DebugDirectories,
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
    let module = match arguments.source {
        true => Some(Sources::open(&elf, path, &arguments.debug).with_context(name)?),
        false => None,
    };
    let source = module.as_ref().map(|module| |address| module.line(address));
    match arguments.emit {
        None => translator
            .disassemble(
                symbol,
                source.as_ref().map(|source| source as SourceLine<'_>),
                |text| {
                    if written.is_ok() {
                        written = output.write_all(text.as_bytes());
                    }
                },
            )
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

/// The source of a program.
struct Sources {
    module: Module,
    /// Lines of files that are on this host.
    files: RefCell<HashMap<String, Vec<String>>>,
}

impl Sources {
    fn open(elf: &[u8], path: &Path, debug: &DebugDirectories) -> anyhow::Result<Self> {
        // Debug files beside a file of the host.
        let read = |path: &Path| find::read_host(path);
        let path = path.canonicalize()?;
        let budget = Budget::new(Budget::REPORT);
        let module = Module::open(elf, &path, &debug.files(Some(&read)), &budget)?;
        Ok(Self {
            module,
            files: RefCell::default(),
        })
    }

    /// Name and number of the line at an address, and its text if the file is there.
    fn line(&self, address: u64) -> Option<String> {
        /// Longest source file that is read, bytes.
        const LONGEST: usize = 16 << 20;
        let budget = Budget::new(Budget::REPORT);
        let locations = self.module.locations(address, &budget);
        let line = locations.into_iter().next()?.line?;
        let mut files = self.files.borrow_mut();
        let lines = files.entry(line.file.clone()).or_insert_with(|| {
            let bytes = find::read_host(line.file.as_ref()).filter(|bytes| bytes.len() <= LONGEST);
            let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).replace('\t', "    ");
            text.lines().map(str::to_owned).collect()
        });
        let number = usize::try_from(line.number).ok()?;
        let text = lines.get(number.checked_sub(1)?).map_or("", String::as_str);
        let text = text.trim().replace(char::is_control, "?");
        let name = line.file.rsplit('/').next().unwrap_or_default();
        Some(format!("{name}:{number} {text}"))
    }
}
