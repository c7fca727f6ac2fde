//! The functions of an image file, without its code.

use super::{FUNCTION_SIZE, HEADER_FIELDS, MAGIC, read_header, u64_at};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What an image has, without its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Guest addresses of the functions, sorted.
    pub functions: Vec<u64>,
    /// Length of the host code, bytes.
    pub code_length: u64,
}

/// Reads the outline of a validated image.
///
/// # Errors
/// An I/O error of the host. `InvalidData`: the file is no image, or has another length than its
/// header says.
pub fn outline(file: &File) -> io::Result<Outline> {
    let mut bytes = [0; HEADER_FIELDS];
    file.read_exact_at(&mut bytes, 0)?;
    let have = file.metadata()?.len();
    let header = read_header(&bytes).filter(|header| header.magic == MAGIC);
    let header = header.filter(|header| header.file_length == have);
    let header = header.ok_or(io::ErrorKind::InvalidData)?;
    let length = header.functions_count.checked_mul(FUNCTION_SIZE);
    let length = length.filter(|&length| length <= have);
    let length = length.ok_or(io::ErrorKind::InvalidData)?;
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut functions = vec![0; length];
    file.read_exact_at(&mut functions, header.functions_offset)?;
    let (entries, _) = functions.as_chunks::<16>();
    Ok(Outline {
        functions: entries.iter().map(|entry| u64_at(entry, 0)).collect(),
        code_length: header.code_length,
    })
}
