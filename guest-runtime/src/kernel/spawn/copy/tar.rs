//! Headers of tar files: POSIX ustar, pax and GNU are read, GNU is written.

use crate::convert::{low_u8, low_u32, to_usize};
use crate::fs::types::Timestamp;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_linux::errno::Errno;

/// Length of a header, and unit of the length of all data, bytes.
pub const BLOCK: usize = 512;
/// Longest text of an extension header, bytes.
pub const MAX_TEXT: u64 = 64 << 10;
/// Permissions, including the set-ID bits and the sticky bit.
const PERMISSIONS: u64 = 0o7777;

/// Kinds of members.
pub mod kind {
    /// Regular file.
    pub const FILE: u8 = b'0';
    /// Hard link.
    pub const HARD_LINK: u8 = b'1';
    /// Symbolic link.
    pub const LINK: u8 = b'2';
    /// Character device.
    pub const CHARACTER: u8 = b'3';
    /// Block device.
    pub const BLOCK: u8 = b'4';
    /// Directory.
    pub const DIRECTORY: u8 = b'5';
    /// FIFO.
    pub const FIFO: u8 = b'6';
    /// Regular file that POSIX allows to be contiguous.
    pub const CONTIGUOUS: u8 = b'7';
    /// The text is the name of the next member (GNU).
    pub const LONG_NAME: u8 = b'L';
    /// The text is the link target of the next member (GNU).
    pub const LONG_TARGET: u8 = b'K';
    /// The text has fields of the next member (pax).
    pub const EXTENDED: u8 = b'x';
    /// The text has fields of all members (pax).
    pub const GLOBAL: u8 = b'g';
    /// The name is a label of the archive (GNU).
    pub const LABEL: u8 = b'V';
}

const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
const TIME: Range<usize> = 136..148;
const CHECKSUM: Range<usize> = 148..156;
const KIND: usize = 156;
const TARGET: Range<usize> = 157..257;
const MAGIC: Range<usize> = 257..265;
const MAJOR: Range<usize> = 329..337;
const MINOR: Range<usize> = 337..345;
const PREFIX: Range<usize> = 345..500;

/// A member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// [`kind`].
    pub kind: u8,
    /// Path.
    pub name: Vec<u8>,
    /// What a link leads to.
    pub target: Vec<u8>,
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length of the data, bytes.
    pub size: u64,
    /// Modification time.
    pub time: Timestamp,
    /// Major and minor number of a device.
    pub device: (u64, u64),
}

/// Fields that extension headers have set for the next member.
#[derive(Debug, Default)]
pub struct Extensions {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    time: Option<Timestamp>,
}

/// The number of bytes from the end of `size` bytes of data to the next block.
pub fn padding(size: u64) -> usize {
    to_usize(size.wrapping_neg() % BLOCK as u64)
}

/// The sum of the header's bytes; those of the checksum count as spaces.
fn checksum(header: &[u8; BLOCK]) -> u64 {
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    let own = CHECKSUM.len() as u64 * u64::from(b' ');
    sum(&header[..CHECKSUM.start]) + own + sum(&header[CHECKSUM.end..])
}

/// The bytes before the first NUL.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0);
    &field[..end.unwrap_or(field.len())]
}

/// A number in octal digits, or in base 256 (GNU).
fn number(field: &[u8]) -> Result<u64, Errno> {
    let (&first, rest) = field.split_first().ok_or(Errno::EINVAL)?;
    let mut value: u64 = 0;
    if first & 0x80 != 0 {
        // A negative number, or one of more than 64 bits.
        let (high, low) = rest.split_at(rest.len().saturating_sub(8));
        if first != 0x80 || high.iter().any(|&byte| byte != 0) {
            return Err(Errno::EINVAL);
        }
        low.iter()
            .for_each(|&byte| value = value << 8 | u64::from(byte));
        return Ok(value);
    }
    let digits = text(field).trim_ascii();
    for &digit in digits {
        match digit {
            b'0'..=b'7' if value >> 61 == 0 => value = value << 3 | u64::from(digit - b'0'),
            _ => return Err(Errno::EINVAL),
        }
    }
    Ok(value)
}

/// Writes a number in octal digits, or in base 256 if there are too few.
fn put(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    if value >> (3 * digits).min(63) != 0 {
        for (at, byte) in field.iter_mut().rev().enumerate() {
            *byte = match at {
                0..8 => low_u8(value >> (8 * at)),
                _ => 0,
            };
        }
        field[0] |= 0x80;
        return;
    }
    for (at, byte) in field[..digits].iter_mut().rev().enumerate() {
        *byte = b'0' + low_u8(value >> (3 * at) & 7);
    }
}

/// A decimal number.
fn decimal(text: &[u8]) -> Result<u64, Errno> {
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    text.parse().map_err(|_| Errno::EINVAL)
}

/// A time of pax: decimal seconds, perhaps with a fraction. Times before 1970 become 0.
fn pax_time(text: &[u8]) -> Result<Timestamp, Errno> {
    if text.first() == Some(&b'-') {
        return Ok(Timestamp::default());
    }
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let seconds = decimal(parts.next().unwrap_or_default())?;
    let fraction = parts.next().unwrap_or_default();
    let digits = fraction
        .iter()
        .copied()
        .chain(core::iter::repeat(b'0'))
        .take(9);
    let mut nanoseconds = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(Errno::EINVAL);
        }
        nanoseconds = nanoseconds * 10 + u32::from(digit - b'0');
    }
    Ok(Timestamp {
        seconds: i64::try_from(seconds).map_err(|_| Errno::EINVAL)?,
        nanoseconds,
    })
}

/// The text of a [`kind::LONG_NAME`] or [`kind::LONG_TARGET`].
fn long(out: &mut Vec<u8>, kind: u8, name: &[u8]) {
    let size = name.len() as u64 + 1;
    let member = Member {
        kind,
        name: b"././@LongLink".to_vec(),
        size,
        ..Member::default()
    };
    header(out, &member);
    out.extend_from_slice(name);
    out.resize(out.len() + 1 + padding(size), 0);
}

fn header(out: &mut Vec<u8>, member: &Member) {
    let mut bytes = [0; BLOCK];
    let mut copy = |to: Range<usize>, from: &[u8]| {
        let length = from.len().min(to.len());
        bytes[to][..length].copy_from_slice(&from[..length]);
    };
    copy(NAME, &member.name);
    copy(TARGET, &member.target);
    copy(MAGIC, b"ustar  \0");
    let seconds = u64::try_from(member.time.seconds).unwrap_or(0);
    for (field, value) in [
        (MODE, u64::from(member.mode) & PERMISSIONS),
        (UID, member.uid.into()),
        (GID, member.gid.into()),
        (SIZE, member.size),
        (TIME, seconds),
        (MAJOR, member.device.0),
        (MINOR, member.device.1),
    ] {
        put(&mut bytes[field], value);
    }
    bytes[KIND] = member.kind;
    let sum = checksum(&bytes);
    put(&mut bytes[CHECKSUM], sum);
    out.extend_from_slice(&bytes);
}

impl Member {
    /// Appends the header to `out`, and before it the headers of names that do not fit.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.target.len() > TARGET.len() {
            long(out, kind::LONG_TARGET, &self.target);
        }
        if self.name.len() > NAME.len() {
            long(out, kind::LONG_NAME, &self.name);
        }
        header(out, self);
    }

    /// Decodes a header; `None` for a block of zeros, which ends the archive.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn decode(block: &[u8; BLOCK]) -> Result<Option<Self>, Errno> {
        if block.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        if number(&block[CHECKSUM])? != checksum(block) {
            return Err(Errno::EINVAL);
        }
        let id = |field| number(&block[field]).map(low_u32);
        let mut name = text(&block[NAME]).to_vec();
        let prefix = text(&block[PREFIX]);
        // GNU has other fields there.
        if block[MAGIC].starts_with(b"ustar\0") && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        let kind = match block[KIND] {
            // Before ustar, a slash at the end of the name marked a directory.
            0 | kind::FILE if name.last() == Some(&b'/') => kind::DIRECTORY,
            0 | kind::CONTIGUOUS => kind::FILE,
            kind => kind,
        };
        let device = match kind {
            kind::CHARACTER | kind::BLOCK => (number(&block[MAJOR])?, number(&block[MINOR])?),
            _ => (0, 0),
        };
        Ok(Some(Self {
            kind,
            name,
            target: text(&block[TARGET]).to_vec(),
            mode: low_u32(number(&block[MODE])? & PERMISSIONS),
            uid: id(UID)?,
            gid: id(GID)?,
            size: number(&block[SIZE])?,
            // Times before 1970 become 0.
            time: Timestamp {
                seconds: number(&block[TIME]).map_or(0, u64::cast_signed).max(0),
                nanoseconds: 0,
            },
            device,
        }))
    }

    /// Whether a text follows that is an extension of the next member.
    pub fn is_extension(&self) -> bool {
        matches!(
            self.kind,
            kind::LONG_NAME | kind::LONG_TARGET | kind::EXTENDED
        )
    }

    /// Replaces the fields that extension headers have set.
    ///
    /// # Errors
    /// `EINVAL`: an owner is not a number of a user.
    pub fn extend(&mut self, extensions: Extensions) -> Result<(), Errno> {
        let id = |id: Option<u64>, old| match id {
            None => Ok(old),
            Some(id) => u32::try_from(id).map_err(|_| Errno::EINVAL),
        };
        self.uid = id(extensions.uid, self.uid)?;
        self.gid = id(extensions.gid, self.gid)?;
        self.size = extensions.size.unwrap_or(self.size);
        self.time = extensions.time.unwrap_or(self.time);
        if let Some(name) = extensions.name {
            self.name = name;
        }
        if let Some(target) = extensions.target {
            self.target = target;
        }
        Ok(())
    }
}

impl Extensions {
    /// Adds the text of an extension header of this kind.
    ///
    /// # Errors
    /// `EINVAL`; `EOPNOTSUPP` for a sparse file.
    pub fn add(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Errno> {
        match kind {
            kind::LONG_NAME => self.name = Some(text(bytes).to_vec()),
            kind::LONG_TARGET => self.target = Some(text(bytes).to_vec()),
            _ => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    rest = self.record(rest)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the first record of a pax header, `LENGTH KEY=VALUE\n`; returns the others.
    fn record<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Errno> {
        let space = bytes.iter().position(|&byte| byte == b' ');
        let space = space.ok_or(Errno::EINVAL)?;
        let length = usize::try_from(decimal(&bytes[..space])?).map_err(|_| Errno::EINVAL)?;
        let (record, rest) = bytes.split_at_checked(length).ok_or(Errno::EINVAL)?;
        let pair = record
            .get(space + 1..)
            .and_then(|pair| pair.strip_suffix(b"\n"));
        let pair = pair.ok_or(Errno::EINVAL)?;
        let equals = pair.iter().position(|&byte| byte == b'=');
        let (key, value) = pair.split_at(equals.ok_or(Errno::EINVAL)?);
        let value = &value[1..];
        match key {
            b"path" => self.name = Some(value.to_vec()),
            b"linkpath" => self.target = Some(value.to_vec()),
            b"size" => self.size = Some(decimal(value)?),
            b"uid" => self.uid = Some(decimal(value)?),
            b"gid" => self.gid = Some(decimal(value)?),
            b"mtime" => self.time = Some(pax_time(value)?),
            key if key.starts_with(b"GNU.sparse.") => return Err(Errno::EOPNOTSUPP),
            _ => {}
        }
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: &[u8]) -> &[u8; BLOCK] {
        bytes.try_into().unwrap()
    }

    #[test]
    fn members_are_decoded_as_they_were_encoded() {
        let member = Member {
            kind: kind::LINK,
            name: b"a\nb/\xc3\xa4".to_vec(),
            target: b"../c".to_vec(),
            mode: 0o4755,
            uid: 7,
            gid: u32::MAX,
            size: 8 << 33,
            time: Timestamp {
                seconds: 1_700_000_000,
                nanoseconds: 0,
            },
            device: (0, 0),
        };
        let mut out = Vec::new();
        member.encode(&mut out);
        assert_eq!(Member::decode(block(&out)), Ok(Some(member)));
        let device = Member {
            kind: kind::CHARACTER,
            device: (1, 3),
            ..Member::default()
        };
        out.clear();
        device.encode(&mut out);
        assert_eq!(Member::decode(block(&out)), Ok(Some(device)));
    }

    #[test]
    fn long_names_have_extension_headers() {
        let member = Member {
            kind: kind::HARD_LINK,
            name: [b'n'; 511].to_vec(),
            target: [b't'; 101].to_vec(),
            ..Member::default()
        };
        let mut out = Vec::new();
        member.encode(&mut out);
        assert_eq!(out.len(), 5 * BLOCK);
        let mut extensions = Extensions::default();
        for (at, kind, length) in [(0, kind::LONG_TARGET, 102), (2, kind::LONG_NAME, 512)] {
            let header = Member::decode(block(&out[at * BLOCK..][..BLOCK]));
            let header = header.unwrap().unwrap();
            assert_eq!((header.kind, header.size), (kind, length));
            let text = &out[(at + 1) * BLOCK..][..to_usize(length)];
            extensions.add(kind, text).unwrap();
        }
        let mut last = Member::decode(block(&out[4 * BLOCK..])).unwrap().unwrap();
        last.extend(extensions).unwrap();
        assert_eq!(last, member);
    }

    #[test]
    fn records_of_pax_are_fields() {
        let of = |text: &[u8]| {
            let mut extensions = Extensions::default();
            extensions.add(kind::EXTENDED, text).map(|()| extensions)
        };
        let found = of(b"12 path=a=b\n22 mtime=1.5000000001\n10 size=7\n9 uid=10\n").unwrap();
        let mut member = Member::default();
        member.extend(found).unwrap();
        assert_eq!(
            (member.name.as_slice(), member.size, member.uid),
            (&b"a=b"[..], 7, 10)
        );
        let time = Timestamp {
            seconds: 1,
            nanoseconds: 500_000_000,
        };
        assert_eq!(member.time, time);
        assert_eq!(
            of(b"12 mtime=-1\n").unwrap().time,
            Some(Timestamp::default())
        );
        for wrong in [
            &b"x"[..],
            b"0 a=b\n",
            b"99 a=b\n",
            b"5 a=b\n",
            b"5 ab\n",
            b"1 ",
            b"18446744073709551615 a=b\n",
            b"9 size=x\n",
            b"11 mtime=x\n",
        ] {
            assert_eq!(of(wrong).unwrap_err(), Errno::EINVAL, "{wrong:?}");
        }
        let sparse = of(b"22 GNU.sparse.major=1\n");
        assert_eq!(sparse.unwrap_err(), Errno::EOPNOTSUPP);
        let large = of(b"18 uid=4294967296\n").unwrap();
        assert_eq!(Member::default().extend(large), Err(Errno::EINVAL));
    }

    #[test]
    fn blocks_that_are_no_headers_are_refused() {
        assert_eq!(Member::decode(&[0; BLOCK]), Ok(None));
        assert_eq!(Member::decode(&[b'x'; BLOCK]), Err(Errno::EINVAL));
        let mut out = Vec::new();
        Member::default().encode(&mut out);
        out[3] ^= 1;
        assert_eq!(Member::decode(block(&out)), Err(Errno::EINVAL));
        for (field, ok) in [
            (&b"0000017\0"[..], Ok(15)),
            (b"  17 \0\0\0", Ok(15)),
            (b"\0\0\0\0\0\0\0\0", Ok(0)),
            (b"0000018\0", Err(Errno::EINVAL)),
            (b"\x80\0\0\0\0\0\x01\x02", Ok(258)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", Err(Errno::EINVAL)),
            (b"777777777777777777777777", Err(Errno::EINVAL)),
            (b"\x80\x01\0\0\0\0\0\0\0\0\0\0", Err(Errno::EINVAL)),
        ] {
            assert_eq!(number(field), ok, "{field:?}");
        }
    }

    #[test]
    fn names_have_prefixes_in_posix_headers() {
        let mut out = Vec::new();
        let member = Member {
            name: b"name/".to_vec(),
            ..Member::default()
        };
        member.encode(&mut out);
        out[MAGIC].copy_from_slice(b"ustar\x0000");
        out[PREFIX][..3].copy_from_slice(b"a/b");
        let sum = checksum(block(&out));
        put(&mut out[CHECKSUM], sum);
        let found = Member::decode(block(&out)).unwrap().unwrap();
        assert_eq!(found.name, b"a/b/name/");
        assert_eq!(found.kind, kind::DIRECTORY, "by its name");
    }
}
