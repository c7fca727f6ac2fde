//! `--jitdump`: gives `perf inject --jit` the code that ran in the VM, with source lines, in the format
//! of tools/perf/Documentation/jitdump-specification.txt of Linux.

use super::places;
use super::ran::{Code, Files, Ran};
use anyhow::Context;
use hartline_embed::translation::Translation;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::{process, ptr};

const MAGIC: u32 = 0x4A69_5444;
const VERSION: u32 = 1;
/// Length of the file's header, bytes.
const HEADER: u32 = 40;
/// Length of a record's header, bytes.
const PREFIX: usize = 16;
/// Machine type of x86-64 in ELF files.
const EM_X86_64: u32 = 62;

/// Kinds of records.
mod kind {
    pub const CODE_LOAD: u32 = 0;
    pub const CODE_DEBUG_INFO: u32 = 2;
}

/// The file, made before the VM runs.
#[derive(Debug)]
pub struct JitDump {
    file: File,
    path: PathBuf,
    /// Time of all records, nanoseconds of `CLOCK_MONOTONIC`: before the first sample.
    begun: u64,
}

impl JitDump {
    /// Creates `jit-PID.dump` in a directory, and maps it, so that `perf record` notes its path.
    ///
    /// # Errors
    /// The file cannot be written or mapped.
    pub fn create(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(format!("jit-{}.dump", process::id()));
        let make = || -> io::Result<Self> {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true);
            let mut file = options.open(&path)?;
            let time = clock_gettime(ClockId::Monotonic);
            let parts = [time.tv_sec, time.tv_nsec].map(u64::try_from);
            let [Ok(seconds), Ok(nanoseconds)] = parts else {
                return Err(io::Error::other("the clock is before its begin"));
            };
            let begun = seconds * 1_000_000_000 + nanoseconds;
            file.write_all(&header(begun))?;
            announce(&file)?;
            Ok(Self {
                file,
                path: path.clone(),
                begun,
            })
        };
        make().with_context(|| format!("--jitdump: {}", path.display()))
    }

    /// Writes all code that ran, of these files. `translation` made it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(
        self,
        ran: &mut Ran<'_>,
        files: &Files,
        translation: Option<&Translation>,
    ) -> anyhow::Result<()> {
        let mut output = BufWriter::new(&self.file);
        let mut code: Vec<Code<'_>> = ran.code().collect();
        if let Some(translation) = translation {
            places::find(&mut code, ran, files, translation);
        }
        let result = code.iter().zip(0..).try_for_each(|(code, index)| {
            let lines = lines(code, ran);
            if !lines.is_empty() {
                let body = debug_info(code, &lines);
                self.record(&mut output, kind::CODE_DEBUG_INFO, &body)?;
            }
            self.record(&mut output, kind::CODE_LOAD, &load(code, index))
        });
        let result = result.and_then(|()| output.flush());
        result.with_context(|| format!("--jitdump: {}", self.path.display()))
    }

    fn record(&self, output: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(PREFIX + body.len()).map_err(io::Error::other)?;
        output.write_all(&kind.to_le_bytes())?;
        output.write_all(&length.to_le_bytes())?;
        output.write_all(&self.begun.to_le_bytes())?;
        output.write_all(body)
    }
}

/// The header of a file that was begun at a time.
fn header(begun: u64) -> Vec<u8> {
    let numbers = [MAGIC, VERSION, HEADER, EM_X86_64, 0, process::id()];
    let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
    bytes.extend_from_slice(&begun.to_le_bytes());
    // No flags: times are of a clock, and not of a counter of the processor.
    bytes.extend_from_slice(&0u64.to_le_bytes());
    bytes
}

/// Maps the begin of the file as code. Nothing accesses it: the kernel tells `perf record` about it.
fn announce(file: &File) -> io::Result<()> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE);
    let length = HEADER as usize;
    // SAFETY: the kernel chooses an unused address, so no memory of this process changes.
    unsafe { mmap(ptr::null_mut(), length, protection, flags, file, 0) }?;
    Ok(())
}

/// Address, line and file of the places in code whose lines are known.
fn lines(code: &Code<'_>, ran: &mut Ran<'_>) -> Vec<(u64, u32, String)> {
    let addresses: Vec<u64> = code.places.iter().map(|place| place.1).collect();
    let mut found = ran.lines(code.inode, &addresses);
    // The function begins in its own line, also if an inlined one comes first in it.
    if let Some((first, &entry)) = found.first_mut().zip(addresses.first()) {
        *first = ran.line(code.inode, entry);
    }
    let places = code.places.iter().zip(found);
    let places = places.filter_map(|(&(host, _), line)| {
        let line = line?;
        Some((host, u32::try_from(line.number).ok()?, line.file))
    });
    let mut lines: Vec<_> = places.collect();
    lines.dedup_by(|next, line| next.1 == line.1 && next.2 == line.2);
    // `perf inject` takes the last address for the end of the last line.
    if let Some((_, line, file)) = lines.last().cloned() {
        lines.push((code.start + code.host.bytes().len() as u64, line, file));
    }
    lines
}

/// The body of a record with lines.
fn debug_info(code: &Code<'_>, lines: &[(u64, u32, String)]) -> Vec<u8> {
    let mut body = code.start.to_le_bytes().to_vec();
    body.extend_from_slice(&(lines.len() as u64).to_le_bytes());
    for (address, line, file) in lines {
        body.extend_from_slice(&address.to_le_bytes());
        body.extend_from_slice(&line.to_le_bytes());
        // The discriminator.
        body.extend_from_slice(&0u32.to_le_bytes());
        text(&mut body, file);
    }
    body
}

/// The body of a record with code.
fn load(code: &Code<'_>, index: u64) -> Vec<u8> {
    let process = process::id().to_le_bytes();
    let thread = gettid().as_raw_nonzero().get().to_le_bytes();
    let mut body = [process, thread].concat();
    let length = code.host.bytes().len() as u64;
    for number in [code.start, code.start, length, index] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    text(&mut body, &code.name);
    body.extend_from_slice(code.host.bytes());
    body
}

/// Appends a text with its final NUL. The text is a guest's: it may have a NUL itself.
fn text(body: &mut Vec<u8>, text: &str) {
    body.extend(text.bytes().filter(|&byte| byte != 0));
    body.push(0);
}
