//! Finds the records in the files of an output.

use super::{HEADER, HEADER_LENGTH, Head, MAGIC, MAX_BYTES, MAX_FILES, RECORD, RECORD_LENGTH};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are read at a time: one record fits.
const BLOCK: usize = RECORD_LENGTH + MAX_BYTES;

/// A place in the files of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The number of the file; 0: before all files, or in a file without records.
    number: u64,
    /// The offset in the file; in a file without records, the position in the output.
    pub offset: u64,
}

impl Place {
    /// The oldest record.
    pub const START: Self = Self {
        number: 0,
        offset: 0,
    };

    /// A position in a file without records.
    pub fn in_ring(offset: u64) -> Self {
        Self { number: 0, offset }
    }

    /// The first record of a file.
    fn first(number: u64) -> Self {
        Self {
            number,
            offset: HEADER,
        }
    }
}

/// The records of an output. A file may be emptied and written again at any time: what was read from
/// it counts only if it still has its number afterwards.
#[derive(Debug)]
pub(super) struct Records {
    /// By index, not by number.
    files: Vec<File>,
    /// The next record is here, or at the start of a later file.
    pub at: Place,
    /// Where to stop.
    pub end: Option<Place>,
    /// Bytes from a place on.
    block: Vec<u8>,
    block_at: Place,
}

impl Records {
    pub fn new(files: Vec<File>) -> Self {
        Self {
            files,
            at: Place::START,
            end: None,
            block: Vec::new(),
            block_at: Place::START,
        }
    }

    /// The starts of all files, the oldest first.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn starts(&self) -> io::Result<Vec<Place>> {
        let numbers = self.files.iter().map(number_of);
        let numbers = numbers.collect::<io::Result<Vec<_>>>()?;
        let mut starts: Vec<_> = numbers.into_iter().flatten().map(Place::first).collect();
        starts.sort();
        Ok(starts)
    }

    /// The end as it is now.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn last(&self) -> io::Result<Place> {
        let Some(last) = self.starts()?.pop() else {
            return Ok(Place::START);
        };
        let length = match self.file(last.number)? {
            Some(file) => file.metadata()?.len(),
            None => 0,
        };
        Ok(Place {
            offset: length.max(HEADER),
            ..last
        })
    }

    /// Where a writer goes on after the last record: the index of its file, the file's number, the
    /// offset in it, and the position in the output. `None`: no file was written.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn tail(&mut self) -> io::Result<Option<(usize, u64, u64, u64)>> {
        let mut last: Option<Place> = None;
        for start in self.starts()?.into_iter().rev() {
            // A file without records is the last one at most.
            let (mut position, end) = (None, last);
            (self.at, self.end) = (start, end);
            while let Some(head) = self.head()? {
                self.at.offset += RECORD + u64::from(head.length);
                position = Some(head.end());
            }
            let Place { number, offset } = *last.get_or_insert(self.at);
            if let Some(position) = position {
                let numbers = self.files.iter().map(number_of);
                let numbers = numbers.collect::<io::Result<Vec<_>>>()?;
                let index = numbers.iter().position(|found| *found == Some(number));
                return Ok(index.map(|index| (index, number, offset, position)));
            }
        }
        Ok(None)
    }

    /// The files.
    pub fn into_files(self) -> Vec<File> {
        self.files
    }

    /// The next record, which the reader goes to; `None`: there is none yet.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn head(&mut self) -> io::Result<Option<Head>> {
        // A writer that goes on to later files all the time must not keep the reader here.
        for _ in 0..=MAX_FILES {
            if self.end.is_some_and(|end| self.at >= end) {
                return Ok(None);
            }
            if let Some(head) = self.find()? {
                return Ok(Some(head));
            }
            let starts = self.starts()?.into_iter();
            let later = starts.filter(|start| start.number > self.at.number).min();
            let Some(later) = later else {
                return Ok(None);
            };
            // The writer adds nothing to a file once it writes the next one, but it may have done so
            // since the look above.
            if let Some(head) = self.find()? {
                return Ok(Some(head));
            }
            self.at = later;
        }
        Ok(None)
    }

    /// Reads the next record; `None`: there is none yet.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn read(&mut self) -> io::Result<Option<(Head, &[u8])>> {
        let Some(head) = self.head()? else {
            return Ok(None);
        };
        self.at.offset += RECORD + u64::from(head.length);
        let end = usize::try_from(self.at.offset - self.block_at.offset).unwrap_or(0);
        let start = end.saturating_sub(head.length as usize);
        Ok(self.block.get(start..end).map(|bytes| (head, bytes)))
    }

    /// Goes to the first record for which `is_before` is false.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn skip_while(&mut self, is_before: impl Fn(&Head) -> bool) -> io::Result<()> {
        while let Some(head) = self.head()?
            && is_before(&head)
        {
            self.at.offset += RECORD + u64::from(head.length);
        }
        Ok(())
    }

    /// The record at the present place, if it is complete: the block then has it all.
    fn find(&mut self) -> io::Result<Option<Head>> {
        if let Some(head) = self.in_block() {
            return Ok(Some(head));
        }
        self.load()?;
        Ok(self.in_block())
    }

    /// The record at the present place, if the block has it all.
    fn in_block(&self) -> Option<Head> {
        if self.at.number != self.block_at.number {
            return None;
        }
        let skipped = self.at.offset.checked_sub(self.block_at.offset)?;
        let rest = self.block.get(usize::try_from(skipped).ok()?..)?;
        let (head, rest) = rest.split_first_chunk()?;
        let head = Head::from_bytes(*head)?;
        (rest.len() >= head.length as usize).then_some(head)
    }

    /// Reads the block at the present place.
    fn load(&mut self) -> io::Result<()> {
        self.block_at = self.at;
        self.block.clear();
        let Some(file) = self.file(self.at.number)? else {
            return Ok(());
        };
        let mut block = vec![0; BLOCK];
        let count = file.read_at(&mut block, self.at.offset)?;
        if number_of(file)? == Some(self.at.number) {
            block.truncate(count);
            self.block = block;
        }
        Ok(())
    }

    /// The file with a number.
    fn file(&self, number: u64) -> io::Result<Option<&File>> {
        for file in &self.files {
            if number != 0 && number_of(file)? == Some(number) {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }
}

/// The number of a file; `None`: it is empty.
fn number_of(file: &File) -> io::Result<Option<u64>> {
    let mut header = [0; HEADER_LENGTH];
    let count = file.read_at(&mut header, 0)?;
    let (magic, number) = header.split_at(MAGIC.len());
    let number = number.try_into().map_or(0, u64::from_le_bytes);
    let is_valid = count == header.len() && magic == MAGIC && number != 0;
    Ok(is_valid.then_some(number))
}
