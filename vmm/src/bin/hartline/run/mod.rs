//! `hartline run`: one program in one VM.

mod locate;
mod options;
mod stats;

pub use options::Arguments;

use crate::meter::Meter;
use crate::translation::{Translated, Translation};
use anyhow::Context;
use hartline_abi::report::ExitReport;
use hartline_aot::translate::{Progress, Silent};
use hartline_vmm::boot;
use hartline_vmm::layout::{GuestFile, Image, Source};
use hartline_vmm::machine::{self, RUNTIME, Settings};
use hartline_vmm::program;
use hartline_vmm::report::{Program, judge};
use hartline_vmm::tree::TreeBuilder;
use options::StatsFormat;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Runs the program; the result is its exit code.
///
/// # Errors
/// Everything that keeps the VM from starting.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    arguments.check()?;
    let guest = load(arguments)?;
    let tree_length = guest
        .tree
        .metadata()
        .context("the root file system tree")?
        .len();
    let files = [
        GuestFile {
            what: "the program",
            source: Source::Bytes(&guest.program),
        },
        GuestFile {
            what: "the root file system",
            source: Source::File(&guest.tree, tree_length),
        },
    ];
    let translation = match arguments.interpret {
        true => None,
        false => Some(Translation::for_this_host()?),
    };
    let translated = match &translation {
        None => None,
        Some(translation) => Some(translate(translation, &guest.program, &arguments.program)?),
    };
    let images = translated.as_ref().map(|image| Image {
        file: &image.file,
        length: image.length,
        source: 0,
    });
    let settings = Settings {
        ram: arguments.memory,
        runtime: RUNTIME,
        files: &files,
        images: images.as_slice(),
        arguments: &guest_arguments(arguments, &guest.path),
        interpret_only: arguments.interpret,
        timeout: arguments.timeout,
        count: arguments.stats.is_some(),
    };
    let outcome = machine::run(&settings)?;
    let locate = |report: &ExitReport| {
        let (image, options) = (&translated.as_ref()?.file, translation.as_ref()?.options());
        locate::locate(report, &outcome.stack, &guest.program, image, options)
    };
    let name = arguments.program.display().to_string();
    let program = Program {
        name: &name,
        elf: &guest.program,
        locate: &locate,
    };
    let verdict = judge(&outcome.end, &program);
    if !verdict.message.is_empty() {
        crate::say(&verdict.message);
    }
    if let Some(format) = arguments.stats {
        let cached = translated.as_ref().map(|image| image.functions.is_none());
        let run = stats::Run {
            outcome: &outcome,
            wall: start.elapsed(),
            cached,
        };
        match format {
            StatsFormat::Table => run.print_table(),
            StatsFormat::Json => run.print_json()?,
        }
    }
    Ok(ExitCode::from(verdict.code))
}

/// The image of a program. Progress is shown on a terminal only, since standard error
/// is the program's.
fn translate(translation: &Translation, elf: &[u8], path: &Path) -> anyhow::Result<Translated> {
    let name = path.display().to_string();
    let meter = io::stderr().is_terminal().then(|| Meter::new(&name));
    let progress: &dyn Progress = match &meter {
        Some(meter) => meter,
        None => &Silent,
    };
    translation.image(elf, progress).context(name.clone())
}

/// What the VM is given.
struct Guest {
    /// The program's ELF file.
    program: Vec<u8>,
    /// Its path in the guest.
    path: PathBuf,
    /// The root file system tree.
    tree: File,
}

fn load(arguments: &Arguments) -> anyhow::Result<Guest> {
    let mut builder;
    let (program, path);
    match &arguments.rootfs {
        Some(root) => {
            builder = TreeBuilder::new()?;
            builder.add_root(root)?;
            (program, path) = (None, Path::new("/").join(&arguments.program));
        }
        None => {
            program = Some(program::from_host(&arguments.program)?);
            let name = arguments
                .program
                .file_name()
                .context("the program has no name")?;
            path = Path::new("/").join(name);
            builder = TreeBuilder::minimal()?;
            let guest_path = path.to_str().context("the program's name is not UTF-8")?;
            builder.add_file(&arguments.program, guest_path)?;
        }
    }
    for volume in &arguments.volumes {
        builder.graft(&volume.host, &volume.guest)?;
    }
    let tree = builder.build()?;
    let program = match program {
        Some(program) => program,
        None => program::from_tree(&tree, &path)?,
    };
    Ok(Guest {
        program,
        path,
        tree,
    })
}

fn guest_arguments(arguments: &Arguments, path: &Path) -> boot::Arguments {
    // As a shell would have it: the program as it was typed.
    let argv = std::iter::once(arguments.program.as_os_str())
        .chain(arguments.arguments.iter().map(AsRef::as_ref));
    boot::Arguments {
        path: path.as_os_str().as_bytes().to_vec(),
        arguments: argv.map(|a| a.as_bytes().to_vec()).collect(),
        environment: environment(arguments),
    }
}

/// `PATH`, `HOME` and `TERM` of the host, then `--env`, of which the last counts.
fn environment(arguments: &Arguments) -> Vec<Vec<u8>> {
    let inherited = ["PATH", "HOME", "TERM"].into_iter().filter_map(|name| {
        let value = std::env::var_os(name)?;
        Some([name.as_bytes(), b"=", value.as_bytes()].concat())
    });
    let given = arguments
        .environment
        .iter()
        .map(|pair| pair.as_bytes().to_vec());
    let mut result: Vec<Vec<u8>> = Vec::new();
    for pair in inherited.chain(given) {
        let name = |pair: &[u8]| pair.split(|&b| b == b'=').next().map(<[u8]>::to_vec);
        match result.iter_mut().find(|other| name(other) == name(&pair)) {
            Some(other) => *other = pair,
            None => result.push(pair),
        }
    }
    result
}
