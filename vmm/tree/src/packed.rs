//! A packed tree: its image, and the file that parts of the image are shown from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A tree image ([`hartline_abi::tree`]).
#[derive(Debug)]
pub struct TreeImage {
    file: File,
    length: u64,
    base: Option<Base>,
}

/// A file that is not copied into the image: parts of it are shown instead of parts of the
/// image's own file. It must not change as long as the tree is used.
#[derive(Debug)]
pub struct Base {
    /// The file.
    pub file: File,
    /// Its length, bytes.
    pub length: u64,
    /// What is shown, by rising offset in the image. They do not overlap.
    pub extents: Vec<Extent>,
}

/// A part of an image that is shown from its [`Base`]. All numbers are multiples of the
/// page size; only the last page may go beyond the end of the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the image.
    pub offset: u64,
    /// Offset in the base.
    pub source: u64,
    /// Bytes.
    pub length: u64,
}

impl TreeImage {
    /// The image that `file` is as a whole.
    ///
    /// # Errors
    /// The attributes of the file cannot be read.
    pub fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self {
            file,
            length,
            base: None,
        })
    }

    /// An image of which a part is shown from `base`.
    pub(super) fn with_base(file: File, length: u64, base: Option<Base>) -> Self {
        Self { file, length, base }
    }

    /// The image's own file; what the base shows is zeros there.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Length of the image, bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What a part of it is shown from.
    #[must_use]
    pub fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    /// Fills `bytes` from offset `at`.
    ///
    /// # Errors
    /// Whatever the host answers; also if the image ends before.
    pub fn read_exact_at(&self, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
        let Some(base) = &self.base else {
            return self.file.read_exact_at(bytes, at);
        };
        while !bytes.is_empty() {
            let next = base.extents.partition_point(|e| e.offset + e.length <= at);
            let extent = base.extents.get(next);
            let (file, from, room) = match extent {
                Some(e) if e.offset <= at => {
                    let within = at - e.offset;
                    (&base.file, e.source + within, e.length - within)
                }
                Some(e) => (&self.file, at, e.offset - at),
                None => (&self.file, at, u64::MAX),
            };
            let length = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            let (part, rest) = bytes.split_at_mut(length);
            file.read_exact_at(part, from)?;
            bytes = rest;
            at += length as u64;
        }
        Ok(())
    }
}
