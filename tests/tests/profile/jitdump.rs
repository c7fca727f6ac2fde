//! The file of `--jitdump`, as its specification describes it.

use hartline_tests::compile::Variant;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline, process};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

/// A function in the file.
#[derive(Debug, Default)]
struct Function {
    /// Number of bytes of code.
    code: usize,
    /// File and number of lines, in the order of addresses.
    lines: Vec<(String, u32)>,
}

/// Takes bytes from the begin of others.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    let (taken, rest) = bytes
        .split_at_checked(count)
        .ok_or("the file is too short")?;
    *bytes = rest;
    Ok(taken)
}

fn word(bytes: &mut &[u8]) -> Result<u32> {
    Ok(u32::from_le_bytes(take(bytes, 4)?.try_into()?))
}

fn long(bytes: &mut &[u8]) -> Result<u64> {
    Ok(u64::from_le_bytes(take(bytes, 8)?.try_into()?))
}

fn text(bytes: &mut &[u8]) -> Result<String> {
    let length = bytes.iter().position(|&byte| byte == 0);
    let text = take(bytes, length.ok_or("a text without an end")?)?;
    let text = String::from_utf8(text.to_vec())?;
    take(bytes, 1)?;
    Ok(text)
}

/// The functions of a file, by name.
fn parse(mut bytes: &[u8]) -> Result<HashMap<String, Function>> {
    let file = &mut bytes;
    if [word(file)?, word(file)?, word(file)?, word(file)?] != [0x4A69_5444, 1, 40, 62] {
        return Err("a wrong header".into());
    }
    take(file, 24)?;
    let mut functions = HashMap::new();
    let mut lines: HashMap<u64, Vec<(String, u32)>> = HashMap::new();
    let mut indices = Vec::new();
    while !file.is_empty() {
        let (kind, length) = (word(file)?, word(file)?);
        long(file)?;
        let mut body = take(
            file,
            usize::try_from(length)?.checked_sub(16).ok_or("short")?,
        )?;
        let record = &mut body;
        match kind {
            0 => {
                take(record, 8)?;
                let (start, same) = (long(record)?, long(record)?);
                let code = usize::try_from(long(record)?)?;
                indices.push(long(record)?);
                let name = text(record)?;
                if start != same || record.len() != code {
                    return Err(format!("{name}: {start:x} {same:x} {code}").into());
                }
                let lines = lines.remove(&start).unwrap_or_default();
                functions.insert(name, Function { code, lines });
            }
            2 => {
                let (start, count) = (long(record)?, long(record)?);
                for _ in 0..count {
                    let address = long(record)?;
                    let line = word(record)?;
                    word(record)?;
                    let file = text(record)?;
                    if address < start {
                        return Err(format!("a line before its function: {address:x}").into());
                    }
                    lines.entry(start).or_default().push((file, line));
                }
            }
            other => return Err(format!("a record of kind {other}").into()),
        }
    }
    let count = indices.len() as u64;
    match lines.is_empty() && indices.into_iter().eq(0..count) {
        true => Ok(functions),
        false => Err("lines without code, or wrong numbers of functions".into()),
    }
}

/// Debug information, and no C library.
const BARE: Variant = Variant {
    name: "O2-bare",
    flags: &["-O2", "-static", "-nostdlib", "-ffreestanding"],
};

/// A command of hartline with a cache of its own.
fn hartline_with(cache: &Scratch, subcommand: &str) -> Result<Command> {
    let mut command = hartline::command(subcommand)?;
    command.env("HARTLINE_CACHE", cache.path());
    Ok(command)
}

/// The functions in the file of a run of a program with these options, and with the translations in a cache.
fn dump(program: &OsStr, cache: &Scratch, options: &[&str]) -> Result<HashMap<String, Function>> {
    let folder = Scratch::new()?;
    let option = format!("--jitdump={}", folder.path().display());
    let mut command = hartline_with(cache, "run")?;
    let outcome = process::run(command.arg(option).args(options).arg(program), &[])?;
    if outcome.code != 0 || !outcome.stderr.is_empty() {
        return Err(format!("{outcome:?}").into());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    let [name] = &names[..] else {
        return Err(format!("not one file: {names:?}").into());
    };
    let is_process = |id: &str| id.parse::<u32>().is_ok();
    let process = name
        .strip_prefix("jit-")
        .and_then(|name| name.strip_suffix(".dump"));
    if !process.is_some_and(is_process) {
        return Err(format!("the name is {name}").into());
    }
    parse(&fs::read(folder.path().join(name))?)
}

/// The file has the program's functions, with their code, the lines where they begin, and those of the
/// function that is inlined in one of them.
pub fn functions() -> Result<()> {
    const INLINED: [u32; 2] = [6, 7];
    let (folder, cache) = (Scratch::new()?, Scratch::new()?);
    let program = compile::debugged(folder.path(), "bare.c", BARE)?;
    let program = program.as_os_str();
    let built = process::run(
        hartline_with(&cache, "build")?.arg("--all").arg(program),
        &[],
    )?;
    if built.code != 0 {
        return Err(format!("{built:?}").into());
    }
    let functions = dump(program, &cache, &[])?;
    for (name, line, inlined) in [("_start", 13, &[][..]), ("outer", 10, &INLINED)] {
        let function = functions.get(name).ok_or_else(|| format!("no {name}"))?;
        let is_in_source = |line: &&(String, u32)| line.0.ends_with("/bare.c");
        let lines = function.lines.iter().filter(is_in_source);
        let lines: Vec<u32> = lines.map(|line| line.1).collect();
        let has_inlined = inlined.iter().all(|line| lines.contains(line));
        if lines.first() != Some(&line) || !has_inlined || function.code < 8 {
            return Err(format!("{name}: {function:?}").into());
        }
    }
    // Without translation there is nothing to write.
    match dump(program, &cache, &["--interpret"])?.len() {
        0 => Ok(()),
        others => Err(format!("{others} functions without translation").into()),
    }
}
