//! Pieces of machine code, for functions that are translated one after the other. Pieces are not
//! linked yet; a file keeps them for the next run of the program, and for other files with equal
//! functions ([`crate::function_store`]).
//!
//! ```text
//! head: magic "HARTPCS\0", SHA-256 of the cache key, key of the scope, SHA-256 of the
//! head with this field zero, length of the head in bytes, number of pieces (u64 each);
//! then for each piece: number of functions, number of resume points, number of extents,
//! number of objects (u64 each), link-time entry of each function, address and function of
//! each resume point, function, start and end of each extent (u64), and for each object:
//! its key or 32 zero bytes, SHA-256 of its body, number of addresses, length of the object
//! file (u64 each)
//! bodies of the objects, in order: the addresses (u64), the object file, padding to
//! 8 bytes
//! ```

use crate::code_object::CodeObject;
use crate::key::Key;
use crate::link::{Destination, Extent, LinkError, Linked, ResumePoint, link};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// The first bytes of a file of pieces.
const MAGIC: &[u8; 8] = b"HARTPCS\0";
/// The position of the cache key.
const KEY: Range<usize> = 8..40;
/// The position of the scope.
const SCOPE: Range<usize> = 40..72;
/// The position of the checksum.
const CHECKSUM: Range<usize> = 72..104;
/// The position of the length of the head.
const LENGTH: Range<usize> = 104..112;
/// Bytes before the number of pieces.
pub(crate) const START: usize = 112;

/// The machine code of some functions of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Link-time entries of the functions.
    pub functions: Vec<u64>,
    /// Further addresses at which they can be entered.
    pub resume: Vec<ResumePoint>,
    /// The guest code that the functions were made from.
    pub extents: Vec<Extent>,
    /// The code of each function.
    pub objects: Vec<CodeObject>,
}

/// Links pieces into an image of the guest code `text`. A function that is in none of the pieces is
/// reached through the dispatcher.
///
/// # Errors
/// The objects have unsupported contents, or are too large.
pub fn link_pieces(pieces: &[Piece], text: &Range<u64>) -> Result<Linked, LinkError> {
    link_pieces_at(pieces, text, Destination::Image)
}

/// As [`link_pieces`], for this destination.
pub(crate) fn link_pieces_at(
    pieces: &[Piece],
    text: &Range<u64>,
    destination: Destination,
) -> Result<Linked, LinkError> {
    let objects: Vec<&CodeObject> = pieces.iter().flat_map(|piece| &piece.objects).collect();
    // A resume point that several functions share enters the first of them.
    let mut points: Vec<ResumePoint> = pieces.iter().flat_map(|p| &p.resume).copied().collect();
    points.sort_unstable_by_key(|point| (point.guest, point.function));
    points.dedup_by_key(|point| point.guest);
    let extents: Vec<Extent> = pieces.iter().flat_map(|p| &p.extents).copied().collect();
    link(&objects, (&points, &extents), text, destination)
}

/// Encodes `pieces` as a file. `scope` is the key of everything but the code that the keys of the
/// objects depend on.
#[must_use]
pub fn to_bytes(key: &Key, scope: &Key, pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(MAGIC);
    bytes.extend(key.bytes());
    bytes.extend(scope.bytes());
    bytes.resize(START, 0);
    put(&mut bytes, &[pieces.len()]);
    let mut bodies = Vec::new();
    for piece in pieces {
        let (functions, resume, extents) = (&piece.functions, &piece.resume, &piece.extents);
        put(
            &mut bytes,
            &[
                functions.len(),
                resume.len(),
                extents.len(),
                piece.objects.len(),
            ],
        );
        let points = resume.iter().flat_map(|p| [p.guest, p.function]);
        let extents = extents.iter().flat_map(|e| [e.function, e.start, e.end]);
        let words = functions.iter().copied().chain(points).chain(extents);
        bytes.extend(words.flat_map(u64::to_le_bytes));
        for object in &piece.objects {
            let start = bodies.len();
            bodies.extend(object.addresses.iter().flat_map(|a| a.to_le_bytes()));
            bodies.extend(&object.bytes);
            bytes.extend(object.key.as_ref().map_or(&[0; 32], Key::bytes));
            bytes.extend(Sha256::digest(&bodies[start..]));
            put(&mut bytes, &[object.addresses.len(), object.bytes.len()]);
            bodies.resize(bodies.len().next_multiple_of(8), 0);
        }
    }
    let length = bytes.len() as u64;
    bytes[LENGTH].copy_from_slice(&length.to_le_bytes());
    let sum = Sha256::digest(&bytes);
    bytes[CHECKSUM].copy_from_slice(&sum);
    bytes.extend(bodies);
    bytes
}

fn put(bytes: &mut Vec<u8>, numbers: &[usize]) {
    bytes.extend(numbers.iter().flat_map(|&n| (n as u64).to_le_bytes()));
}

/// Decodes the pieces of a file; `None` if it is damaged or of another key.
#[must_use]
pub fn from_bytes(key: &Key, bytes: &[u8]) -> Option<Vec<Piece>> {
    if bytes.get(KEY)? != key.bytes() {
        return None;
    }
    let length = usize::try_from(head_length(bytes)?).ok()?;
    let (head, mut bodies) = bytes.split_at_checked(length)?;
    let outlines = outlines(head)?;
    let mut pieces = Vec::with_capacity(outlines.len());
    for outline in outlines {
        let mut objects = Vec::with_capacity(outline.objects.len());
        for place in &outline.objects {
            let body = bodies.get(..usize::try_from(place.length()?).ok()?)?;
            objects.push(place.read(body)?);
            bodies = bodies.get(body.len().checked_next_multiple_of(8)?..)?;
        }
        pieces.push(Piece {
            functions: outline.functions,
            resume: outline.resume,
            extents: outline.extents,
            objects,
        });
    }
    bodies.is_empty().then_some(pieces)
}

/// Returns the scope of a file that starts with `start`.
pub(crate) fn scope(start: &[u8]) -> Option<Key> {
    let scope = start.get(SCOPE)?.try_into().ok()?;
    (start.get(..KEY.start)? == MAGIC).then(|| Key::from_bytes(scope))
}

/// Returns the length of the head of a file that starts with `start`, bytes.
pub(crate) fn head_length(start: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(start.get(LENGTH)?.try_into().ok()?))
}

/// A piece without the bodies of its objects.
pub(crate) struct Outline {
    functions: Vec<u64>,
    resume: Vec<ResumePoint>,
    extents: Vec<Extent>,
    /// Its objects.
    pub(crate) objects: Vec<Place>,
}

/// An object in a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Its key, if it has one.
    pub(crate) key: Option<Key>,
    checksum: [u8; 32],
    addresses: u64,
    bytes: u64,
}

impl Place {
    /// Returns the length of its body without the padding, bytes.
    pub(crate) fn length(&self) -> Option<u64> {
        self.addresses.checked_mul(8)?.checked_add(self.bytes)
    }

    /// Decodes its body; `None` if that is damaged.
    pub(crate) fn read(&self, body: &[u8]) -> Option<CodeObject> {
        if Sha256::digest(body)[..] != self.checksum {
            return None;
        }
        let mut reader = Reader(body);
        Some(CodeObject {
            key: self.key,
            addresses: reader.words(self.addresses)?,
            bytes: reader.take(self.bytes)?.to_vec(),
        })
    }
}

/// Decodes a head; `None` if it is damaged.
pub(crate) fn outlines(head: &[u8]) -> Option<Vec<Outline>> {
    if head.get(..KEY.start)? != MAGIC {
        return None;
    }
    let mut hash = Sha256::new();
    hash.update(head.get(..CHECKSUM.start)?);
    hash.update([0; 32]);
    hash.update(head.get(CHECKSUM.end..)?);
    if hash.finalize()[..] != *head.get(CHECKSUM)? {
        return None;
    }
    let mut reader = Reader(head.get(START..)?);
    let count = reader.word()?;
    // Nothing is reserved ahead: the number may be wrong.
    let mut outlines = Vec::new();
    for _ in 0..count {
        let [functions, resume, extents, objects] = [
            reader.word()?,
            reader.word()?,
            reader.word()?,
            reader.word()?,
        ];
        let functions = reader.words(functions)?;
        let resume = reader.words(resume.checked_mul(2)?)?;
        let (points, _) = resume.as_chunks::<2>();
        let point = |&[guest, function]: &[u64; 2]| ResumePoint { guest, function };
        let extents = reader.words(extents.checked_mul(3)?)?;
        let (extents, _) = extents.as_chunks::<3>();
        let extent = |&[function, start, end]: &[u64; 3]| Extent {
            function,
            start,
            end,
        };
        let mut places = Vec::new();
        for _ in 0..objects {
            places.push(reader.place()?);
        }
        outlines.push(Outline {
            functions,
            resume: points.iter().map(point).collect(),
            extents: extents.iter().map(extent).collect(),
            objects: places,
        });
    }
    reader.0.is_empty().then_some(outlines)
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

    fn place(&mut self) -> Option<Place> {
        let key: [u8; 32] = self.take(32)?.try_into().ok()?;
        Some(Place {
            key: (key != [0; 32]).then(|| Key::from_bytes(key)),
            checksum: self.take(32)?.try_into().ok()?,
            addresses: self.word()?,
            bytes: self.word()?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn scope_key() -> Key {
        Key::new(b"", "", "")
    }

    fn sample() -> Vec<Piece> {
        let object = |n: u64| CodeObject {
            key: (n > 1).then(|| Key::new(&[n as u8], "", "")),
            addresses: vec![n; n as usize],
            bytes: vec![n as u8; 13 * n as usize],
        };
        let piece = |n: u64| Piece {
            functions: (0..n).map(|f| 0x1_0000 + 2 * f).collect(),
            resume: vec![
                ResumePoint {
                    guest: 0x1_0002,
                    function: 0x1_0000
                };
                n as usize / 2
            ],
            extents: vec![
                Extent {
                    function: 0x1_0000,
                    start: 0x1_0000,
                    end: 0x1_0010
                };
                n as usize / 2
            ],
            objects: (0..n).map(object).collect(),
        };
        vec![piece(1), piece(0), piece(5)]
    }

    /// Makes the checksum of a file's head right.
    pub(crate) fn seal(file: &mut [u8]) {
        let length = head_length(file).unwrap() as usize;
        let Some(head) = file.get_mut(..length).filter(|head| head.len() >= START) else {
            return;
        };
        head[CHECKSUM].fill(0);
        let sum = Sha256::digest(&head);
        head[CHECKSUM].copy_from_slice(&sum);
    }

    #[test]
    fn round_trip() {
        let (key, scope) = (Key::new(b"elf", "", ""), scope_key());
        let bytes = to_bytes(&key, &scope, &sample());
        assert_eq!(from_bytes(&key, &bytes), Some(sample()));
        assert_eq!(super::scope(&bytes), Some(scope));
        assert_eq!(from_bytes(&Key::new(b"other", "", ""), &bytes), None);
        let none = to_bytes(&key, &scope, &[]);
        assert_eq!(from_bytes(&key, &none), Some(Vec::new()));
    }

    #[test]
    fn every_damage_is_noticed() {
        let key = Key::new(b"elf", "", "");
        let whole = to_bytes(&key, &scope_key(), &sample());
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            // Padding is the only part without a checksum.
            let read = from_bytes(&key, &damaged);
            assert!(read.is_none() || read == Some(sample()), "byte {at}");
            assert_eq!(from_bytes(&key, &whole[..at]), None, "length {at}");
        }
    }

    #[test]
    fn wrong_lengths_under_a_right_checksum() {
        let key = Key::new(b"elf", "", "");
        let whole = to_bytes(&key, &scope_key(), &sample());
        let object = START + 8 + 32 + 8 + 64;
        let numbers = (LENGTH.start..START + 40).chain(object..object + 16);
        for at in numbers.step_by(8) {
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
                seal(&mut damaged);
                assert_eq!(from_bytes(&key, &damaged), None, "{value} at {at}");
            }
        }
    }
}
