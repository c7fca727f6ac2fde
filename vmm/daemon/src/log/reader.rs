//! Reads logs, also while they are written.

use super::records::{Place, Records};
use super::{MAGIC, MAX_FILES, is_missing, path};
use hartline_devices::console::log as ring;
use hartline_jail::MAX_OUTPUT;
use std::fs::File;
use std::io;
use std::mem;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are read at a time from a file without records.
const CHUNK: usize = 64 << 10;

/// A piece of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Time of its arrival, nanoseconds since 1970; `None`: it was not recorded.
    pub time: Option<u64>,
    /// Position of its first byte in the output.
    pub position: u64,
    /// Its bytes, at least one.
    pub bytes: Vec<u8>,
}

impl Entry {
    /// The position after its bytes.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.position.saturating_add(self.bytes.len() as u64)
    }
}

/// Reads an output.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    /// Output before this position is left out.
    from: u64,
}

#[derive(Debug)]
enum Source {
    Records(Records),
    Ring(Ring),
}

/// A file without records: of a synchronous run, or of an earlier version of the daemon.
#[derive(Debug)]
struct Ring {
    file: File,
    /// The position in the output.
    at: u64,
    /// Where to stop.
    end: Option<u64>,
}

impl Ring {
    fn extent(&self) -> io::Result<Range<u64>> {
        ring::extent(&self.file, MAX_OUTPUT)
    }

    /// The next bytes.
    fn read(&mut self) -> io::Result<Option<Entry>> {
        let mut bytes = vec![0; CHUNK];
        let (position, count) = ring::read(&self.file, MAX_OUTPUT, self.at, &mut bytes)?;
        let left = self
            .end
            .map_or(u64::MAX, |end| end.saturating_sub(position));
        bytes.truncate(count.min(usize::try_from(left).unwrap_or(usize::MAX)));
        self.at = position.saturating_add(bytes.len() as u64);
        Ok((!bytes.is_empty()).then_some(Entry {
            time: None,
            position,
            bytes,
        }))
    }
}

impl Source {
    fn at(&self) -> Place {
        match self {
            Self::Records(records) => records.at,
            Self::Ring(ring) => Place::in_ring(ring.at),
        }
    }

    fn go(&mut self, place: Place) {
        match self {
            Self::Records(records) => records.at = place,
            Self::Ring(ring) => ring.at = place.offset,
        }
    }

    /// Stops at a place from now on. Result: the place of the call before.
    fn stop_at(&mut self, place: Option<Place>) -> Option<Place> {
        match self {
            Self::Records(records) => mem::replace(&mut records.end, place),
            Self::Ring(ring) => {
                let end = mem::replace(&mut ring.end, place.map(|place| place.offset));
                end.map(Place::in_ring)
            }
        }
    }

    /// The end as it is now.
    fn last(&self) -> io::Result<Place> {
        match self {
            Self::Records(records) => records.last(),
            Self::Ring(ring) => Ok(Place::in_ring(ring.extent()?.end)),
        }
    }

    /// The starts of all files, the oldest first.
    fn starts(&self) -> io::Result<Vec<Place>> {
        match self {
            Self::Records(records) => records.starts(),
            Self::Ring(_) => Ok(vec![Place::START]),
        }
    }
}

impl Reader {
    /// A reader of an output of a machine; `None`: the machine has no output yet.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn open(directory: &Path, name: &str) -> io::Result<Option<Self>> {
        let mut files = Vec::new();
        for index in 0..MAX_FILES {
            match File::open(path(directory, name, index)) {
                Ok(file) => files.push(file),
                Err(error) if is_missing(&error) => break,
                Err(error) => return Err(error),
            }
        }
        let Some(first) = files.first() else {
            return Ok(None);
        };
        let mut magic = [0; MAGIC.len()];
        let count = first.read_at(&mut magic, 0)?;
        if !MAGIC.starts_with(&magic[..count]) {
            return Ok(Some(Self::ring(files.swap_remove(0))));
        }
        // The first file may be empty because the writer is about to write it again.
        let records = Records::new(files);
        let is_written = !records.starts()?.is_empty();
        Ok(is_written.then(|| Self::new(Source::Records(records))))
    }

    /// A reader of a file that [`ring`] describes.
    #[must_use]
    pub fn ring(file: File) -> Self {
        let (at, end) = (0, None);
        Self::new(Source::Ring(Ring { file, at, end }))
    }

    fn new(source: Source) -> Self {
        Self { source, from: 0 }
    }

    /// Whether times are recorded.
    #[must_use]
    pub fn has_times(&self) -> bool {
        matches!(self.source, Source::Records(_))
    }

    /// Goes back to the oldest output.
    pub fn rewind(&mut self) {
        self.from = 0;
        self.source.go(Place::START);
    }

    /// Stops at the end as it is now.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn stop_at_end(&mut self) -> io::Result<()> {
        let end = self.source.last()?;
        self.source.stop_at(Some(end));
        Ok(())
    }

    /// Goes to the end as it is now.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn skip_to_end(&mut self) -> io::Result<()> {
        let end = self.source.last()?;
        self.source.go(end);
        Ok(())
    }

    /// Leaves out the output before a position.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn skip_to(&mut self, position: u64) -> io::Result<()> {
        match &mut self.source {
            Source::Records(records) => {
                self.from = self.from.max(position);
                records.skip_while(|head| head.end() <= position)
            }
            Source::Ring(ring) => {
                ring.at = ring.at.max(position);
                Ok(())
            }
        }
    }

    /// Leaves out what arrived before a time, nanoseconds since 1970, if times are recorded.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn skip_to_time(&mut self, time: u64) -> io::Result<()> {
        match &mut self.source {
            Source::Records(records) => records.skip_while(|head| head.time < time),
            Source::Ring(_) => Ok(()),
        }
    }

    /// Goes to the last `lines` lines that are there now.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn skip_to_last(&mut self, lines: u64) -> io::Result<()> {
        if lines == 0 {
            return self.skip_to_end();
        }
        let mut to = self.source.last()?;
        let end = self.source.stop_at(Some(to));
        let mut left = lines;
        // Whether no byte was read yet: the newline that ends the output begins no line.
        let mut is_at_end = true;
        for start in self.source.starts()?.into_iter().rev() {
            self.source.go(start);
            self.source.stop_at(Some(to));
            let (count, last) = self.count_lines()?;
            if let Some(last) = last
                && mem::take(&mut is_at_end)
                && last == b'\n'
            {
                left = left.saturating_add(1);
            }
            if let Some(before) = count.checked_sub(left) {
                self.source.go(start);
                self.pass_lines(before + 1)?;
                self.source.stop_at(end);
                return Ok(());
            }
            left -= count;
            to = start;
        }
        self.source.stop_at(end);
        self.rewind();
        Ok(())
    }

    /// Reads to the end. Result: the number of newlines, and the last byte.
    fn count_lines(&mut self) -> io::Result<(u64, Option<u8>)> {
        let (mut count, mut last) = (0, None);
        while let Some(entry) = self.read()? {
            count += newlines(&entry.bytes).count() as u64;
            last = entry.bytes.last().copied();
        }
        Ok((count, last))
    }

    /// Goes behind this many newlines.
    fn pass_lines(&mut self, mut lines: u64) -> io::Result<()> {
        loop {
            let at = self.source.at();
            let Some(entry) = self.read()? else {
                return Ok(());
            };
            let nth = usize::try_from(lines - 1).unwrap_or(usize::MAX);
            if let Some(index) = newlines(&entry.bytes).nth(nth) {
                self.source.go(at);
                return self.skip_to(entry.position.saturating_add(index as u64 + 1));
            }
            lines -= newlines(&entry.bytes).count() as u64;
        }
    }

    /// The position of the next byte; `None`: there is none yet.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn position(&mut self) -> io::Result<Option<u64>> {
        match &mut self.source {
            Source::Records(records) => {
                let next = records.head()?;
                Ok(next.map(|head| head.position.max(self.from)))
            }
            Source::Ring(ring) => {
                let there = ring.extent()?;
                let at = ring.at.max(there.start);
                Ok((at < there.end).then_some(at))
            }
        }
    }

    /// Reads the next piece; `None`: there is none yet.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn read(&mut self) -> io::Result<Option<Entry>> {
        let records = match &mut self.source {
            Source::Records(records) => records,
            Source::Ring(ring) => return ring.read(),
        };
        while let Some((head, bytes)) = records.read()? {
            let cut = self.from.saturating_sub(head.position);
            let cut = usize::try_from(cut).unwrap_or(usize::MAX).min(bytes.len());
            if cut < bytes.len() {
                return Ok(Some(Entry {
                    time: Some(head.time),
                    position: head.position.saturating_add(cut as u64),
                    bytes: bytes[cut..].to_vec(),
                }));
            }
        }
        Ok(None)
    }
}

/// The indices of newlines.
fn newlines(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let all = bytes.iter().enumerate();
    all.filter(|(_, byte)| **byte == b'\n')
        .map(|(index, _)| index)
}
