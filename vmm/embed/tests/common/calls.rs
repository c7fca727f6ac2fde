//! A C program that exports functions.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Compiles it into a directory.
pub fn program(directory: &TempDir) -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = directory.path().join("calls");
    let compiled = Command::new("riscv64-linux-gnu-gcc")
        .args(["-std=gnu17", "-O2", "-static", "-I"])
        .arg(repository.join("guest-runtime/sdk"))
        .arg(repository.join("tests/programs/alone/calls.c"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(compiled.is_ok_and(|status| status.success()));
    program
}
