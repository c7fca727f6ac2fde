//! Links LLVM's static archives. llvm-sys can do it too, but asks `llvm-config`,
//! a program of the unpacked distribution that need not run on this machine.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Targets of LLVM other than x86: their archives are not needed.
const OTHER_TARGETS: &[&str] = &[
    "AArch64",
    "AMDGPU",
    "ARM",
    "AVR",
    "BPF",
    "Hexagon",
    "Lanai",
    "LoongArch",
    "M68k",
    "MSP430",
    "Mips",
    "NVPTX",
    "PowerPC",
    "RISCV",
    "SPIRV",
    "Sparc",
    "SystemZ",
    "VE",
    "WebAssembly",
    "XCore",
    "Xtensa",
    "BOLT",
    "Exegesis",
];

fn main() {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let libraries = manifest.join("../.toolchain/usr/lib/llvm-22/lib");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", libraries.display());
    println!("cargo:rustc-link-search=native={}", libraries.display());
    let archives = archives(&libraries);
    assert!(
        !archives.is_empty(),
        "no LLVM archives in {}: run `make setup`",
        libraries.display()
    );
    for name in archives {
        println!("cargo:rustc-link-lib=static:-bundle={name}");
    }
    for name in ["stdc++", "z", "zstd", "ffi"] {
        println!("cargo:rustc-link-lib=dylib={name}");
    }
}

/// Names of the archives to link, without `lib` and `.a`.
fn archives(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_prefix("lib")?.strip_suffix(".a")?.to_owned()))
        .filter(|name| {
            name.strip_prefix("LLVM")
                .is_some_and(|rest| !OTHER_TARGETS.iter().any(|target| rest.starts_with(target)))
        })
        .collect();
    names.sort();
    names
}
