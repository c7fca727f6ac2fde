//! The files that a program of a root file system tree loads when it starts: its program
//! interpreter and its shared libraries (System V ABI, "Dynamic Linking"). They are searched where
//! glibc's loader searches without a cache or environment variables.

use crate::program::{Bytes, TreeFile};
use crate::tree::TreeImage;
use hartline_abi::elf::{Program, kind};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// Default search path for libraries.
const DEFAULT_FOLDERS: [&str; 4] = [
    "/lib/riscv64-linux-gnu",
    "/usr/lib/riscv64-linux-gnu",
    "/lib",
    "/usr/lib",
];
/// Most libraries of one program.
const MAX_LIBRARIES: usize = 1024;

/// Finds the interpreter and the libraries of the program at `path` of `tree`, whose contents are
/// `elf`, each once. Missing or damaged files are left out: the loader will report them.
///
/// # Errors
/// The tree cannot be read.
pub fn of_program(tree: &Arc<TreeImage>, path: &str, elf: &[u8]) -> io::Result<Vec<TreeFile>> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut pending = vec![(path.to_owned(), Bytes::from(elf.to_vec()))];
    while let Some((path, elf)) = pending.pop() {
        let Ok(program) = Program::parse(&elf) else {
            continue;
        };
        for candidates in wanted(&program, &path) {
            let Some((path, file)) = first(tree, candidates)? else {
                continue;
            };
            if found.len() < MAX_LIBRARIES && seen.insert(file.inode()) {
                pending.push((path, file.bytes()?));
                found.push(file);
            }
        }
    }
    Ok(found)
}

/// The first regular file of these paths.
fn first(tree: &Arc<TreeImage>, candidates: Vec<String>) -> io::Result<Option<(String, TreeFile)>> {
    for path in candidates {
        if let Some(file) = TreeFile::find(tree, path.as_bytes())?
            && file.is_regular()
        {
            return Ok(Some((path, file)));
        }
    }
    Ok(None)
}

/// The needed files of the file at `path`: for each, the candidate paths.
fn wanted(program: &Program<'_>, path: &str) -> Vec<Vec<String>> {
    let mut wanted = Vec::new();
    if let Some(interpreter) = program.interpreter() {
        wanted.push(vec![String::from_utf8_lossy(interpreter).into_owned()]);
    }
    let dynamic = dynamic(program);
    let value = |wanted| dynamic.iter().find(|(tag, _)| *tag == wanted);
    let Some(&(_, strings)) = value(DT_STRTAB) else {
        return wanted;
    };
    let string = |offset: u64| string(program, strings.checked_add(offset)?);
    let origin = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let run_path = value(DT_RUNPATH).or_else(|| value(DT_RPATH));
    let run_path = run_path.and_then(|&(_, offset)| string(offset));
    let folders: Vec<String> = run_path
        .iter()
        .flat_map(|list| list.split(':'))
        .filter(|folder| !folder.is_empty())
        .map(|folder| {
            folder
                .replace("${ORIGIN}", origin)
                .replace("$ORIGIN", origin)
        })
        .chain(DEFAULT_FOLDERS.map(str::to_owned))
        .collect();
    for (_, offset) in dynamic.iter().filter(|(tag, _)| *tag == DT_NEEDED) {
        let Some(name) = string(*offset) else {
            continue;
        };
        wanted.push(match name.contains('/') {
            true => vec![name],
            false => folders.iter().map(|f| format!("{f}/{name}")).collect(),
        });
    }
    wanted
}

/// Tags and values of the dynamic section.
fn dynamic(program: &Program<'_>) -> Vec<(u64, u64)> {
    let Some(header) = program.header(kind::DYNAMIC) else {
        return Vec::new();
    };
    let bytes = memory(program, header.vaddr).unwrap_or_default();
    let length = usize::try_from(header.mem_size).unwrap_or(usize::MAX);
    let (words, _) = bytes[..length.min(bytes.len())].as_chunks::<8>();
    let (records, _) = words.as_chunks::<2>();
    let records = records.iter().map(|record| record.map(u64::from_le_bytes));
    records
        .map(|[tag, value]| (tag, value))
        .take_while(|(tag, _)| *tag != DT_NULL)
        .collect()
}

/// The file's bytes from a link-time address to the end of its segment.
fn memory<'a>(program: &Program<'a>, address: u64) -> Option<&'a [u8]> {
    let segment = program
        .segments()
        .find(|segment| segment.contains(address))?;
    let offset = usize::try_from(address - segment.vaddr).ok()?;
    program.segment_bytes(&segment).get(offset..)
}

/// The NUL-terminated string at a link-time address.
fn string(program: &Program<'_>, address: u64) -> Option<String> {
    let bytes = memory(program, address)?;
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}
