//! `--perf-map`: gives `perf` the names of code that runs in the VM.

use super::ran::Ran;
use anyhow::Context;
use hartline_abi::layout::{IMAGE_BASE, PAGE_SIZE, STACK_BASE};
use hartline_vmm::machine::RUNTIME;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{process, ptr};

/// A function in the VM.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    start: u64,
    length: u64,
    name: String,
}

/// The path where `perf` looks for the map of this process.
fn default_path() -> PathBuf {
    format!("/tmp/perf-{}.map", process::id()).into()
}

/// Creates the file for the map, and makes `perf` find executable memory at the addresses of code
/// in the VM. Must be called before the VM runs.
///
/// # Errors
/// The file cannot be written, or the addresses are in use in this process.
pub fn prepare(path: Option<&Path>) -> anyhow::Result<File> {
    announce(&runtime()?.1)?;
    announce(&(IMAGE_BASE..STACK_BASE))?;
    let path = path.map_or_else(default_path, Path::to_path_buf);
    File::create(&path).with_context(|| path.display().to_string())
}

/// Writes the map of all code that ran.
///
/// # Errors
/// The file cannot be written.
pub fn write(mut file: File, ran: &Ran<'_>) -> anyhow::Result<()> {
    let (mut entries, _) = runtime()?;
    entries.extend(ran.functions().map(|(start, length, name)| Entry {
        start,
        length,
        name,
    }));
    file.write_all(text(entries).as_bytes())
        .context("--perf-map")
}

/// The functions of the guest runtime, and the address range of its code.
fn runtime() -> anyhow::Result<(Vec<Entry>, Range<u64>)> {
    let file = object::File::parse(RUNTIME).context("the guest runtime")?;
    let text = file
        .section_by_name(".text")
        .context("the guest runtime has no code")?;
    let entry = |symbol: object::Symbol<'_, '_>| Entry {
        start: symbol.address(),
        length: symbol.size(),
        name: match symbol.name() {
            Ok(name) => format!("[runtime] {:#}", rustc_demangle::demangle(name)),
            Err(_) => "[runtime]".to_owned(),
        },
    };
    let entries = file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() != 0)
        .map(entry)
        .collect();
    Ok((entries, text.address()..text.address() + text.size()))
}

/// The map in the format of `perf`: start and size in hexadecimal, and the name, sorted. Of several
/// functions at one address, one is kept.
fn text(entries: Vec<Entry>) -> String {
    let mut sorted: Vec<Entry> = entries
        .into_iter()
        .map(|entry| (entry.start, entry))
        .collect::<HashMap<_, _>>()
        .into_values()
        .collect();
    sorted.sort_unstable_by_key(|entry| entry.start);
    let mut text = String::new();
    for Entry {
        start,
        length,
        name,
    } in sorted
    {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{start:x} {length:x} {name}");
    }
    text
}

/// Maps unused executable memory at addresses of the VM: `perf` uses the map of a process only for
/// its executable anonymous memory. Nothing accesses it.
fn announce(range: &Range<u64>) -> anyhow::Result<()> {
    let start = range.start / PAGE_SIZE * PAGE_SIZE;
    let length = (range.end - start).next_multiple_of(PAGE_SIZE);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let (at, length) = (usize::try_from(start)?, usize::try_from(length)?);
    // SAFETY: the flags make the call fail if any address is in use, so no mapping is replaced.
    let mapped = unsafe {
        mmap_anonymous(
            ptr::without_provenance_mut(at),
            length,
            ProtFlags::EXEC,
            flags,
        )
    };
    mapped.with_context(|| format!("--perf-map: memory at {start:#x}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_has_functions() {
        let (entries, code) = runtime().unwrap();
        assert!(entries.len() > 100);
        assert!(entries.iter().all(|entry| code.contains(&entry.start)));
        let text = text(entries);
        assert!(text.contains("dispatch"), "{text}");
        let starts = text.lines().map(|line| {
            let start = line.split(' ').next().unwrap();
            u64::from_str_radix(start, 16).unwrap()
        });
        assert!(starts.is_sorted_by(|a, b| a < b));
    }
}
