//! Pieces of machine code, for functions that are translated one after the other. Pieces are not
//! linked yet; a file keeps them for the next run of the program.
//!
//! ```text
//! magic "HARTPCS\0", SHA-256 of the cache key, SHA-256 of the file with this field
//! zero, number of pieces (u64); then for each piece: number of functions, number of
//! resume points, length of the object file (u64 each), link-time entry of each
//! function, address and function of each resume point (u64), the object file, padding
//! to 8 bytes
//! ```

use crate::key::Key;
use crate::link::{LinkError, Linked, ResumePoint, link};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// The first bytes of a file of pieces.
const MAGIC: &[u8; 8] = b"HARTPCS\0";
/// The position of the checksum.
const CHECKSUM: Range<usize> = 40..72;
/// Bytes before the first piece.
const HEADER: usize = 80;

/// The machine code of some functions of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Link-time entries of the functions.
    pub functions: Vec<u64>,
    /// Further addresses at which they can be entered.
    pub resume: Vec<ResumePoint>,
    /// The object file of the functions.
    pub object: Vec<u8>,
}

/// Links pieces into an image of the guest code `text`. A function that is in none of the pieces is
/// reached through the dispatcher.
///
/// # Errors
/// The objects have unsupported contents, or are too large.
pub fn link_pieces(pieces: &[Piece], text: &Range<u64>) -> Result<Linked, LinkError> {
    let objects: Vec<&[u8]> = pieces.iter().map(|piece| &piece.object[..]).collect();
    // A resume point that several functions share enters the first of them.
    let mut points: Vec<ResumePoint> = pieces.iter().flat_map(|p| &p.resume).copied().collect();
    points.sort_unstable_by_key(|point| (point.guest, point.function));
    points.dedup_by_key(|point| point.guest);
    link(&objects, &points, text)
}

/// Encodes `pieces` as a file.
#[must_use]
pub fn to_bytes(key: &Key, pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(MAGIC);
    bytes.extend(key.bytes());
    bytes.extend([0; 32]);
    bytes.extend((pieces.len() as u64).to_le_bytes());
    for piece in pieces {
        let lengths = [
            piece.functions.len(),
            piece.resume.len(),
            piece.object.len(),
        ];
        bytes.extend(lengths.iter().flat_map(|&n| (n as u64).to_le_bytes()));
        bytes.extend(piece.functions.iter().flat_map(|entry| entry.to_le_bytes()));
        let points = piece.resume.iter().flat_map(|p| [p.guest, p.function]);
        bytes.extend(points.flat_map(u64::to_le_bytes));
        bytes.extend(&piece.object);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    let sum = Sha256::digest(&bytes);
    bytes[CHECKSUM].copy_from_slice(&sum);
    bytes
}

/// Decodes the pieces of a file; `None` if it is damaged or of another key.
#[must_use]
pub fn from_bytes(key: &Key, bytes: &[u8]) -> Option<Vec<Piece>> {
    let (head, sum) = (bytes.get(..40)?, bytes.get(CHECKSUM)?);
    if head[..8] != *MAGIC || head[8..] != *key.bytes() {
        return None;
    }
    let mut hash = Sha256::new();
    hash.update(head);
    hash.update([0; 32]);
    hash.update(bytes.get(CHECKSUM.end..)?);
    if hash.finalize()[..] != *sum {
        return None;
    }
    let mut reader = Reader(bytes.get(HEADER - 8..)?);
    let count = reader.word()?;
    // Nothing is reserved ahead: the number may be wrong.
    let mut pieces = Vec::new();
    for _ in 0..count {
        let (functions, resume) = (reader.word()?, reader.word()?);
        let length = reader.word()?;
        let functions = reader.words(functions)?;
        let resume = reader.words(resume.checked_mul(2)?)?;
        let object = reader.take(length)?.to_vec();
        reader.take(length.next_multiple_of(8) - length)?;
        let (points, _) = resume.as_chunks::<2>();
        let point = |&[guest, function]: &[u64; 2]| ResumePoint { guest, function };
        pieces.push(Piece {
            functions,
            resume: points.iter().map(point).collect(),
            object,
        });
    }
    reader.0.is_empty().then_some(pieces)
}

/// The bytes that have not been read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u64> {
        let bytes = self.take(8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn words(&mut self, count: u64) -> Option<Vec<u64>> {
        let (words, _) = self.take(count.checked_mul(8)?)?.as_chunks::<8>();
        Some(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Piece> {
        let piece = |n: u64| Piece {
            functions: (0..n).map(|f| 0x1_0000 + 2 * f).collect(),
            resume: vec![
                ResumePoint {
                    guest: 0x1_0002,
                    function: 0x1_0000
                };
                n as usize / 2
            ],
            object: vec![n as u8; 13 * n as usize],
        };
        vec![piece(1), piece(0), piece(5)]
    }

    #[test]
    fn round_trip() {
        let key = Key::new(b"elf", "", "");
        let bytes = to_bytes(&key, &sample());
        assert_eq!(from_bytes(&key, &bytes), Some(sample()));
        assert_eq!(from_bytes(&Key::new(b"other", "", ""), &bytes), None);
        assert_eq!(from_bytes(&key, &to_bytes(&key, &[])), Some(Vec::new()));
    }

    #[test]
    fn every_damage_is_noticed() {
        let key = Key::new(b"elf", "", "");
        let whole = to_bytes(&key, &sample());
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert_eq!(from_bytes(&key, &damaged), None, "byte {at}");
            assert_eq!(from_bytes(&key, &whole[..at]), None, "length {at}");
        }
    }

    #[test]
    fn wrong_lengths_under_a_right_checksum() {
        let key = Key::new(b"elf", "", "");
        let whole = to_bytes(&key, &sample());
        for at in (HEADER - 8..HEADER + 24).step_by(8) {
            for value in [
                7,
                1 << 40,
                u64::MAX,
                u64::MAX / 8,
                u64::MAX / 16,
                u64::MAX - 6,
            ] {
                let mut damaged = whole.clone();
                damaged[at..at + 8].copy_from_slice(&value.to_le_bytes());
                damaged[CHECKSUM].fill(0);
                let sum = Sha256::digest(&damaged);
                damaged[CHECKSUM].copy_from_slice(&sum);
                assert_eq!(from_bytes(&key, &damaged), None, "{value} at {at}");
            }
        }
    }
}
