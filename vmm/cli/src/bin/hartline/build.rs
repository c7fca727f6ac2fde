//! `hartline build`: translates programs ahead of time, into the cache.

use crate::meter::Meter;
use crate::variant::Variant;
use anyhow::Context;
use hartline_abi::image::variant;
use hartline_aot::technique::Technique;
use hartline_embed::ahead::{Made, Scope};
use hartline_embed::translation::Translation;
use hartline_tree::TreeBuilder;
use hartline_vmm::{libraries, program};
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Arguments of `hartline build`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Translate without a technique, to measure its effect (repeatable)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    disable: Vec<Technique>,

    #[command(flatten)]
    variant: Variant,

    /// Make the baseline translator's code, which first runs use until LLVM's code exists
    #[arg(long, hide = true, conflicts_with_all = ["disable", "ran", "all"])]
    baseline: bool,

    /// Translate all functions with LLVM. Without it, LLVM translates the functions that earlier runs
    /// have executed, and those that a guess calls warm: three tenths of the code. The baseline
    /// translator makes the code of the others, and LLVM follows while a program runs. The first run
    /// was up to 1.5 times as long as with this option
    #[arg(long, conflicts_with = "ran")]
    all: bool,

    /// Translate only functions that earlier runs of the program have translated (without
    /// --disable); the interpreter executes the others. For measurements of techniques that do not
    /// translate whole large programs
    #[arg(long)]
    ran: bool,

    /// Root file system: a directory or a tar file. Each ELF is the path of a program inside it;
    /// its program interpreter and its shared libraries are translated too
    #[arg(long, value_name = "DIR|TAR")]
    rootfs: Option<PathBuf>,

    /// riscv64 programs or shared libraries
    #[arg(required = true, value_name = "ELF")]
    programs: Vec<PathBuf>,
}

/// Translate each program that is not in the cache yet.
///
/// # Errors
/// A file is no riscv64 program, the features of this host cannot be found, the
/// translation fails, or the cache cannot be written.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let variant = arguments.variant.number();
    let builder = Builder {
        translation: Translation::for_this_host(&arguments.disable)?,
        variant: match arguments.baseline {
            true => variant::baseline_of(variant),
            false => variant,
        },
        makes_baseline: arguments.baseline,
        scope: match (arguments.all, arguments.ran) {
            (true, _) => Scope::All,
            (false, true) => Scope::Ran,
            (false, false) => Scope::Warm,
        },
    };
    match &arguments.rootfs {
        Some(root) => build_in_root(&builder, root, &arguments.programs)?,
        None => {
            for path in &arguments.programs {
                builder.build(path, &program::read(path)?)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The settings of the translation.
struct Builder {
    translation: Translation,
    variant: u32,
    /// The baseline translator makes everything.
    makes_baseline: bool,
    scope: Scope,
}

/// Translates programs of a root file system with all files that they load when they start.
fn build_in_root(builder: &Builder, root: &Path, programs: &[PathBuf]) -> anyhow::Result<()> {
    let mut tree = TreeBuilder::in_memory()?;
    tree.add_root(root)?;
    let tree = Arc::new(tree.build()?);
    let mut done = HashSet::new();
    for shown in programs {
        let path = Path::new("/").join(shown);
        let program = program::from_tree(&tree, &path, shown)?;
        let name = path.to_str().context("the program's name is not UTF-8")?;
        let libraries = libraries::of_program(&tree, name, &program.bytes)?;
        if done.insert(program.file.inode()) {
            builder.build(shown, &program.bytes)?;
        }
        for library in libraries {
            let path = library.path()?;
            if done.insert(library.inode()) {
                builder.build(&path, &library.bytes()?)?;
            }
        }
    }
    Ok(())
}

impl Builder {
    fn build(&self, path: &Path, elf: &[u8]) -> anyhow::Result<()> {
        let name = path.display().to_string();
        let start = Instant::now();
        let meter = Meter::new(&name);
        let image = match self.makes_baseline {
            true => self.translation.baseline(elf, self.variant, &meter),
            false => (self.translation).image(elf, self.variant, self.scope, &meter),
        };
        let image = image.with_context(|| name.clone())?;
        let seconds = start.elapsed().as_secs_f64();
        meter.finish();
        let megabytes = image.image.length as f64 / 1e6;
        let line = match image.made {
            None => format!("{name}: already translated, image of {megabytes:.1} MB"),
            Some(Made {
                functions,
                reused,
                of,
                instructions,
            }) => {
                let rate = instructions as f64 / seconds;
                let functions = match functions == of {
                    true => format!("{functions} functions"),
                    false => format!("{functions} of {of} functions by LLVM"),
                };
                let functions = match reused.functions {
                    0 => functions,
                    count => format!(
                        "{functions}, {count} of them reused ({} instructions)",
                        reused.instructions
                    ),
                };
                format!(
                    "{name}: {functions}, {instructions} instructions in {seconds:.2} s \
                 ({rate:.0}/s), image of {megabytes:.1} MB"
                )
            }
        };
        writeln!(io::stdout(), "{line}")?;
        Ok(())
    }
}
