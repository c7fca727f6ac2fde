//! Placing a translation image into its window.

use super::{Builder, Error, Permission};
use crate::platform::Mapping;
use hartline_abi::boot::ImageEntry;
use hartline_abi::image::{HEADER_SIZE, ImageHeader, MAGIC};
use hartline_abi::layout::{IMAGE_BASE, IMAGE_STRIDE, PAGE_SIZE, RAM_GPA};
use std::fs::File;

/// A translation image, checked by whoever made or cached it.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// The image file.
    pub file: &'a File,
    /// Its length, bytes.
    pub length: u64,
    /// Index of the ELF file it was made from.
    pub source: u64,
}

impl Image<'_> {
    /// Maps the image into window `number`: code executable, everything else not.
    pub(super) fn place(
        &self,
        builder: &mut Builder<'_>,
        number: u64,
    ) -> Result<ImageEntry, Error> {
        let code = code_range(self.file, self.length)?;
        let window = IMAGE_BASE + number * IMAGE_STRIDE;
        let data_page = RAM_GPA + builder.take_page();
        builder
            .tables
            .map(window, data_page, PAGE_SIZE, Permission::ReadWrite)?;
        let gpa = builder.add_file_slot("translation image", self.file, self.length)?;
        let end = self.length.next_multiple_of(PAGE_SIZE);
        let file = window + PAGE_SIZE;
        for (from, to, permission) in [
            (0, code.0, Permission::Read),
            (code.0, code.1, Permission::ReadExecute),
            (code.1, end, Permission::Read),
        ] {
            builder
                .tables
                .map(file + from, gpa + from, to - from, permission)?;
        }
        Ok(ImageEntry {
            address: window,
            length: self.length,
            file: self.source,
        })
    }
}

/// The pages of the image that hold code: offsets of their start and end.
fn code_range(file: &File, length: u64) -> Result<(u64, u64), Error> {
    if !(HEADER_SIZE..=IMAGE_STRIDE - PAGE_SIZE).contains(&length) {
        return Err(Error::Image("length"));
    }
    let mapping = Mapping::file("translation image", file, HEADER_SIZE)?;
    // SAFETY: the header consists of integers.
    let header = unsafe { mapping.read_value::<ImageHeader>(0) }?;
    if header.magic != MAGIC || header.abi_version != hartline_abi::ABI_VERSION {
        return Err(Error::Image("magic number or version"));
    }
    let start = header.code_offset;
    let end = start
        .checked_add(header.code_length)
        .filter(|&end| end <= length && start >= HEADER_SIZE && start % PAGE_SIZE == 0)
        .ok_or(Error::Image("place of the code"))?
        .next_multiple_of(PAGE_SIZE);
    // A page is code or data, not both.
    if (start + 1..end).contains(&header.data_offset) {
        return Err(Error::Image("data among the code"));
    }
    Ok((start, end))
}
