//! Builds the guest runtime, which the VMM embeds, by a nested cargo: it has the
//! host's target but other flags, since it is no Linux program.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Sources of the runtime, relative to the workspace.
const SOURCES: [&str; 6] = [
    "guest-runtime/Cargo.toml",
    "guest-runtime/src",
    "guest-runtime/abi",
    "guest-runtime/linux",
    "aot/isa",
    "Cargo.lock",
];
/// Linked at `hartline_abi::layout::RUNTIME_BASE`, each segment at the start of 2 MiB pages of its own:
/// every VM takes as few of them as possible. Position-independent code, because that is above 4 GiB.
/// Equal functions, such as those of collections whose elements have the same layout, are linked once: nothing
/// compares their addresses.
const FLAGS: [&str; 12] = [
    "-Crelocation-model=pic",
    "-Clink-arg=-nostartfiles",
    "-Clink-arg=-nostdlib",
    "-Clink-arg=-static",
    "-Clink-arg=-no-pie",
    "-Clink-arg=-Wl,--image-base=0x10000000000",
    "-Clink-arg=-Wl,-z,max-page-size=0x200000",
    "-Clink-arg=-Wl,-z,separate-loadable-segments",
    "-Clink-arg=-Wl,-z,norelro",
    "-Clink-arg=-Wl,--build-id=none",
    "-Clink-arg=-Wl,--strip-debug",
    "-Clink-arg=-Wl,--icf=all",
];

fn main() -> Result<(), Box<dyn Error>> {
    let workspace = Path::new(&env::var("CARGO_MANIFEST_DIR")?)
        .join("../..")
        .canonicalize()?;
    for source in SOURCES {
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join(source).display()
        );
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let target_dir = target(&out).join("runtime");
    let status = Command::new(env::var("CARGO")?)
        .current_dir(&workspace)
        .args([
            "build",
            "--profile",
            "runtime",
            "--quiet",
            "--target",
            TARGET,
            "--target-dir",
        ])
        .arg(&target_dir)
        .args([
            "--package",
            "hartline-guest",
            "--bin",
            "hartline-runtime",
            "--features",
            "image",
        ])
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"))
        // Set when this is a build by clippy, which is not for code that is run.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !status.success() {
        return Err("the guest runtime does not build".into());
    }
    let built = target_dir.join(TARGET).join("runtime/hartline-runtime");
    let runtime = out.join("hartline-runtime");
    fs::copy(built, &runtime)?;
    println!("cargo::rustc-env=HARTLINE_RUNTIME={}", runtime.display());
    Ok(())
}

/// The outermost target directory around a package's directory. Clippy, builds and the fuzz targets
/// have different directories for packages, but need the same runtime: it is built once, in a folder
/// that they share. The nested cargo locks it.
fn target(out: &Path) -> &Path {
    let is_target = |folder: &&Path| folder.join("CACHEDIR.TAG").exists();
    out.ancestors().filter(is_target).last().unwrap_or(out)
}
