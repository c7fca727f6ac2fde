//! Translation images: which host function runs which guest address.

use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::ABI_VERSION;
use hartline_abi::image::{FunctionEntry, ImageHeader, MAGIC, MISS};

/// One image, checked.
#[derive(Debug, Clone)]
pub struct Image {
    /// Guest text that it translates, at its place in the address space.
    text: Range<u64>,
    /// Host code.
    code: Range<u64>,
    table: &'static [u32],
    functions: &'static [FunctionEntry],
    bias: u64,
}

/// A place in translated code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Guest address of the function's entry.
    pub function: u64,
    /// Bytes of host code from its entry.
    pub offset: u64,
}

impl Image {
    /// The image whose file is `bytes`, for a program loaded with `bias`. `None` if
    /// it is not a usable image.
    #[must_use]
    pub fn new(bytes: &'static [u8], bias: u64) -> Option<Image> {
        // SAFETY: a header is integers only; the slice is long enough.
        let header = unsafe {
            bytes
                .get(..size_of::<ImageHeader>())?
                .as_ptr()
                .cast::<ImageHeader>()
                .read_unaligned()
        };
        let usable = header.magic == MAGIC
            && header.abi_version == ABI_VERSION
            && header.text_start.is_multiple_of(2);
        if !usable {
            return None;
        }
        let start = header.text_start.checked_add(bias)?;
        let code = part(bytes, header.code_offset, header.code_length)?;
        let code = code.as_ptr_range();
        Some(Image {
            text: start..start.checked_add(header.text_length)?,
            code: code.start as u64..code.end as u64,
            table: array(bytes, header.table_offset, header.text_length / 2)?,
            functions: array(bytes, header.functions_offset, header.functions_count)?,
            bias,
        })
    }

    /// First guest address that it translates.
    #[must_use]
    pub fn text_start(&self) -> u64 {
        self.text.start
    }

    fn lookup(&self, pc: u64) -> Option<u64> {
        if !self.text.contains(&pc) {
            return None;
        }
        let slot = *self.table.get(((pc - self.text.start) / 2) as usize)?;
        let host = self.code.start + u64::from(slot);
        (slot != MISS && host < self.code.end).then_some(host)
    }
}

fn part(bytes: &'static [u8], offset: u64, length: u64) -> Option<&'static [u8]> {
    let offset = usize::try_from(offset).ok()?;
    let end = offset.checked_add(usize::try_from(length).ok()?)?;
    bytes.get(offset..end)
}

/// `count` elements at `offset`, if they are inside and aligned.
fn array<T: IntegersOnly>(bytes: &'static [u8], offset: u64, count: u64) -> Option<&'static [T]> {
    let bytes = part(bytes, offset, count.checked_mul(size_of::<T>() as u64)?)?;
    let pointer = bytes.as_ptr().cast::<T>();
    if !pointer.is_aligned() {
        return None;
    }
    // SAFETY: in bounds, aligned, never written; any bytes are a value of the type.
    Some(unsafe { core::slice::from_raw_parts(pointer, count as usize) })
}

/// Types for which any bytes are a value.
///
/// # Safety
/// Only integers inside, no padding.
unsafe trait IntegersOnly {}
// SAFETY: an integer.
unsafe impl IntegersOnly for u32 {}
// SAFETY: three integers that fill it.
unsafe impl IntegersOnly for FunctionEntry {}

/// All images of a program.
#[derive(Debug, Default)]
pub struct Images {
    images: Vec<Image>,
}

impl Images {
    /// Adds an image.
    pub fn add(&mut self, image: Image) {
        self.images.push(image);
    }

    /// The host function for the guest address `pc`, if it is the entry of one.
    #[must_use]
    pub fn lookup(&self, pc: u64) -> Option<u64> {
        self.images.iter().find_map(|image| image.lookup(pc))
    }

    /// Whether the host address `rip` is in translated code.
    #[must_use]
    pub fn contains_host(&self, rip: u64) -> bool {
        self.images.iter().any(|image| image.code.contains(&rip))
    }

    /// The guest function whose code contains the host address `rip`.
    #[must_use]
    pub fn locate(&self, rip: u64) -> Option<Location> {
        let image = self.images.iter().find(|image| image.code.contains(&rip))?;
        let offset = rip - image.code.start;
        image.functions.iter().find_map(|function| {
            let inside = offset.checked_sub(u64::from(function.host))?;
            (inside < u64::from(function.host_length)).then(|| Location {
                function: function.guest.wrapping_add(image.bias),
                offset: inside,
            })
        })
    }

    /// Forgets the images of text in `range`, which is about to change. `true` if
    /// there were any: then no host frame may be returned to.
    pub fn invalidate(&mut self, range: &Range<u64>) -> bool {
        let before = self.images.len();
        self.images
            .retain(|image| image.text.start >= range.end || image.text.end <= range.start);
        self.images.len() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_abi::image::HEADER_SIZE;

    /// An image of 16 bytes of text at 0x1000: one function at 0x1004, host offset 16.
    fn image_bytes(change: impl FnOnce(&mut ImageHeader)) -> &'static [u8] {
        let mut header = ImageHeader {
            magic: MAGIC,
            abi_version: ABI_VERSION,
            reserved: 0,
            key: [0; 32],
            checksum: [0; 32],
            file_length: 3 * HEADER_SIZE,
            text_start: 0x1000,
            text_length: 16,
            table_offset: HEADER_SIZE,
            code_offset: 2 * HEADER_SIZE,
            code_length: 64,
            data_offset: 2 * HEADER_SIZE,
            data_length: 0,
            functions_offset: 2 * HEADER_SIZE + 64,
            functions_count: 1,
        };
        change(&mut header);
        let words = vec![0u64; 3 * HEADER_SIZE as usize / 8].leak();
        let base = words.as_mut_ptr().cast::<u8>();
        let function = FunctionEntry {
            guest: 0x1004,
            host: 16,
            host_length: 32,
        };
        // SAFETY: all inside the leaked array, at aligned places.
        unsafe {
            base.cast::<ImageHeader>().write(header);
            base.add(HEADER_SIZE as usize + 8).cast::<u32>().write(16);
            base.add(2 * HEADER_SIZE as usize + 64)
                .cast::<FunctionEntry>()
                .write(function);
            core::slice::from_raw_parts(base, words.len() * 8)
        }
    }

    #[test]
    fn entries_are_found() {
        let bytes = image_bytes(|_| {});
        let code = bytes.as_ptr() as u64 + 2 * HEADER_SIZE;
        let mut images = Images::default();
        images.add(Image::new(bytes, 0x10_0000).unwrap());
        assert_eq!(images.lookup(0x10_1004), Some(code + 16));
        assert_eq!(images.lookup(0x10_1000), None);
        assert_eq!(images.lookup(0x1004), None);
        assert_eq!(images.lookup(0x10_1010), None);
        let location = images.locate(code + 20).unwrap();
        assert_eq!((location.function, location.offset), (0x10_1004, 4));
        assert_eq!(images.locate(code + 48), None);
        assert!(!images.invalidate(&(0..0x10_1000)));
        assert!(images.invalidate(&(0x10_100f..0x10_2000)));
        assert_eq!(images.lookup(0x10_1004), None);
    }

    #[test]
    fn damaged_images_are_refused() {
        assert!(Image::new(&[], 0).is_none());
        assert!(Image::new(image_bytes(|h| h.magic[0] = 0), 0).is_none());
        assert!(Image::new(image_bytes(|h| h.abi_version += 1), 0).is_none());
        assert!(Image::new(image_bytes(|h| h.code_length = 1 << 40), 0).is_none());
        assert!(Image::new(image_bytes(|h| h.code_offset = u64::MAX), 0).is_none());
        assert!(Image::new(image_bytes(|h| h.table_offset = 4097), 0).is_none());
        assert!(Image::new(image_bytes(|h| h.functions_count = u64::MAX), 0).is_none());
        assert!(Image::new(image_bytes(|h| h.text_length = u64::MAX), 0).is_none());
        let beyond = image_bytes(|h| h.code_length = 16);
        assert_eq!(Image::new(beyond, 0).unwrap().lookup(0x1004), None);
    }
}
