//! A snapshot as a stream, for a process that keeps the files of a snapshot for the VMM: the VMM may
//! then be unable to write files. The tree is not in the stream: the receiver has it.
//!
//! The stream consists of records: a header of three little-endian 64-bit numbers, and data.
//!
//! | kind | value | data |
//! |---|---|---|
//! | 1 | offset in RAM | a part of RAM, in order, without overlap |
//! | 2 | length of RAM | `config.json`; the snapshot is complete |
//! | 3 | 0 | the reason why there is no snapshot |
//!
//! The third number is the length of the data. After a record of kind 2 or 3 nothing follows. If the VM
//! is to end with the snapshot, it then waits for the byte [`END`] from the receiver, which has the whole
//! snapshot on the disk. At the end of the stream without this byte, the guest goes on.

use super::capture::{BLOCK, Source, config_of};
use super::config::{MAX_LENGTH, Tree};
use super::moment::Moment;
use super::{Error, MEMORY};
use crate::layout::MAX_RAM;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Longest reason, bytes.
const MAX_REASON: usize = 1024;

/// The receiver's answer to a whole snapshot: the VM ends.
pub const END: u8 = 1;

/// Kinds of records.
mod kind {
    pub const MEMORY: u64 = 1;
    pub const CONFIG: u64 = 2;
    pub const FAILED: u64 = 3;
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A part of RAM.
    Memory {
        /// Offset of the first byte in RAM.
        offset: u64,
        /// At most 2 MiB.
        bytes: Vec<u8>,
    },
    /// The snapshot is complete.
    Config {
        /// Length of RAM, bytes.
        ram: u64,
        /// Contents of `config.json`, which are not checked.
        json: Vec<u8>,
    },
    /// There is no snapshot.
    Failed(String),
}

fn put(to: &mut impl Write, kind: u64, value: u64, data: &[u8]) -> io::Result<()> {
    let mut header = [0; 24];
    for (field, value) in
        header
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip([kind, value, data.len() as u64])
    {
        *field = value.to_le_bytes();
    }
    to.write_all(&header)?;
    to.write_all(data)
}

/// Writes that there is no snapshot.
///
/// # Errors
/// Any I/O error of the host.
pub fn refuse(to: &mut impl Write, reason: &str) -> io::Result<()> {
    let reason = &reason.as_bytes()[..reason.len().min(MAX_REASON)];
    put(to, kind::FAILED, 0, reason)
}

/// Writes a snapshot at a checkpoint, or why there is none. No vCPU
/// runs. Result: whether it was written.
pub(crate) fn write(source: &Source, moment: Moment, mut to: File) -> bool {
    write_noting(source, moment, &mut to, || Ok(()))
}

/// As [`write`]; calls `note` before the last record. If `note` fails, there is no snapshot.
pub(super) fn write_noting(
    source: &Source,
    moment: Moment,
    to: &mut File,
    note: impl FnOnce() -> io::Result<()>,
) -> bool {
    let written = write_all(source, moment, to, note);
    if let Err(error) = &written {
        // The receiver sees the end of the stream otherwise.
        let _ = refuse(to, &error.to_string());
    }
    written.is_ok()
}

fn write_all(
    source: &Source,
    moment: Moment,
    to: &mut File,
    note: impl FnOnce() -> io::Result<()>,
) -> Result<(), Error> {
    let stream = Path::new(MEMORY);
    let machine = source.machine(moment)?;
    let tree = source.tree.as_ref().map(|(tree, [gpa, _])| {
        let kept = Tree {
            length: tree.length(),
            sha256: None,
            gpa: *gpa,
            base: None,
        };
        match tree.base() {
            None => Ok(kept),
            Some(_) => Err(Error::State("an image as the root file system")),
        }
    });
    let tree = tree.transpose()?;
    let memory = source.parts(moment, |offset, bytes| put(to, kind::MEMORY, offset, bytes));
    let memory = memory.map_err(Error::file(stream, "send"))?;
    let config = config_of(machine, memory, tree);
    let json = serde_json::to_vec(&config).map_err(io::Error::other);
    json.and_then(|json| {
        note()?;
        put(to, kind::CONFIG, source.ram.length(), &json)
    })
    .map_err(Error::file(stream, "send"))
}

/// Reads the next record.
///
/// # Errors
/// `InvalidData`: not a record. `UnexpectedEof`: the stream ends within a record, or before one that
/// says that it does. Any other I/O error of the host.
pub fn read(from: &mut impl Read) -> io::Result<Record> {
    let mut header = [0; 24];
    from.read_exact(&mut header)?;
    let mut fields = header.as_chunks::<8>().0.iter();
    let mut field = || fields.next().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (kind, value, length) = (field(), field(), field());
    let most = match kind {
        kind::MEMORY => BLOCK as u64,
        kind::CONFIG => MAX_LENGTH,
        kind::FAILED => MAX_REASON as u64,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let is_inside = value
        .checked_add(length)
        .is_some_and(|end| kind != kind::MEMORY || end <= MAX_RAM);
    if length > most || !is_inside || kind == kind::CONFIG && value > MAX_RAM {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Grows with what arrives: a false length alone takes no memory.
    let mut bytes = Vec::new();
    from.by_ref().take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(match kind {
        kind::MEMORY => Record::Memory {
            offset: value,
            bytes,
        },
        kind::CONFIG => Record::Config {
            ram: value,
            json: bytes,
        },
        _ => Record::Failed(String::from_utf8_lossy(&bytes).into_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut stream = Vec::new();
        put(&mut stream, kind::MEMORY, 4096, b"part").unwrap();
        put(&mut stream, kind::CONFIG, 1 << 30, b"{}").unwrap();
        refuse(&mut stream, &"x".repeat(2000)).unwrap();
        let mut from = &stream[..];
        let bytes = b"part".to_vec();
        let memory = Record::Memory {
            offset: 4096,
            bytes,
        };
        assert_eq!(read(&mut from).unwrap(), memory);
        let (ram, json) = (1 << 30, b"{}".to_vec());
        assert_eq!(read(&mut from).unwrap(), Record::Config { ram, json });
        assert_eq!(
            read(&mut from).unwrap(),
            Record::Failed("x".repeat(MAX_REASON))
        );
        let end = read(&mut from).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        let cut = read(&mut &stream[..26]).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn false_records_are_refused() {
        let most = BLOCK as u64;
        for (kind, value, length) in [
            (0, 0, 0),
            (4, 0, 0),
            (u64::MAX, 0, 0),
            (kind::MEMORY, 0, most + 1),
            (kind::MEMORY, MAX_RAM, 1),
            (kind::MEMORY, u64::MAX, 1),
            (kind::CONFIG, 4096, MAX_LENGTH + 1),
            (kind::CONFIG, MAX_RAM + 1, 0),
            (kind::FAILED, 0, MAX_REASON as u64 + 1),
        ] {
            let header: Vec<u8> = [kind, value, length]
                .iter()
                .flat_map(|field| field.to_le_bytes())
                .collect();
            let error = read(&mut &header[..]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{kind} {value}");
        }
    }
}
