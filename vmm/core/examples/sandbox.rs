//! Calls a function of a riscv64 program that exports it with `hartline.h`, and resets the VM after each call:
//! `cargo run --release -p hartline-vmm --example sandbox -- PROGRAM FUNCTION [INPUT…]`.
//!
//! As in the example `embed`, the program is the only file, and the guest interprets its code.

use hartline_vmm::boot::Arguments;
use hartline_vmm::exports::{Exports, Sandbox};
use hartline_vmm::interrupts::Mode;
use hartline_vmm::machine::{self, Blank, Outcome, Settings};
use hartline_vmm::platform::Kvm;
use hartline_vmm::{program, tree::TreeBuilder, tree::TreeImage};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The longest time of a call, and of the start.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, function, inputs @ ..] = &words[..] else {
        return Err("usage: sandbox PROGRAM FUNCTION [INPUT…]".into());
    };
    for output in call_each(name, function, inputs)? {
        println!("{}", String::from_utf8_lossy(&output));
    }
    Ok(())
}

/// Calls a function of the program with each input. No call finds anything of the one before. Result: the
/// outputs.
pub fn call_each(
    name: &str,
    function: &str,
    inputs: &[String],
) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let sandbox = start(name)?;
    // For programs that call it.
    sandbox
        .exports()
        .register("upper", |input| Ok(input.to_ascii_uppercase()));
    let mut outputs = Vec::new();
    for input in inputs {
        outputs.push(sandbox.call(function, input.as_bytes(), Some(LIMIT))?);
        sandbox.reset()?;
    }
    Ok(outputs)
}

/// Starts the program.
pub fn start(name: &str) -> Result<Sandbox, Box<dyn Error>> {
    let mut builder = TreeBuilder::in_memory()?;
    builder.add_minimal()?;
    builder.add_file(Path::new(name), "/program")?;
    let tree = Arc::new(builder.build()?);
    let found = program::from_tree(&tree, Path::new("/program"), Path::new(name))?;
    let arguments = Arguments {
        program: found.file.inode(),
        path: b"/program".to_vec(),
        arguments: vec![name.into()],
        ..Arguments::default()
    };
    let run = move |exports| run(exports, &tree, &arguments);
    Ok(Sandbox::start(Some(LIMIT), run)?)
}

/// The VM, on the sandbox's thread.
fn run(
    exports: Exports,
    tree: &Arc<TreeImage>,
    arguments: &Arguments,
) -> Result<Outcome, machine::Error> {
    let settings = Settings {
        tree: Some(tree),
        exports: Some(exports),
        ..Settings::new(arguments)
    };
    let kvm = Kvm::open(Path::new(Kvm::DEVICE))?;
    Blank::new(kvm, settings.cpus, Mode::Safepoint)?.run(settings)
}
