//! Runs a riscv64 program in a virtual machine and prints its exit status:
//! `cargo run --release -p hartline-vmm --example embed -- PROGRAM [ARGUMENT…]`.
//!
//! The program is the only file in its file system. `Settings` has fields for more: devices,
//! volumes, limits, and translations. Without translations the guest interprets the code.

use hartline_vmm::boot::Arguments;
use hartline_vmm::interrupts::Mode;
use hartline_vmm::machine::{Blank, Settings};
use hartline_vmm::platform::Kvm;
use hartline_vmm::report::Program;
use hartline_vmm::{program, tree::TreeBuilder};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    println!("exit status {}", run(&words)?);
    Ok(())
}

/// Runs a program with its arguments. Result: its exit status, as a shell has it.
pub fn run(words: &[String]) -> Result<u8, Box<dyn Error>> {
    let name = words.first().ok_or("usage: embed PROGRAM [ARGUMENT…]")?;
    let mut builder = TreeBuilder::in_memory()?;
    builder.add_minimal()?;
    builder.add_file(Path::new(name), "/program")?;
    let tree = Arc::new(builder.build()?);
    let found = program::from_tree(&tree, Path::new("/program"), Path::new(name))?;
    let arguments = Arguments {
        program: found.file.inode(),
        path: b"/program".to_vec(),
        arguments: words.iter().map(|word| word.clone().into()).collect(),
        ..Arguments::default()
    };
    let settings = Settings {
        tree: Some(&tree),
        ..Settings::new(&arguments)
    };
    let kvm = Kvm::open(Path::new(Kvm::DEVICE))?;
    let outcome = Blank::new(kvm, settings.cpus, Mode::Safepoint)?.run(settings)?;
    let program = Program {
        name,
        elf: &found.bytes,
        locate: &|_| None,
        stack: &|_, _, _| Vec::new(),
    };
    let verdict = outcome.verdict(&program);
    eprint!("{}", verdict.message);
    Ok(verdict.code)
}
