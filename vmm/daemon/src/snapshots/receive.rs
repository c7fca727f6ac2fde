//! Writing the files of a snapshot that a VMM sends. The VMM may send anything.

use super::{CONFIG, MEMORY, SAFEPOINT, STALL, SnapshotError, most};
use hartline_abi::layout::HUGE_PAGE_SIZE;
use hartline_vmm::snapshot::stream::{self, Record};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The files of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes that they take on the disk.
    pub size: u64,
}

/// Makes a file that only the service may read: it has the program's secrets.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// Writes the files of a snapshot of a machine with `memory` bytes to a directory, synchronised.
///
/// # Errors
/// [`SnapshotError`]: there is no snapshot; some files may be left.
pub fn receive(from: UnixStream, directory: &Path, memory: u64) -> Result<Received, SnapshotError> {
    let mut from = BufReader::new(Source {
        socket: from,
        end: Instant::now() + longest_time(memory),
        patience: SAFEPOINT,
    });
    let next = || {
        let record = stream::read(&mut from);
        let record = record.map_err(|error| fault(&error, from.get_ref().patience))?;
        from.get_mut().patience = STALL;
        Ok(record)
    };
    write(next, directory, memory)
}

/// How long a VMM of a machine with `memory` bytes may take for all of a snapshot: a VMM that was taken
/// over could send a byte now and then for ever.
fn longest_time(memory: u64) -> Duration {
    /// Bytes a second that every disk takes.
    const SLOWEST: u64 = 8 << 20;
    SAFEPOINT + 2 * STALL + Duration::from_secs(memory / SLOWEST)
}

/// A stream from a VMM that ends at a time.
struct Source {
    socket: UnixStream,
    /// The time at which everything must have come.
    end: Instant,
    /// How long to wait for the next bytes.
    patience: Duration,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket
            .set_read_timeout(Some(left.min(self.patience)))?;
        self.socket.read(buffer)
    }
}

/// What an error of the stream means, whose next bytes were waited for so long.
fn fault(error: &io::Error, patience: Duration) -> SnapshotError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => match patience {
            SAFEPOINT => SnapshotError::Timeout(SAFEPOINT),
            _ => SnapshotError::Stalled,
        },
        io::ErrorKind::InvalidData => SnapshotError::Invalid,
        _ => SnapshotError::Gone,
    }
}

fn write(
    mut next: impl FnMut() -> Result<Record, SnapshotError>,
    directory: &Path,
    memory: u64,
) -> Result<Received, SnapshotError> {
    let file = create(&directory.join(MEMORY))?;
    let (mut end, mut left) = (0, most(memory));
    let longest = memory.next_multiple_of(HUGE_PAGE_SIZE);
    let mut count = |bytes: &[u8]| -> Result<(), SnapshotError> {
        let rest = u64::checked_sub(left, bytes.len() as u64);
        left = rest.ok_or(SnapshotError::Invalid)?;
        Ok(())
    };
    let json = loop {
        match next()? {
            Record::Memory { offset, bytes } => {
                count(&bytes)?;
                let until = offset.saturating_add(bytes.len() as u64);
                if offset < end || until > longest {
                    return Err(SnapshotError::Invalid);
                }
                end = until;
                file.write_all_at(&bytes, offset)?;
            }
            Record::Config { ram, json } => {
                count(&json)?;
                if ram < end || ram > longest {
                    return Err(SnapshotError::Invalid);
                }
                file.set_len(ram)?;
                break json;
            }
            Record::Failed(reason) => return Err(SnapshotError::Refused(printable(&reason))),
        }
    };
    file.sync_all()?;
    let description = create(&directory.join(CONFIG))?;
    description.write_all_at(&json, 0)?;
    description.sync_all()?;
    let allocated = |file: &File| -> io::Result<u64> {
        // The unit is 512 bytes everywhere (stat(2)).
        Ok(file.metadata()?.blocks().saturating_mul(512))
    };
    let size = allocated(&file)?.saturating_add(allocated(&description)?);
    Ok(Received { size })
}

/// A reason of a VMM, which may be any text.
fn printable(reason: &str) -> String {
    let plain = reason.chars().filter(|c| !c.is_control());
    plain.take(500).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MEMORY_SIZE: u64 = 64 << 20;

    /// A stream of records: kind, value and data.
    fn stream_of(records: &[(u64, u64, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, value, data) in records {
            for field in [*kind, *value, data.len() as u64] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
            bytes.extend_from_slice(data);
        }
        bytes
    }

    fn received(records: &[(u64, u64, &[u8])]) -> (tempfile::TempDir, Result<Received, String>) {
        let directory = tempfile::tempdir().unwrap();
        let bytes = stream_of(records);
        let mut bytes = &bytes[..];
        let next = || stream::read(&mut bytes).map_err(|error| fault(&error, STALL));
        let done = write(next, directory.path(), MEMORY_SIZE);
        (directory, done.map_err(|error| error.to_string()))
    }

    #[test]
    fn parts_are_where_they_were() {
        let (directory, done) = received(&[
            (1, 4096, &[7; 4096]),
            (1, 32 << 20, &[8; 8192]),
            (2, MEMORY_SIZE, b"{}"),
        ]);
        assert!(done.unwrap().size < 1 << 20, "holes take no room");
        let memory = fs::read(directory.path().join(MEMORY)).unwrap();
        assert_eq!(memory.len() as u64, MEMORY_SIZE);
        assert_eq!(memory[4096..8192], [7; 4096]);
        assert_eq!(memory[32 << 20..(32 << 20) + 8192], [8; 8192]);
        assert_eq!(memory.iter().filter(|byte| **byte != 0).count(), 3 * 4096);
        assert_eq!(fs::read(directory.path().join(CONFIG)).unwrap(), b"{}");
        let mode = fs::metadata(directory.path().join(MEMORY)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_vmm_cannot_write_more_than_its_machine_has() {
        let error = |records: &[(u64, u64, &[u8])]| received(records).1.unwrap_err();
        let invalid = SnapshotError::Invalid.to_string();
        let page: &[u8] = &[1; 4096];
        assert_eq!(error(&[(1, MEMORY_SIZE, page)]), invalid);
        assert_eq!(error(&[(1, 8192, page), (1, 4096, page)]), invalid, "order");
        assert_eq!(error(&[(1, 0, page), (1, 4095, page)]), invalid, "overlap");
        assert_eq!(error(&[(2, MEMORY_SIZE * 2, b"{}")]), invalid);
        assert_eq!(error(&[(1, 8192, page), (2, 4096, b"{}")]), invalid);
        assert_eq!(error(&[(9, 0, b"")]), invalid);
        let description = vec![b' '; usize::try_from(most(MEMORY_SIZE)).unwrap().min(60 << 20)];
        let all = vec![1; 2 << 20];
        let mut records: Vec<(u64, u64, &[u8])> = (0..32).map(|n| (1, n << 21, &all[..])).collect();
        records.push((2, MEMORY_SIZE, &description));
        assert_eq!(error(&records), invalid, "too much together");
    }

    #[test]
    fn a_vmm_that_sends_a_byte_now_and_then_does_not_hold_the_service() {
        use std::io::Write;
        let (socket, mut vmm) = UnixStream::pair().unwrap();
        let sender = std::thread::spawn(move || {
            while vmm.write_all(&[1]).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let start = Instant::now();
        let mut source = Source {
            socket,
            end: start + Duration::from_millis(300),
            patience: STALL,
        };
        let error = stream::read(&mut source).unwrap_err();
        assert!(start.elapsed() >= Duration::from_millis(300), "{error}");
        assert_eq!(
            fault(&error, STALL).to_string(),
            SnapshotError::Stalled.to_string()
        );
        drop(source);
        sender.join().unwrap();
        // A machine of 64 GiB has some hours, a small one two minutes.
        assert!(longest_time(64 << 30) > Duration::from_secs(3600));
        assert!(longest_time(MEMORY_SIZE) < Duration::from_secs(120));
    }

    #[test]
    fn streams_that_end_early_and_reasons_are_errors() {
        let error = |records: &[(u64, u64, &[u8])]| received(records).1.unwrap_err();
        assert_eq!(error(&[]), SnapshotError::Gone.to_string());
        assert_eq!(
            error(&[(1, 0, &[1; 4096])]),
            SnapshotError::Gone.to_string()
        );
        assert_eq!(error(&[(3, 0, b"no\x1b[1m room")]), "no[1m room");
    }
}
