//! Compiles the policy of the jail to BPF programs, which the crate contains: each jailed process
//! needs them when it starts.

#[path = "src/policy.rs"]
mod policy;

use policy::{KINDS, Policy};
use seccompiler::{BpfProgram, TargetArch};
use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// `BPF_RET | BPF_K` (`linux/bpf_common.h`).
const RETURN: u16 = 0x06;
/// `SECCOMP_RET_TRAP` (`linux/seccomp.h`).
const TRAP: u32 = 0x0003_0000;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=src/policy.rs");
    println!("cargo::rerun-if-changed=src/policy.json");
    let filters = serde_json::to_vec(&Policy::read()?.filters())?;
    let compiled = seccompiler::compile_from_json(&filters[..], TargetArch::x86_64)?;
    // In a fixed order, so that equal sources give equal programs.
    let mut compiled: Vec<_> = compiled.into_iter().collect();
    compiled.sort_by(|one, other| one.0.cmp(&other.0));
    let mut text = "&[\n".to_owned();
    for (name, mut program) in compiled {
        if let Some(number) = KINDS.iter().position(|kind| *kind == name) {
            name_in_traps(&mut program, u32::try_from(number)? + 1);
        }
        write!(text, "({name:?}, &[")?;
        for line in program {
            let [code, jt, jf, k] = [line.code.into(), line.jt.into(), line.jf.into(), line.k];
            write!(text, "instruction({code}, {jt}, {jf}, {k}),")?;
        }
        text.push_str("]),\n");
    }
    text.push(']');
    fs::write(Path::new(&env::var("OUT_DIR")?).join("filters.rs"), text)?;
    Ok(())
}

/// Makes the kernel report in a `SIGSYS` which filter sent it.
fn name_in_traps(program: &mut BpfProgram, number: u32) {
    for line in program {
        if line.code == RETURN && line.k == TRAP {
            line.k |= number;
        }
    }
}
