//! Copies of files between the host and a running VM (`hartline cp`).
//!
//! The host announces a copy by [`Event::Copy`](crate::spawn::Event::Copy). A copy has the number and
//! the streams of a process ([`crate::spawn`]): [`stream::PROGRAM`](crate::spawn::stream::PROGRAM)
//! has a [`Request`], standard input or output the tar file, and standard error the name of the file
//! at which the copy failed. [`Call::Ended`](crate::spawn::Call::Ended) ends the copy. Its exit code
//! is 0; for [`Direction::Stat`] it is the file type: `st_mode` without permissions, shifted right by
//! [`TYPE_SHIFT`].

/// Length of an encoded [`Request`] before the path, bytes.
pub const HEADER: usize = 12;

/// Most bytes of an encoded [`Request`]: its header, and a path (`PATH_MAX` of Linux).
pub const MAX_REQUEST: usize = HEADER + 4095;

/// Shift of the file type in `st_mode`, bits.
pub const TYPE_SHIFT: u32 = 12;

/// What a copy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Return the type of the file.
    Stat,
    /// Write the file, or the directory with everything in it, to standard output.
    Read,
    /// Unpack standard input below the directory.
    Write,
}

/// A copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// What it does.
    pub direction: Direction,
    /// If the path leads to a symbolic link, copy the file that the link leads to.
    pub follow: bool,
    /// Give new files the owners in the archive. Otherwise root owns them.
    pub owners: bool,
    /// Most files, directories and links.
    pub entries: u64,
    /// Absolute path.
    pub path: &'a [u8],
}

impl<'a> Request<'a> {
    /// Encodes everything but the path, which follows.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = match self.direction {
            Direction::Stat => 0,
            Direction::Read => 1,
            Direction::Write => 2,
        };
        bytes[1] = self.follow.into();
        bytes[2] = self.owners.into();
        bytes[4..].copy_from_slice(&self.entries.to_le_bytes());
        bytes
    }

    /// Decodes a request; `None` if it is not valid.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (header, path) = bytes.split_at_checked(HEADER)?;
        let flag = |at: usize| match header[at] {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let request = Self {
            direction: match header[0] {
                0 => Direction::Stat,
                1 => Direction::Read,
                2 => Direction::Write,
                _ => return None,
            },
            follow: flag(1)?,
            owners: flag(2)?,
            entries: u64::from_le_bytes(header[4..].try_into().ok()?),
            path,
        };
        let is_valid = header[3] == 0
            && bytes.len() <= MAX_REQUEST
            && path.first() == Some(&b'/')
            && !path.contains(&0);
        is_valid.then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_decoded_as_they_were_encoded() {
        for direction in [Direction::Stat, Direction::Read, Direction::Write] {
            let request = Request {
                direction,
                follow: direction == Direction::Read,
                owners: direction == Direction::Write,
                entries: u64::MAX - 1,
                path: b"/a b",
            };
            let mut bytes = [0; HEADER + 4];
            bytes[..HEADER].copy_from_slice(&request.encode());
            bytes[HEADER..].copy_from_slice(request.path);
            assert_eq!(Request::decode(&bytes), Some(request));
        }
    }

    #[test]
    fn invalid_requests_are_refused() {
        let valid = *b"\x01\x00\x00\x00\x01\0\0\0\0\0\0\0/a";
        assert!(Request::decode(&valid).is_some());
        for (at, byte) in [(0, 3), (1, 2), (2, 2), (3, 1), (12, b'a'), (13, 0)] {
            let mut bytes = valid;
            bytes[at] = byte;
            assert_eq!(Request::decode(&bytes), None, "{at}");
        }
        assert_eq!(Request::decode(&valid[..12]), None);
        assert_eq!(Request::decode(&valid[..11]), None);
        let mut long = [b'/'; MAX_REQUEST + 1];
        long[..12].copy_from_slice(&valid[..12]);
        assert_eq!(Request::decode(&long), None);
        assert!(Request::decode(&long[..MAX_REQUEST]).is_some());
    }
}
