//! Links LLVM's static archives, and names this version of the translator.
//!
//! llvm-sys can link too, but runs `llvm-config`, a program of the unpacked distribution that may
//! not run on this machine.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

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
    let version = translator_version(&manifest).expect("the sources are readable");
    println!("cargo:rustc-env=HARTLINE_TRANSLATOR={version:016x}");
}

/// Hashes everything that code generation depends on: the sources, and the version of LLVM that is
/// linked. Images of another translator are not used.
fn translator_version(manifest: &Path) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for directory in ["src", "baseline/src", "isa/src", "../guest-runtime/abi/src"] {
        let directory = manifest.join(directory);
        println!("cargo:rerun-if-changed={}", directory.display());
        hash_files(&directory, &mut hasher)?;
    }
    let packages = manifest.join("../.toolchain/.unpacked");
    if packages.is_dir() {
        names(&packages)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn hash_files(directory: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
    for name in names(directory)? {
        let path = directory.join(&name);
        name.hash(hasher);
        if path.is_dir() {
            hash_files(&path, hasher)?;
        } else {
            fs::read(&path)?.hash(hasher);
        }
    }
    Ok(())
}

/// Returns the sorted names in a directory.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Returns the names of the archives to link, without `lib` and `.a`.
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
