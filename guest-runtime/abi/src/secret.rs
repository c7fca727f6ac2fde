//! Secrets that the program gets as files in `/run/secrets`. Each is encoded as the length of its name
//! and the length of its contents (`u32`, little endian), the name, and the contents, which may be any
//! bytes.

/// Longest name, bytes.
pub const MAX_NAME: usize = 63;

/// Length of the two numbers before a name, bytes.
const HEADER: usize = 8;

/// The encoded lengths of a secret; `None` if one of them is too large.
#[must_use]
pub fn header(name: &[u8], contents: &[u8]) -> Option<[u8; HEADER]> {
    let name = u32::try_from(name.len()).ok()?.to_le_bytes();
    let contents = u32::try_from(contents.len()).ok()?.to_le_bytes();
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&name);
    header[4..].copy_from_slice(&contents);
    Some(header)
}

/// Takes a secret off the begin of `bytes`. Result: its name, and its contents; `None` if there is none.
pub fn take<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut rest = *bytes;
    let mut number = || {
        let (number, tail) = rest.split_first_chunk()?;
        rest = tail;
        usize::try_from(u32::from_le_bytes(*number)).ok()
    };
    let (name, contents) = (number()?, number()?);
    let (name, tail) = rest.split_at_checked(name)?;
    let (contents, tail) = tail.split_at_checked(contents)?;
    *bytes = tail;
    Some((name, contents))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn secrets_are_taken_in_their_order() {
        let secrets: [(&[u8], &[u8]); 3] = [(b"a", b""), (b"key", b"\0\xff"), (b"b", b"x")];
        let mut encoded = std::vec::Vec::new();
        for (name, contents) in secrets {
            encoded.extend(header(name, contents).unwrap());
            encoded.extend(name);
            encoded.extend(contents);
        }
        let mut rest = &encoded[..];
        for secret in secrets {
            assert_eq!(take(&mut rest), Some(secret));
        }
        assert_eq!(take(&mut rest), None);
        for end in 0..9 {
            assert_eq!(take(&mut &encoded[..end]).is_some(), end == 9, "{end}");
        }
        let mut wrong = encoded.clone();
        wrong[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(take(&mut &wrong[..]), None);
    }
}
