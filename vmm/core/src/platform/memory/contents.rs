//! Contents that several mappings begin with.

use super::super::Error;
use super::{ALIGNMENT, Mapping, PAGE, failed};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Contents are copied in blocks of this length, bytes.
const BLOCK: usize = ALIGNMENT;

/// Contents of memory in a sealed file in memory.
#[derive(Debug)]
pub struct Contents {
    what: &'static str,
    file: File,
    length: u64,
    /// Ranges of whole blocks that are not zero.
    used: Vec<Range<u64>>,
    /// What the first VM has written of memory that began with them.
    hot: OnceLock<Vec<Range<u64>>>,
}

impl Contents {
    /// Takes the contents of `memory`, which nothing changes meanwhile. Outside of `touched` it is zero.
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses.
    pub fn of(
        (what, name): (&'static str, &CStr),
        memory: &Mapping,
        touched: &[Range<u64>],
    ) -> Result<Self, Error> {
        let length = memory.length();
        let failed = || failed(what, length);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(name, flags).map_err(io::Error::from);
        let file = File::from(file.map_err(failed())?);
        let sized = ftruncate(&file, length).map_err(io::Error::from);
        sized.map_err(failed())?;
        let used = copy(memory, touched, &file, failed)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        let sealed = fcntl_add_seals(&file, seals).map_err(io::Error::from);
        sealed.map_err(failed())?;
        Ok(Self {
            what,
            file,
            length,
            used,
            hot: OnceLock::new(),
        })
    }

    /// The contents of a file of `length` bytes, which is zero outside of `used`: ranges of whole blocks in ascending order.
    /// Nothing changes the file as long as memory shows it.
    #[must_use]
    pub fn of_file(what: &'static str, file: File, length: u64, used: Vec<Range<u64>>) -> Self {
        Self {
            what,
            file,
            length,
            used,
            hot: OnceLock::new(),
        }
    }

    /// Length, bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Ranges of whole blocks that are not zero, in ascending order.
    #[must_use]
    pub fn used(&self) -> &[Range<u64>] {
        &self.used
    }

    /// Gives writable memory of the same length these contents. Pages are copied when they are written.
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses.
    pub fn show_in(&self, memory: &Mapping) -> Result<(), Error> {
        let mut end = 0;
        for range in &self.used {
            if end < range.start {
                memory.replace(self.what, end..range.start)?;
            }
            let length = range.end - range.start;
            memory.overlay(self.what, range.start, (&self.file, range.start), length)?;
            end = range.end;
        }
        if end < self.length {
            memory.replace(self.what, end..self.length)?;
        }
        Ok(())
    }

    /// Notes what a VM has written that began with these contents: whole pages in ascending order. Only the first note counts.
    pub fn note_hot(&self, written: &[Range<u64>]) {
        self.hot.get_or_init(|| written.to_vec());
    }

    /// What the first VM has written.
    #[must_use]
    pub fn hot(&self) -> &[Range<u64>] {
        self.hot.get().map_or(&[], Vec::as_slice)
    }

    /// Read-only memory with these contents.
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses.
    pub fn mapping(&self) -> Result<Mapping, Error> {
        Mapping::file(self.what, &self.file, self.length)
    }
}

/// Copies the touched blocks of memory that are not zero to the same offsets of a file. Result: their ranges,
/// adjacent ones together.
fn copy<F: FnOnce(io::Error) -> Error>(
    memory: &Mapping,
    touched: &[Range<u64>],
    file: &File,
    failed: impl Fn() -> F,
) -> Result<Vec<Range<u64>>, Error> {
    let mut used: Vec<Range<u64>> = Vec::new();
    let mut block = vec![0; BLOCK];
    for start in (0..memory.length()).step_by(BLOCK) {
        let after = touched.partition_point(|range| range.end <= start);
        let is_touched = |range: &Range<u64>| range.start < start + BLOCK as u64;
        if !touched.get(after).is_some_and(is_touched) {
            continue;
        }
        memory.read(start, &mut block)?;
        let mut any = false;
        for (page, at) in block.chunks(PAGE).zip((start..).step_by(PAGE)) {
            if page.iter().any(|&byte| byte != 0) {
                any = true;
                file.write_all_at(page, at).map_err(failed())?;
            }
        }
        let end = start + BLOCK as u64;
        match used.last_mut() {
            _ if !any => {}
            Some(last) if last.end == start => last.end = end,
            _ => used.push(start..end),
        }
    }
    Ok(used)
}
