//! `hartline perf-data`: makes `perf` name the functions of programs in VMs.
//!
//! `perf` distinguishes samples of a guest from samples of the process that runs it, and has names
//! for a guest's kernel only. For Hartline's guests, the map that `hartline run --perf-map` writes
//! for the process has the names of all code. So this command marks the samples as the process's
//! own.

use anyhow::{Context, bail, ensure};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `hartline perf-data`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// File that perf record wrote; it is changed
    #[arg(default_value = "perf.data")]
    file: PathBuf,
}

/// Start of a file of `perf record` (tools/perf/Documentation/perf.data-file-format.txt
/// of Linux).
const MAGIC: &[u8; 8] = b"PERFILE2";
/// Offset in the header of offset and length of the records.
const DATA_SECTION: usize = 40;
/// Length of a record's header: type, flags, length.
const RECORD_HEADER: usize = 8;

/// Kinds of records.
mod kind {
    /// A sample.
    pub const SAMPLE: u32 = 9;
    /// Followed by data whose length is stored elsewhere.
    pub const AUXTRACE: u32 = 71;
    /// Records in compressed form.
    pub const COMPRESSED: u32 = 81;
    /// Records in compressed form, since Linux 6.16.
    pub const COMPRESSED2: u32 = 83;
}

/// Bits of a sample's flags with the processor's mode.
mod mode {
    pub const MASK: u16 = 7;
    pub const KERNEL: u16 = 1;
    pub const USER: u16 = 2;
    pub const GUEST_KERNEL: u16 = 4;
    pub const GUEST_USER: u16 = 5;
}

/// Marks samples of guests as their processes' own.
///
/// # Errors
/// The file was not written by `perf record`, or is compressed or has traces.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let name = || arguments.file.display().to_string();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&arguments.file)
        .with_context(name)?;
    let changed = mark(&file).with_context(name)?;
    crate::say(&format!("{}: {changed} samples of guests", name()));
    Ok(ExitCode::SUCCESS)
}

/// Marks the samples. Result: the number of changed samples.
fn mark(file: &File) -> anyhow::Result<u64> {
    let mut header = [0; DATA_SECTION + 16];
    match file.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        result => result?,
    }
    ensure!(header.starts_with(MAGIC), "not a file of perf record");
    let word = |at: usize| {
        header[at..]
            .first_chunk()
            .map_or(0, |b| u64::from_le_bytes(*b))
    };
    let (start, length) = (word(DATA_SECTION), word(DATA_SECTION + 8));
    ensure!(
        length != 0,
        "has no records: perf record did not end properly"
    );
    let length = usize::try_from(length).context("is too long")?;
    ensure!(
        start.saturating_add(length as u64) <= file.metadata()?.len(),
        "is shorter than its header says"
    );
    let mut records = vec![0; length];
    file.read_exact_at(&mut records, start)?;
    let changed = mark_records(&mut records)?;
    file.write_all_at(&records, start)?;
    Ok(changed)
}

fn mark_records(mut records: &mut [u8]) -> anyhow::Result<u64> {
    let mut changed = 0;
    while !records.is_empty() {
        let Some(&[k0, k1, k2, k3, m0, m1, l0, l1]) = records.first_chunk::<RECORD_HEADER>() else {
            bail!("ends inside a record");
        };
        let flags = u16::from_le_bytes([m0, m1]);
        match u32::from_le_bytes([k0, k1, k2, k3]) {
            kind::COMPRESSED | kind::COMPRESSED2 => {
                bail!("is compressed: record without --compression-level")
            }
            kind::AUXTRACE => bail!("has processor traces, which cannot be marked"),
            kind::SAMPLE => {
                let own = match flags & mode::MASK {
                    mode::GUEST_KERNEL => Some(mode::KERNEL),
                    mode::GUEST_USER => Some(mode::USER),
                    _ => None,
                };
                if let Some(own) = own {
                    let flags = flags & !mode::MASK | own;
                    records[4..6].copy_from_slice(&flags.to_le_bytes());
                    changed += 1;
                }
            }
            _ => {}
        }
        let length = usize::from(u16::from_le_bytes([l0, l1]));
        ensure!(
            (RECORD_HEADER..=records.len()).contains(&length),
            "has a record of {length} bytes"
        );
        records = &mut records[length..];
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, flags: u16, length: u16) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(flags.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.resize(usize::from(length).max(RECORD_HEADER), 0);
        bytes
    }

    #[test]
    fn samples_of_guests_are_marked() {
        let mut records = [
            record(1, mode::GUEST_USER, 16),
            record(kind::SAMPLE, 0x4000 | mode::GUEST_USER, 24),
            record(kind::SAMPLE, mode::GUEST_KERNEL, 8),
            record(kind::SAMPLE, mode::KERNEL, 8),
        ]
        .concat();
        assert_eq!(mark_records(&mut records).unwrap(), 2);
        let expected = [
            record(1, mode::GUEST_USER, 16),
            record(kind::SAMPLE, 0x4000 | mode::USER, 24),
            record(kind::SAMPLE, mode::KERNEL, 8),
            record(kind::SAMPLE, mode::KERNEL, 8),
        ];
        assert_eq!(records, expected.concat());
    }

    #[test]
    fn bad_records_are_refused() {
        for bad in [
            record(kind::SAMPLE, 0, 7),
            record(kind::SAMPLE, 0, 0),
            record(kind::COMPRESSED, 0, 8),
            record(kind::AUXTRACE, 0, 8),
            record(kind::SAMPLE, 0, 8)[..7].to_vec(),
            [record(1, 0, 8), vec![9, 0, 0, 0, 0, 0, 16, 0]].concat(),
        ] {
            assert!(mark_records(&mut bad.clone()).is_err(), "{bad:?}");
        }
    }
}
