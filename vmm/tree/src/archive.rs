//! Packs tar archives: POSIX.1-2001 (pax), ustar, GNU long names, and old tar.
//!
//! The stream of members is read here and not by the `tar` crate's own iterator,
//! which holds extension headers of any size in memory; that crate decodes header
//! fields.

use crate::error::{TreeError, show};
use crate::nodes::{Attributes, Content, NodeId, ROOT, check_path, split};
use crate::{Source, TreeBuilder};
use flate2::read::MultiGzDecoder;
use std::fmt::{self, Debug, Formatter};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

const BLOCK: usize = 512;
/// Longest path or link target, PATH_MAX.
const PATH_MAX: u64 = 4096;
/// Largest pax extended header.
const MAX_EXTENSION: u64 = 1 << 20;

/// First bytes of formats that are not supported, and the messages for them.
const COMPRESSIONS: [(&[u8], &str); 4] = [
    (b"\xfd7zXZ\0", "xz is not supported: decompress it first"),
    (
        b"\x28\xb5\x2f\xfd",
        "zstd is not supported: decompress it first",
    ),
    (b"BZh", "bzip2 is not supported: decompress it first"),
    (b"PK\x03\x04", "a zip file is not a tar file"),
];

impl TreeBuilder {
    /// Add all members of the archive `path`.
    pub(super) fn pack_tar(&mut self, path: &Path) -> Result<(), TreeError> {
        let file = File::open(path).map_err(TreeError::host(path, "open"))?;
        self.pack_open_tar(file, path)
    }

    /// Add all members of an open archive; `path` is for messages.
    pub(super) fn pack_open_tar(&mut self, mut file: File, path: &Path) -> Result<(), TreeError> {
        let mut magic = Vec::new();
        (&mut file)
            .take(8)
            .read_to_end(&mut magic)
            .and_then(|_| file.rewind())
            .map_err(TreeError::host(path, "read"))?;
        for (bytes, reason) in COMPRESSIONS {
            if magic.starts_with(bytes) {
                let path = path.to_path_buf();
                return Err(TreeError::Unsupported { path, reason });
            }
        }
        let reader: Box<dyn Read> = if magic.starts_with(b"\x1f\x8b") {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 17, file)))
        } else {
            Box::new(file)
        };
        let mut archive = Archive::new(path, reader);
        while let Some(member) = archive.next_member()? {
            self.pack_member(&mut archive, &member)?;
            archive.skip(member.padding)?;
        }
        Ok(())
    }

    /// Add one member, taking its data from the archive.
    fn pack_member(&mut self, archive: &mut Archive, member: &Member) -> Result<(), TreeError> {
        check_path(&member.path)?;
        let Some((parent, name)) = split(&member.path) else {
            return self.pack_root_member(archive, member);
        };
        let path = &member.path[..];
        let parent = self.nodes.directory(&parent, true)?;
        let parent = parent.ok_or_else(|| TreeError::NotADirectory { path: show(path) })?;
        let old = self.nodes.entries(parent).and_then(|e| e.get(&name));
        if member.kind == Kind::Directory
            && let Some(&old) = old
            && self.nodes.entries(old).is_some()
        {
            self.nodes.get_mut(old).attributes = member.attributes;
            return archive.skip(member.size);
        }
        let id = match member.kind {
            Kind::HardLink => self.link_target(member)?,
            Kind::File => self.pack_data(archive, member)?,
            Kind::Directory => {
                let entries = Default::default();
                let content = Content::Directory { parent, entries };
                self.nodes.add(member.attributes, content, path)?
            }
            Kind::Symlink => {
                let target = member.target.clone().into();
                let content = Content::Symlink { target };
                self.nodes.add(member.attributes, content, path)?
            }
            Kind::Special { format, rdev } => {
                let content = Content::Special { format, rdev };
                self.nodes.add(member.attributes, content, path)?
            }
        };
        if member.kind != Kind::File {
            archive.skip(member.size)?;
        }
        self.nodes.link(parent, &name, id, path)
    }

    /// Adds a member for the root itself, which can only describe it.
    fn pack_root_member(&mut self, archive: &mut Archive, m: &Member) -> Result<(), TreeError> {
        if m.kind != Kind::Directory {
            return Err(archive.error("a member that is not a directory has the root's name"));
        }
        self.nodes.get_mut(ROOT).attributes = m.attributes;
        archive.skip(m.size)
    }

    fn pack_data(&mut self, archive: &mut Archive, m: &Member) -> Result<NodeId, TreeError> {
        let path = archive.path;
        let error = |action, error: io::Error| TreeError::host(path, action)(error);
        let source = Source {
            path: &m.path,
            error: &error,
        };
        let offset = self.image.append(&mut archive.reader, m.size, source)?;
        let offset = offset.ok_or_else(|| archive.error("the archive ends within a file"))?;
        archive.offset += m.size;
        let content = Content::File {
            offset,
            size: m.size,
            stamp: None,
        };
        self.nodes.add(m.attributes, content, &m.path)
    }

    fn link_target(&mut self, member: &Member) -> Result<NodeId, TreeError> {
        check_path(&member.target)?;
        let target = self.nodes.lookup(&member.target)?;
        target
            .filter(|&id| self.nodes.entries(id).is_none())
            .ok_or_else(|| TreeError::LinkTarget {
                path: show(&member.path),
                target: show(&member.target),
            })
    }
}

/// The kind of file that a member makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Another name of a file that the archive has.
    HardLink,
    /// Symbolic link.
    Symlink,
    /// Directory.
    Directory,
    /// Device or FIFO.
    Special {
        /// File type (`S_IFMT`).
        format: u32,
        /// Device number.
        rdev: u64,
    },
}

/// One member of an archive: its header with all extensions applied.
#[derive(Debug)]
pub struct Member {
    /// Path, as it is in the archive: it may lead anywhere.
    pub path: Vec<u8>,
    /// What it makes.
    pub kind: Kind,
    /// Target of a hard or symbolic link.
    pub target: Vec<u8>,
    /// Bytes of data that follow.
    pub size: u64,
    /// Bytes after the data up to the next header.
    pub padding: u64,
    /// Owner, permissions and time.
    pub attributes: Attributes,
}

/// Fields that extension members set for the next ordinary member.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<(i64, u32)>,
}

/// An archive being read.
pub struct Archive<'a> {
    path: &'a Path,
    reader: BufReader<Box<dyn Read + 'a>>,
    /// Bytes read so far, after decompression.
    offset: u64,
}

impl Debug for Archive<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Archive")
            .field("path", &self.path)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl<'a> Archive<'a> {
    /// An archive that is not compressed; `path` is for messages.
    pub fn new(path: &'a Path, reader: Box<dyn Read + 'a>) -> Self {
        Self {
            path,
            reader: BufReader::with_capacity(1 << 17, reader),
            offset: 0,
        }
    }

    /// Reads the next part of a member's data. The caller reads or [skips](Self::skip) all data of a
    /// member and its padding.
    ///
    /// # Errors
    /// [`TreeError`]: the archive ends, or it cannot be read.
    pub fn read(&mut self, to: &mut [u8]) -> Result<(), TreeError> {
        let read = self.reader.read_exact(to);
        read.map_err(TreeError::host(self.path, "read"))?;
        self.offset += to.len() as u64;
        Ok(())
    }

    fn error(&self, reason: impl Into<String>) -> TreeError {
        TreeError::Archive {
            archive: self.path.to_path_buf(),
            offset: self.offset,
            reason: reason.into(),
        }
    }

    /// The next ordinary member; `None` at the end of the archive.
    ///
    /// # Errors
    /// [`TreeError`]: the archive is not valid, or it cannot be read.
    pub fn next_member(&mut self) -> Result<Option<Member>, TreeError> {
        let mut extensions = Extensions::default();
        while let Some(header) = self.header()? {
            let size = header
                .entry_size()
                .map_err(|error| self.error(error.to_string()))?;
            match header.entry_type().as_byte() {
                b'L' => extensions.path = Some(self.long_name(size)?),
                b'K' => extensions.target = Some(self.long_name(size)?),
                b'x' => self.pax(size, &mut extensions)?,
                // Global pax headers carry comments, volume headers a label.
                b'g' | b'V' => self.skip_padded(size)?,
                _ => return self.member(&header, size, extensions).map(Some),
            }
        }
        Ok(None)
    }

    /// The next header block, checked; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<tar::Header>, TreeError> {
        let mut block = [0; BLOCK];
        let mut got = 0;
        while got < BLOCK {
            match self.reader.read(&mut block[got..]) {
                Ok(0) => break,
                Ok(count) => got += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TreeError::host(self.path, "read")(error)),
            }
        }
        if got < BLOCK && (got > 0 || self.offset == 0) {
            return Err(self.error("the file ends within a tar header"));
        }
        if got == 0 || block.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let header = tar::Header::from_byte_slice(&block).clone();
        // The checksum counts its own field as spaces.
        let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        let expected = sum(&block[..148]) + 8 * u32::from(b' ') + sum(&block[156..]);
        if header.cksum().ok() != Some(expected) {
            return Err(self.error("not a tar header (wrong checksum)"));
        }
        self.offset += BLOCK as u64;
        Ok(Some(header))
    }

    fn member(
        &mut self,
        header: &tar::Header,
        size: u64,
        extensions: Extensions,
    ) -> Result<Member, TreeError> {
        let path = extensions
            .path
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let kind = self.kind(header, &path)?;
        let target = extensions
            .target
            .or_else(|| header.link_name_bytes().map(|name| name.into_owned()))
            .unwrap_or_default();
        if matches!(kind, Kind::Symlink | Kind::HardLink)
            && (target.is_empty() || target.len() as u64 >= PATH_MAX || target.contains(&0))
        {
            return Err(self.error(format!("{}: bad link target", show(&path))));
        }
        // Hard links have no data, even if old formats give a size.
        let size = match kind {
            Kind::HardLink => 0,
            _ => extensions.size.unwrap_or(size),
        };
        let bad = |what: &str| self.error(format!("{}: bad {what}", show(&path)));
        let id = |field: Option<u64>, other: io::Result<u64>, what| {
            let value = field.or_else(|| other.ok());
            value
                .and_then(|id| u32::try_from(id).ok())
                .ok_or_else(|| bad(what))
        };
        // The decoder of the field returns times before 1970 as two's complement.
        let mtime = header.mtime().map(|seconds| (seconds.cast_signed(), 0));
        let (mtime_s, mtime_ns) = match extensions.mtime {
            Some(mtime) => mtime,
            None => mtime.map_err(|_| bad("time"))?,
        };
        let attributes = Attributes {
            permissions: header.mode().map_err(|_| bad("mode"))? & 0o7777,
            uid: id(extensions.uid, header.uid(), "owner")?,
            gid: id(extensions.gid, header.gid(), "group")?,
            mtime_s,
            mtime_ns,
        };
        Ok(Member {
            kind,
            target,
            size,
            padding: padding(size),
            attributes,
            path,
        })
    }

    fn kind(&self, header: &tar::Header, path: &[u8]) -> Result<Kind, TreeError> {
        let device = |format| {
            let number = |part: io::Result<Option<u32>>| part.ok().flatten();
            let major = number(header.device_major());
            let minor = number(header.device_minor());
            let (Some(major), Some(minor)) = (major, minor) else {
                return Err(self.error(format!("{}: bad device number", show(path))));
            };
            let rdev = libc::makedev(major, minor);
            Ok(Kind::Special { format, rdev })
        };
        Ok(match header.entry_type().as_byte() {
            // Before ustar, a slash at the end of the name marked a directory.
            0 | b'0' if path.ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => device(libc::S_IFCHR)?,
            b'4' => device(libc::S_IFBLK)?,
            b'5' => Kind::Directory,
            b'6' => Kind::Special {
                format: libc::S_IFIFO,
                rdev: 0,
            },
            b'S' => return Err(self.sparse(path)),
            other => {
                let kind = char::from(other).escape_debug();
                let reason = format!("{}: unknown kind of member '{kind}'", show(path));
                return Err(self.error(reason));
            }
        })
    }

    fn sparse(&self, path: &[u8]) -> TreeError {
        self.error(format!(
            "{}: sparse members are not supported (make the archive without --sparse)",
            show(path)
        ))
    }

    /// The name in a GNU `L` or `K` member.
    fn long_name(&mut self, size: u64) -> Result<Vec<u8>, TreeError> {
        let mut name = self.small(size, PATH_MAX)?;
        let length = name.iter().position(|&byte| byte == 0);
        name.truncate(length.unwrap_or(name.len()));
        Ok(name)
    }

    /// The records of a pax extended header.
    fn pax(&mut self, size: u64, extensions: &mut Extensions) -> Result<(), TreeError> {
        let bytes = self.small(size, MAX_EXTENSION)?;
        for record in tar::PaxExtensions::new(&bytes) {
            let record = record.map_err(|error| self.error(error.to_string()))?;
            let value = record.value_bytes();
            let number = || {
                let text = std::str::from_utf8(value).ok();
                text.and_then(|text| text.parse().ok())
                    .ok_or_else(|| self.error("bad number in an extended header"))
            };
            match record.key_bytes() {
                b"path" => extensions.path = Some(value.to_vec()),
                b"linkpath" => extensions.target = Some(value.to_vec()),
                b"size" => extensions.size = Some(number()?),
                b"uid" => extensions.uid = Some(number()?),
                b"gid" => extensions.gid = Some(number()?),
                b"mtime" => {
                    let time = pax_time(value);
                    let time = time.ok_or_else(|| self.error("bad time in an extended header"))?;
                    extensions.mtime = Some(time);
                }
                key if key.starts_with(b"GNU.sparse.") => return Err(self.sparse(value)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The data of a member that must be small, and the padding after it.
    fn small(&mut self, size: u64, limit: u64) -> Result<Vec<u8>, TreeError> {
        if size > limit {
            return Err(self.error(format!("extension header of {size} bytes")));
        }
        let mut bytes = Vec::new();
        (&mut self.reader)
            .take(size)
            .read_to_end(&mut bytes)
            .map_err(TreeError::host(self.path, "read"))?;
        if bytes.len() as u64 != size {
            return Err(self.error("the archive ends within an extension header"));
        }
        self.offset += size;
        self.skip(padding(size))?;
        Ok(bytes)
    }

    fn skip_padded(&mut self, size: u64) -> Result<(), TreeError> {
        self.skip(size)?;
        self.skip(padding(size))
    }

    /// Skips bytes.
    ///
    /// # Errors
    /// [`TreeError`]: the archive ends, or it cannot be read.
    pub fn skip(&mut self, size: u64) -> Result<(), TreeError> {
        let skipped = io::copy(&mut (&mut self.reader).take(size), &mut io::sink())
            .map_err(TreeError::host(self.path, "read"))?;
        if skipped != size {
            return Err(self.error("the archive ends within a member"));
        }
        self.offset += size;
        Ok(())
    }
}

/// Bytes from the end of `size` bytes of data to the next block.
fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

/// A pax time: decimal seconds, possibly negative, with an optional fraction.
fn pax_time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    if !whole.starts_with('-') || nanoseconds == 0 {
        return Some((seconds, nanoseconds));
    }
    // -1.25 is 750,000,000 ns after second -2.
    Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds))
}
