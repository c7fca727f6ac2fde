//! Programs whose interpreter (the dynamic loader) is missing or wrong.

use super::check_refusal;
use hartline_tests::elf::{Elf, field, segment};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline, process};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// `p_type` of a program interpreter.
const PT_INTERP: u64 = 3;

/// The path of the program interpreter in all rows.
const PATH: &[u8] = b"/lib/ld.so\0";

/// Name, contents of [`PATH`] in the root directory, words of the error.
type Row = (&'static str, fn(Elf) -> Vec<u8>, &'static [&'static str]);

const INTERPRETERS: &[Row] = &[
    (
        "is no ELF file",
        |_| b"#!/bin/sh\n".to_vec(),
        &["not an elf file"],
    ),
    (
        "is for another machine",
        |elf| elf.with(field::MACHINE, 2, 62).bytes,
        &["not for risc-v"],
    ),
    (
        "is truncated",
        |elf| elf.truncated(100).bytes,
        &["truncated", "end"],
    ),
    (
        "has no entry point",
        |elf| elf.with(field::ENTRY, 8, 0).bytes,
        &["no entry point"],
    ),
];

/// Name, the path as the file contains it, words of the error.
const PATHS: &[(&str, &[u8], &[&str])] = &[
    (
        "is missing",
        PATH,
        &["the interpreter /lib/ld.so, which is missing in the root file system\n"],
    ),
    ("is a directory", b"/lib\0", &["not a regular file"]),
    ("has an unterminated path", b"/lib/ld.so", &["interpreter"]),
    ("has an empty path", b"\0", &["interpreter"]),
    ("has too long a path", &[b'/'; 5000], &["interpreter"]),
];

pub fn add(suite: &mut Suite) {
    for (name, contents, words) in INTERPRETERS {
        suite.add_kvm(format!("run: interpreter {name}"), || {
            let loader = contents(Elf::position_independent()?);
            check_refusal(
                &run(with_interpreter(Elf::good()?, PATH)?, Some(&loader))?,
                words,
            )
        });
    }
    for (name, path, words) in PATHS {
        suite.add_kvm(format!("run: interpreter {name}"), || {
            check_refusal(&run(with_interpreter(Elf::good()?, path)?, None)?, words)
        });
    }
    suite.add_kvm("run: interpreter's path is cut off", || {
        let elf = with_interpreter(Elf::good()?, PATH)?;
        let length = elf.bytes.len();
        check_refusal(
            &run(elf.truncated(length - 1), None)?,
            &["truncated", "end"],
        )
    });
    suite.add_kvm("run: interpreter is not executable", || {
        let loader = Elf::position_independent()?.bytes;
        let program = with_interpreter(Elf::good()?, PATH)?;
        check_refusal(
            &run_with_mode(program, Some(&loader), 0o644)?,
            &["not executable"],
        )
    });
    suite.add_kvm("run: two interpreters, of which the first counts", || {
        let elf = with_interpreter(Elf::position_independent()?, b"/first\0")?;
        check_refusal(&run(with_interpreter(elf, PATH)?, None)?, &["/first"])
    });
    suite.add_kvm("run: a good interpreter", || {
        let loader = Elf::position_independent()?.bytes;
        let outcome = run(with_interpreter(Elf::good()?, PATH)?, Some(&loader))?;
        // The loader is the valid program itself: it writes, exits, and starts nothing.
        match (outcome.code, outcome.stdout.as_slice()) {
            (7, b"ok\n") => Ok(()),
            _ => Err(format!("{outcome:?}").into()),
        }
    });
}

/// Makes an unneeded program header name a program interpreter.
fn with_interpreter(elf: Elf, path: &[u8]) -> Result<Elf> {
    let needed = |index: &usize| {
        elf.loaded().contains(index)
            || elf.number(elf.header(*index) + segment::TYPE, 4) == PT_INTERP
    };
    let count = elf.number(field::PHNUM, 2) as usize;
    let free = (0..count).find(|index| !needed(index));
    let header = elf.header(free.ok_or("no free program header")?);
    let (offset, length) = (elf.bytes.len() as u64, path.len() as u64);
    let mut elf = elf
        .with(header + segment::TYPE, 4, PT_INTERP)
        .with(header + segment::OFFSET, 8, offset)
        .with(header + segment::FILESZ, 8, length)
        .with(header + segment::MEMSZ, 8, length);
    elf.bytes.extend_from_slice(path);
    Ok(elf)
}

/// Runs a program in a root directory with `loader` at [`PATH`].
fn run(program: Elf, loader: Option<&[u8]>) -> Result<process::Outcome> {
    run_with_mode(program, loader, 0o755)
}

/// Runs a program like [`run`], with these permissions of the loader.
fn run_with_mode(program: Elf, loader: Option<&[u8]>, mode: u32) -> Result<process::Outcome> {
    let root = Scratch::new()?;
    fs::create_dir_all(root.path().join("lib"))?;
    fs::write(root.path().join("program"), program.bytes)?;
    if let Some(loader) = loader {
        let path = root.path().join("lib/ld.so");
        fs::write(&path, loader)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    let mut command = hartline::command("run")?;
    process::run(
        command.arg("--rootfs").arg(root.path()).arg("/program"),
        b"",
    )
}
