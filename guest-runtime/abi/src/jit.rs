//! Translations of code that programs make at run time.
//!
//! ```text
//! translation + 0              [`ImageData`](crate::image::ImageData) with a bias of 0
//! translation + CODE_OFFSET    x86-64 code
//! at the next multiple of 8    [`FunctionEntry`](crate::image::FunctionEntry), sorted by guest address
//! then                         [`AccessEntry`](crate::image::AccessEntry), sorted by host offset
//! ```

use crate::image::{AccessEntry, FunctionEntry};
use core::mem::size_of;

/// Alignment of translations, bytes.
pub const ALIGNMENT: u64 = 64;

/// Offset of the code in a translation, bytes.
pub const CODE_OFFSET: u64 = 64;

/// The parts of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Length of the code, bytes.
    pub code: u64,
    /// Number of functions.
    pub functions: u64,
    /// Number of accesses.
    pub accesses: u64,
}

impl Layout {
    /// Offset of the functions in the translation; `None`: it is not representable.
    #[must_use]
    pub fn functions_offset(&self) -> Option<u64> {
        let end = CODE_OFFSET.checked_add(self.code)?;
        end.checked_next_multiple_of(8)
    }

    /// Offset of the accesses; `None`: it is not representable.
    #[must_use]
    pub fn accesses_offset(&self) -> Option<u64> {
        let length = self
            .functions
            .checked_mul(size_of::<FunctionEntry>() as u64)?;
        self.functions_offset()?.checked_add(length)
    }

    /// Length of the translation, bytes; `None`: it is not representable.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        let length = self.accesses.checked_mul(size_of::<AccessEntry>() as u64)?;
        self.accesses_offset()?.checked_add(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other() {
        let layout = Layout {
            code: 3,
            functions: 2,
            accesses: 1,
        };
        assert_eq!(layout.functions_offset(), Some(72));
        assert_eq!(layout.accesses_offset(), Some(104));
        assert_eq!(layout.length(), Some(116));
        let huge = Layout {
            functions: u64::MAX / 16,
            ..layout
        };
        assert_eq!(huge.length(), None);
    }
}
