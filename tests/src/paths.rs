//! Paths of the checkout, the target directory and fetched programs.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the root of the checkout.
pub fn repository() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.parent().unwrap_or(crate_folder).to_path_buf()
}

/// Returns cargo's target directory for the running test, however it was chosen.
///
/// Test programs are at `TARGET/[TRIPLE/]PROFILE/deps/NAME`; both `TARGET` and `TRIPLE` contain
/// cargo's `CACHEDIR.TAG`.
pub fn target() -> PathBuf {
    let program = env::current_exe().expect("the running program has a path");
    program
        .ancestors()
        .filter(|folder| folder.join("CACHEDIR.TAG").exists())
        .last()
        .map_or_else(|| repository().join("target"), Path::to_path_buf)
}

/// Returns the folder for files that tests make: guest programs, trees, translations.
pub fn work() -> PathBuf {
    target().join("hartline-tests")
}

/// Debian's riscv64 packages, unpacked.
pub fn debian_riscv64() -> PathBuf {
    repository().join(".debian/riscv64")
}

/// Debian's gdb for riscv64 with all that it needs, unpacked.
pub fn debian_gdb() -> PathBuf {
    repository().join(".debian/gdb")
}

/// Debian's amd64 packages, unpacked.
pub fn debian_amd64() -> PathBuf {
    repository().join(".debian/amd64")
}

/// Debian's riscv64 busybox, statically linked and stripped.
pub fn busybox() -> PathBuf {
    debian_riscv64().join("usr/bin/busybox")
}

/// Debian's Chromium in a root file system of its own, if it was fetched.
pub fn browser() -> Option<PathBuf> {
    let root = repository().join(".debian/browser");
    let program = root.join("usr/lib/chromium/chromium-headless-shell");
    program.exists().then_some(root)
}

/// Debian's Prometheus, unpacked, if it was fetched.
pub fn monitoring() -> Option<PathBuf> {
    let programs = repository().join(".debian/monitoring/usr/bin");
    programs.join("promtool").exists().then_some(programs)
}
