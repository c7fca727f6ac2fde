//! Translation image files ([`hartline_abi::image`]): building and checking them.

mod outline;

use crate::key::Key;
use crate::link::{Layout, Linked};
use crate::table::{table, table_length};
use hartline_abi::ABI_VERSION;
use hartline_abi::hart::PINNED_X;
use hartline_abi::image::{
    AccessEntry, ExtentEntry, FunctionEntry, HEADER_SIZE, ImageHeader, MAGIC, directory_length,
    variant,
};
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE};
use sha2::{Digest, Sha256};
use std::fmt;
use std::ops::Range;

pub use outline::{Outline, outline};

/// The length of the header's fields, bytes.
const HEADER_FIELDS: usize = size_of::<ImageHeader>();
/// The position of the checksum.
const CHECKSUM: Range<usize> = 48..80;
/// Bytes of a [`FunctionEntry`] in the file.
const FUNCTION_SIZE: u64 = size_of::<FunctionEntry>() as u64;
/// Bytes of an [`AccessEntry`] in the file.
const ACCESS_SIZE: u64 = size_of::<AccessEntry>() as u64;
/// Bytes of an [`ExtentEntry`] in the file.
const EXTENT_SIZE: u64 = size_of::<ExtentEntry>() as u64;
/// No function starts below this host code offset: the bytes there are padding.
const CODE_PADDING: u32 = 16;
/// The largest guest text and the largest part of an image, bytes; offsets cannot overflow.
const MAX_PART: u64 = 1 << 32;

const _: () = assert!(HEADER_FIELDS == 200 && FUNCTION_SIZE == 16);
const _: () = assert!(ACCESS_SIZE == 12 && EXTENT_SIZE == 12);

/// Why bytes are not an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The file is shorter than the header, or differs from the length in the header.
    #[error("image of {have} bytes should have {needed}")]
    Length {
        /// Length expected, bytes.
        needed: u64,
        /// Length found, bytes.
        have: u64,
    },
    /// The file is not an image.
    #[error("not a translation image")]
    Magic,
    /// The image has another ABI version.
    #[error("image of ABI version {0}, not {ABI_VERSION}")]
    Version(u32),
    /// A variant that does not exist.
    #[error("image of unknown variant {0}")]
    Variant(u32),
    /// The image of another file, or made with other options.
    #[error("image of another key")]
    Key,
    /// The contents were changed after they were written.
    #[error("image checksum does not match")]
    Checksum,
    /// A part exceeds the maximum size.
    #[error("image part of {0:#x} bytes is too large")]
    TooLarge(u64),
    /// The parts are not at their expected offsets.
    #[error("image parts are not at their expected offsets")]
    Layout,
    /// The function at this guest address is out of order, outside the text, or
    /// its code outside the image's.
    #[error("image function at {0:#x} is misplaced")]
    Function(u64),
    /// The dispatch table does not list the functions.
    #[error("image dispatch table does not list the functions")]
    Table,
    /// The access at this host code offset is out of order, outside the code, of no guest
    /// instruction, or of an image that has none.
    #[error("image access at {0:#x} is misplaced")]
    Access(u32),
    /// The extent with this index is outside the text, or of no function.
    #[error("image extent {0} is misplaced")]
    Extent(usize),
}

/// Builds an image file from the code of `text` guest addresses. `variant` is a [variant].
///
/// # Errors
/// [`ImageError::Function`] or [`ImageError::TooLarge`]: the parts do not fit each other.
pub fn build(
    key: &Key,
    variant: u32,
    text: Range<u64>,
    linked: &Linked,
) -> Result<Vec<u8>, ImageError> {
    let mut file = build_for_memory(key, variant, text, linked)?;
    let checksum = checksum(&file);
    file[CHECKSUM].copy_from_slice(&checksum);
    Ok(file)
}

/// As [`build`], for an image that only this process gives to a VM: without the checksum, so that
/// [`Image::open`] and the cache refuse it.
///
/// # Errors
/// As [`build`].
pub fn build_for_memory(
    key: &Key,
    variant: u32,
    text: Range<u64>,
    linked: &Linked,
) -> Result<Vec<u8>, ImageError> {
    let text_length = text.end.saturating_sub(text.start).next_multiple_of(2);
    let mut last = None;
    for function in &linked.functions {
        check_function(function, last, &text, linked.code.len() as u64)?;
        last = Some(function.guest);
    }
    check_accesses(
        &linked.accesses,
        variant,
        text_length,
        linked.code.len() as u64,
    )?;
    check_extents(&linked.extents, linked.functions.len() as u64, text_length)?;
    let table = table(text.start, text_length, &linked.functions);
    let code_length = match linked.alignment {
        // The rest of the last page is code that traps, so that the page is executable as a whole.
        HUGE_PAGE_SIZE => linked.code.len().next_multiple_of(HUGE_PAGE_SIZE as usize),
        _ => linked.code.len(),
    };
    let lengths = Lengths {
        text: text_length,
        table: table.len() as u64,
        code: code_length as u64,
        data: linked.data.len() as u64,
        functions: linked.functions.len() as u64,
        accesses: linked.accesses.len() as u64,
        extents: linked.extents.len() as u64,
    };
    let layout = lengths.layout(linked.alignment)?;
    let (accesses, extents) = (lengths.accesses(&layout), lengths.extents(&layout));
    let file_length = extents + lengths.extents * EXTENT_SIZE;
    let mut file = vec![0; file_length as usize];
    let mut put = |offset: u64, bytes: &[u8]| {
        let offset = offset as usize;
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    put(layout.table, &table);
    put(layout.code, &linked.code);
    put(
        layout.code + linked.code.len() as u64,
        &vec![0xcc; code_length - linked.code.len()],
    );
    put(layout.data, &linked.data);
    for (number, function) in linked.functions.iter().enumerate() {
        put(
            layout.functions + number as u64 * FUNCTION_SIZE,
            &function_bytes(function),
        );
    }
    for (number, access) in linked.accesses.iter().enumerate() {
        put(
            accesses + number as u64 * ACCESS_SIZE,
            &access_bytes(access),
        );
    }
    for (number, extent) in linked.extents.iter().enumerate() {
        put(extents + number as u64 * EXTENT_SIZE, &extent_bytes(extent));
    }
    let header = ImageHeader {
        magic: MAGIC,
        abi_version: ABI_VERSION,
        variant,
        key: *key.bytes(),
        checksum: [0; 32],
        file_length,
        text_start: text.start,
        text_length: lengths.text,
        table_offset: layout.table,
        table_length: lengths.table,
        code_offset: layout.code,
        code_length: lengths.code,
        data_offset: layout.data,
        data_length: lengths.data,
        functions_offset: layout.functions,
        functions_count: lengths.functions,
        accesses_offset: accesses,
        accesses_count: lengths.accesses,
        extents_offset: extents,
        extents_count: lengths.extents,
    };
    file[..HEADER_FIELDS].copy_from_slice(&header_bytes(&header));
    Ok(file)
}

/// Lengths of the parts of an image.
struct Lengths {
    /// Guest text, bytes.
    text: u64,
    /// Dispatch table, bytes.
    table: u64,
    /// Host code, bytes.
    code: u64,
    /// Constants, bytes.
    data: u64,
    /// Number of functions.
    functions: u64,
    /// Number of accesses.
    accesses: u64,
    /// Number of extents.
    extents: u64,
}

impl Lengths {
    fn layout(&self, alignment: u64) -> Result<Layout, ImageError> {
        let parts = [
            self.text,
            self.table,
            self.code,
            self.data,
            self.functions,
            self.accesses,
            self.extents,
        ];
        match parts.into_iter().find(|&length| length > MAX_PART) {
            Some(length) => Err(ImageError::TooLarge(length)),
            None => Ok(Layout::new(self.table, self.code, self.data, alignment)),
        }
    }

    /// The offset of the accesses, which follow the functions.
    fn accesses(&self, layout: &Layout) -> u64 {
        layout.functions + self.functions * FUNCTION_SIZE
    }

    /// The offset of the extents, which follow the accesses.
    fn extents(&self, layout: &Layout) -> u64 {
        self.accesses(layout) + self.accesses * ACCESS_SIZE
    }
}

/// Checks an image file that is read in pieces, without keeping them: the file must be complete,
/// unchanged, and of the expected key. The checker does not check the parts, as [`Image::open`]
/// does.
#[derive(Debug)]
pub struct Checker {
    key: Key,
    header: Vec<u8>,
    length: u64,
    hash: Sha256,
}

impl Checker {
    /// Creates a checker for the image of a key.
    #[must_use]
    pub fn new(key: Key) -> Self {
        Self {
            key,
            header: Vec::with_capacity(HEADER_FIELDS),
            length: 0,
            hash: Sha256::new(),
        }
    }

    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.length += piece.len() as u64;
        let missing = HEADER_FIELDS - self.header.len();
        let (start, rest) = piece.split_at(missing.min(piece.len()));
        self.header.extend_from_slice(start);
        if missing > 0 && self.header.len() == HEADER_FIELDS {
            let mut header = self.header.clone();
            header[CHECKSUM].fill(0);
            self.hash.update(&header);
        }
        self.hash.update(rest);
    }

    /// Checks all pieces.
    ///
    /// # Errors
    /// The first error found.
    pub fn finish(self) -> Result<(), ImageError> {
        let have = self.length;
        let needed = HEADER_SIZE;
        let header = read_header(&self.header).filter(|_| have >= needed);
        let header = header.ok_or(ImageError::Length { needed, have })?;
        if header.magic != MAGIC {
            return Err(ImageError::Magic);
        }
        if header.abi_version != ABI_VERSION {
            return Err(ImageError::Version(header.abi_version));
        }
        if header.file_length != have {
            let needed = header.file_length;
            return Err(ImageError::Length { needed, have });
        }
        if header.key != *self.key.bytes() {
            return Err(ImageError::Key);
        }
        match header.checksum == *self.hash.finalize() {
            true => Ok(()),
            false => Err(ImageError::Checksum),
        }
    }
}

/// An image file that passed all checks.
#[derive(Clone, Copy)]
pub struct Image<'a> {
    bytes: &'a [u8],
    header: ImageHeader,
}

impl fmt::Debug for Image<'_> {
    /// Prints the header only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header.fmt(f)
    }
}

impl<'a> Image<'a> {
    /// Checks a whole file.
    ///
    /// # Errors
    /// The first error found.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ImageError> {
        let image = Self::open_in_memory(bytes)?;
        match checksum(bytes) == image.header.checksum {
            true => Ok(image),
            false => Err(ImageError::Checksum),
        }
    }

    /// As [`open`](Self::open), for an image of this process's VM, which may have no checksum
    /// ([`build_for_memory`]).
    ///
    /// # Errors
    /// The first error found.
    pub fn open_in_memory(bytes: &'a [u8]) -> Result<Self, ImageError> {
        let have = bytes.len() as u64;
        let needed = HEADER_SIZE;
        if have < needed {
            return Err(ImageError::Length { needed, have });
        }
        let header = read_header(bytes).ok_or(ImageError::Length { needed, have })?;
        if header.magic != MAGIC {
            return Err(ImageError::Magic);
        }
        if header.abi_version != ABI_VERSION {
            return Err(ImageError::Version(header.abi_version));
        }
        if !variant::ALL.contains(&header.variant) {
            return Err(ImageError::Variant(header.variant));
        }
        if header.file_length != have {
            return Err(ImageError::Length {
                needed: header.file_length,
                have,
            });
        }
        let image = Self { bytes, header };
        image.check_layout()?;
        image.check_functions()?;
        let accesses: Vec<AccessEntry> = image.accesses().collect();
        check_accesses(
            &accesses,
            header.variant,
            header.text_length,
            header.code_length,
        )?;
        let extents: Vec<ExtentEntry> = image.extents().collect();
        check_extents(&extents, header.functions_count, header.text_length)?;
        Ok(image)
    }

    /// Returns the header; all its offsets and lengths are valid.
    #[must_use]
    pub fn header(&self) -> &ImageHeader {
        &self.header
    }

    /// Host code.
    #[must_use]
    pub fn code(&self) -> &'a [u8] {
        self.part(self.header.code_offset, self.header.code_length)
    }

    /// Constants and jump tables of the code.
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.part(self.header.data_offset, self.header.data_length)
    }

    /// All functions, sorted by guest address.
    pub fn functions(&self) -> impl Iterator<Item = FunctionEntry> + 'a {
        let length = self.header.functions_count * FUNCTION_SIZE;
        let (entries, _) = self
            .part(self.header.functions_offset, length)
            .as_chunks::<16>();
        entries.iter().map(|entry| FunctionEntry {
            guest: u64_at(entry, 0),
            host: u32_at(entry, 8),
            host_length: u32_at(entry, 12),
        })
    }

    /// All accesses of the baseline translator's code, sorted by host offset.
    pub fn accesses(&self) -> impl Iterator<Item = AccessEntry> + 'a {
        let length = self.header.accesses_count * ACCESS_SIZE;
        let (entries, _) = self
            .part(self.header.accesses_offset, length)
            .as_chunks::<12>();
        entries.iter().map(|entry| AccessEntry {
            host: u32_at(entry, 0),
            guest: u32_at(entry, 4),
            in_hart: u32_at(entry, 8),
        })
    }

    /// The guest code of the functions, in their order.
    pub fn extents(&self) -> impl Iterator<Item = ExtentEntry> + 'a {
        let length = self.header.extents_count * EXTENT_SIZE;
        let (entries, _) = self
            .part(self.header.extents_offset, length)
            .as_chunks::<12>();
        entries.iter().map(|entry| ExtentEntry {
            function: u32_at(entry, 0),
            start: u32_at(entry, 4),
            length: u32_at(entry, 8),
        })
    }

    /// Returns the function whose code contains an offset into [`code`](Image::code).
    #[must_use]
    pub fn function_at(&self, host: u64) -> Option<FunctionEntry> {
        self.functions().find(|function| {
            let start = u64::from(function.host);
            (start..start + u64::from(function.host_length)).contains(&host)
        })
    }

    fn part(&self, offset: u64, length: u64) -> &'a [u8] {
        let range = offset as usize..(offset + length) as usize;
        self.bytes.get(range).unwrap_or(&[])
    }

    fn check_layout(&self) -> Result<(), ImageError> {
        let header = &self.header;
        let lengths = Lengths {
            text: header.text_length,
            table: header.table_length,
            code: header.code_length,
            data: header.data_length,
            functions: header.functions_count,
            accesses: header.accesses_count,
            extents: header.extents_count,
        };
        // Lengths that are too large for the arithmetic below are refused here.
        let layouts = [lengths.layout(PAGE_SIZE)?, lengths.layout(HUGE_PAGE_SIZE)?];
        let even = header.text_start.is_multiple_of(2) && header.text_length.is_multiple_of(2);
        let wraps = header.text_start.checked_add(header.text_length).is_none();
        let short = directory_length(header.text_length) > header.table_length;
        let fits = |layout| is_laid_out(header, &lengths, layout);
        match even && !wraps && !short && layouts.iter().any(fits) {
            true => Ok(()),
            false => Err(ImageError::Layout),
        }
    }

    fn check_functions(&self) -> Result<(), ImageError> {
        let header = &self.header;
        let text = header.text_start..header.text_start + header.text_length;
        let functions: Vec<FunctionEntry> = self.functions().collect();
        let mut last = None;
        for function in &functions {
            check_function(function, last, &text, header.code_length)?;
            last = Some(function.guest);
        }
        let dispatched = functions.iter().filter(|f| f.is_dispatched());
        let offsets = dispatched.map(|f| f.guest - header.text_start);
        if table_length(header.text_length, offsets) != header.table_length {
            return Err(ImageError::Table);
        }
        let expected = table(header.text_start, header.text_length, &functions);
        match *self.part(header.table_offset, header.table_length) == *expected {
            true => Ok(()),
            false => Err(ImageError::Table),
        }
    }
}

/// Whether the parts of an image are where `layout` has them, and the file ends after the last one.
fn is_laid_out(header: &ImageHeader, lengths: &Lengths, layout: &Layout) -> bool {
    let (accesses, extents) = (lengths.accesses(layout), lengths.extents(layout));
    let expected = [
        layout.table,
        layout.code,
        layout.data,
        layout.functions,
        accesses,
        extents,
        extents + lengths.extents * EXTENT_SIZE,
    ];
    let found = [
        header.table_offset,
        header.code_offset,
        header.data_offset,
        header.functions_offset,
        header.accesses_offset,
        header.extents_offset,
        header.file_length,
    ];
    expected == found
}

/// Checks a function against the previous one and against the parts that it points into.
fn check_function(
    function: &FunctionEntry,
    last: Option<u64>,
    text: &Range<u64>,
    code_length: u64,
) -> Result<(), ImageError> {
    let FunctionEntry {
        guest,
        host,
        host_length,
    } = *function;
    let address = function.address();
    let in_text = text.contains(&address) && (address - text.start).is_multiple_of(2);
    let in_code = host >= CODE_PADDING && u64::from(host) + u64::from(host_length) <= code_length;
    let sorted = last.is_none_or(|last| last < guest);
    if in_text && in_code && sorted {
        Ok(())
    } else {
        Err(ImageError::Function(guest))
    }
}

/// Checks the accesses of an image.
fn check_accesses(
    accesses: &[AccessEntry],
    variant: u32,
    text_length: u64,
    code_length: u64,
) -> Result<(), ImageError> {
    let pinned = PINNED_X.iter().fold(0, |set, register| set | 1 << register);
    let mut last = None;
    for access in accesses {
        let in_code = access.host >= CODE_PADDING && u64::from(access.host) < code_length;
        let in_text = u64::from(access.guest) < text_length && access.guest.is_multiple_of(2);
        let sorted = last.is_none_or(|last| last < access.host);
        let right = in_code && in_text && sorted && access.in_hart & !pinned == 0;
        if !right || !variant::is_baseline(variant) {
            return Err(ImageError::Access(access.host));
        }
        last = Some(access.host);
    }
    Ok(())
}

/// Checks the extents of an image with this number of functions.
fn check_extents(
    extents: &[ExtentEntry],
    functions: u64,
    text_length: u64,
) -> Result<(), ImageError> {
    let is_right = |extent: &ExtentEntry| {
        let end = u64::from(extent.start) + u64::from(extent.length);
        u64::from(extent.function) < functions && end <= text_length
    };
    match extents.iter().position(|extent| !is_right(extent)) {
        Some(wrong) => Err(ImageError::Extent(wrong)),
        None => Ok(()),
    }
}

/// Returns the SHA-256 of a file, with zeros in place of the checksum.
fn checksum(file: &[u8]) -> [u8; 32] {
    let (before, rest) = file.split_at(CHECKSUM.start);
    let after = rest.get(CHECKSUM.len()..).unwrap_or(&[]);
    let hash = Sha256::new()
        .chain_update(before)
        .chain_update([0; CHECKSUM.end - CHECKSUM.start]);
    hash.chain_update(after).finalize().into()
}

pub(crate) fn function_bytes(function: &FunctionEntry) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&function.guest.to_le_bytes());
    bytes[8..12].copy_from_slice(&function.host.to_le_bytes());
    bytes[12..].copy_from_slice(&function.host_length.to_le_bytes());
    bytes
}

pub(crate) fn access_bytes(access: &AccessEntry) -> [u8; ACCESS_SIZE as usize] {
    let mut bytes = [0; ACCESS_SIZE as usize];
    bytes[..4].copy_from_slice(&access.host.to_le_bytes());
    bytes[4..8].copy_from_slice(&access.guest.to_le_bytes());
    bytes[8..].copy_from_slice(&access.in_hart.to_le_bytes());
    bytes
}

fn extent_bytes(extent: &ExtentEntry) -> [u8; EXTENT_SIZE as usize] {
    let mut bytes = [0; EXTENT_SIZE as usize];
    bytes[..4].copy_from_slice(&extent.function.to_le_bytes());
    bytes[4..8].copy_from_slice(&extent.start.to_le_bytes());
    bytes[8..].copy_from_slice(&extent.length.to_le_bytes());
    bytes
}

fn header_bytes(header: &ImageHeader) -> [u8; HEADER_FIELDS] {
    let mut bytes = [0; HEADER_FIELDS];
    bytes[..8].copy_from_slice(&header.magic);
    bytes[8..12].copy_from_slice(&header.abi_version.to_le_bytes());
    bytes[12..16].copy_from_slice(&header.variant.to_le_bytes());
    bytes[16..48].copy_from_slice(&header.key);
    bytes[48..80].copy_from_slice(&header.checksum);
    let numbers = [
        header.file_length,
        header.text_start,
        header.text_length,
        header.table_offset,
        header.table_length,
        header.code_offset,
        header.code_length,
        header.data_offset,
        header.data_length,
        header.functions_offset,
        header.functions_count,
        header.accesses_offset,
        header.accesses_count,
        header.extents_offset,
        header.extents_count,
    ];
    for (field, number) in bytes[80..].as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
        *field = number.to_le_bytes();
    }
    bytes
}

fn read_header(bytes: &[u8]) -> Option<ImageHeader> {
    let bytes: &[u8; HEADER_FIELDS] = bytes.first_chunk()?;
    Some(ImageHeader {
        magic: *bytes.first_chunk()?,
        abi_version: u32_at(bytes, 8),
        variant: u32_at(bytes, 12),
        key: *bytes[16..].first_chunk()?,
        checksum: *bytes[48..].first_chunk()?,
        file_length: u64_at(bytes, 80),
        text_start: u64_at(bytes, 88),
        text_length: u64_at(bytes, 96),
        table_offset: u64_at(bytes, 104),
        table_length: u64_at(bytes, 112),
        code_offset: u64_at(bytes, 120),
        code_length: u64_at(bytes, 128),
        data_offset: u64_at(bytes, 136),
        data_length: u64_at(bytes, 144),
        functions_offset: u64_at(bytes, 152),
        functions_count: u64_at(bytes, 160),
        accesses_offset: u64_at(bytes, 168),
        accesses_count: u64_at(bytes, 176),
        extents_offset: u64_at(bytes, 184),
        extents_count: u64_at(bytes, 192),
    })
}

/// Reads a little-endian number at an offset inside the array.
fn u32_at<const N: usize>(bytes: &[u8; N], offset: usize) -> u32 {
    bytes[offset..]
        .first_chunk()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// As [`u32_at`].
fn u64_at<const N: usize>(bytes: &[u8; N], offset: usize) -> u64 {
    bytes[offset..]
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
pub(crate) mod tests;
