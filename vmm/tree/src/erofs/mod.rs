//! Packs EROFS images: names and attributes go into the tree image. Whole, aligned pages of
//! contents stay in the EROFS image, so that all VMs share the host's page cache.

mod format;
#[cfg(test)]
mod tests;

pub use format::is_image;

use crate::error::{TreeError, show};
use crate::nodes::{Attributes, Content, NodeId, ROOT};
use crate::stamp::Stamp;
use crate::{MAX_INODES, Source, TreeBuilder};
use format::{Image, Inode, Piece};
use hartline_abi::layout::PAGE_SIZE;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// Longest link target, PATH_MAX.
const PATH_MAX: u64 = 4096;

/// An image while it is packed.
struct Packing<'a> {
    image: Image<'a>,
    path: &'a Path,
    /// The stamp of the image file.
    stamp: Option<Stamp>,
    /// Inodes seen so far, by number.
    known: HashMap<u64, NodeId>,
    /// Directories whose entries are still to be read, and their nodes in the tree.
    pending: Vec<(Inode, NodeId)>,
    /// Number of directory entries.
    names: u32,
    tails: Tails,
}

/// Last pages of files that are still to be written, as one: most files are shorter than a page.
#[derive(Default)]
struct Tails {
    /// Offset in the tree of the first one, a multiple of the page size.
    start: u64,
    bytes: Vec<u8>,
}

impl Tails {
    /// The bytes that are written at once.
    const LENGTH: usize = 256 << 10;

    /// Whether a tail at the offset `to` follows the others.
    fn takes(&self, to: u64) -> bool {
        let end = (self.start + self.bytes.len() as u64).next_multiple_of(PAGE_SIZE);
        to == end && self.bytes.len() < Self::LENGTH
    }

    /// The room for a tail of `length` bytes, after the others.
    fn room(&mut self, length: usize) -> &mut [u8] {
        let page = usize::try_from(PAGE_SIZE).unwrap_or(usize::MAX);
        let start = self.bytes.len().next_multiple_of(page);
        self.bytes.resize(start + length, 0);
        &mut self.bytes[start..]
    }
}

impl TreeBuilder {
    /// Adds everything in the image to the root directory. It becomes the tree's base.
    pub(super) fn pack_erofs(&mut self, file: File, path: &Path) -> Result<(), TreeError> {
        // Pieces of the image lie far apart; a file has holes between them.
        self.image.use_file()?;
        let image = Image::open(&file, path)?;
        let metadata = file.metadata();
        let metadata = metadata.map_err(TreeError::host(path, "read attributes of"))?;
        let root = image.inode(image.root)?;
        if root.mode & libc::S_IFMT != libc::S_IFDIR {
            return Err(image.damaged("its root is not a directory"));
        }
        self.nodes.get_mut(ROOT).attributes = attributes(&root);
        let mut packing = Packing {
            known: HashMap::from([(root.number, ROOT)]),
            pending: vec![(root, ROOT)],
            names: 0,
            tails: Tails::default(),
            image,
            path,
            stamp: Stamp::of(&metadata),
        };
        while let Some((directory, id)) = packing.pending.pop() {
            let mut entries = Vec::new();
            packing.image.entries(&directory, |name: &[u8], inode| {
                packing.names += 1;
                entries.push((Box::<[u8]>::from(name), inode));
                match packing.names {
                    0..=MAX_INODES => Ok(()),
                    _ => Err(TreeError::TooManyFiles {
                        path: show(name),
                        limit: MAX_INODES,
                    }),
                }
            })?;
            for (name, inode) in entries {
                self.pack_erofs_entry(&mut packing, id, &name, inode)?;
            }
        }
        self.write_tails(&mut packing.tails)?;
        let length = packing.image.length();
        self.image.set_base(file, length);
        Ok(())
    }

    fn pack_erofs_entry(
        &mut self,
        packing: &mut Packing<'_>,
        parent: NodeId,
        name: &[u8],
        number: u64,
    ) -> Result<(), TreeError> {
        if self
            .nodes
            .entries(parent)
            .is_some_and(|e| e.contains_key(name))
        {
            let reason = format!("a directory has the name {} twice", show(name));
            return Err(packing.image.damaged(reason));
        }
        if let Some(&id) = packing.known.get(&number) {
            if self.nodes.entries(id).is_some() {
                let reason = format!("inode {number} is a directory with several names");
                return Err(packing.image.damaged(reason));
            }
            return self.nodes.link(parent, name, id, name);
        }
        let inode = packing.image.inode(number)?;
        let content = match inode.mode & libc::S_IFMT {
            libc::S_IFREG => self.pack_erofs_file(packing, &inode, name)?,
            libc::S_IFDIR => Content::Directory {
                parent,
                entries: Default::default(),
            },
            libc::S_IFLNK => Content::Symlink {
                target: packing.image.link_target(&inode)?.into(),
            },
            format @ (libc::S_IFCHR | libc::S_IFBLK) => Content::Special {
                format,
                rdev: packing.image.device(&inode),
            },
            format @ (libc::S_IFIFO | libc::S_IFSOCK) => Content::Special { format, rdev: 0 },
            _ => {
                let reason = format!("inode {number} is of no known type");
                return Err(packing.image.damaged(reason));
            }
        };
        let is_directory = matches!(content, Content::Directory { .. });
        let id = self.nodes.add(attributes(&inode), content, name)?;
        self.nodes.link(parent, name, id, name)?;
        packing.known.insert(number, id);
        if is_directory {
            packing.pending.push((inode, id));
        }
        Ok(())
    }

    /// Adds a file. Whole pages of its contents are shown from the image; the rest is copied.
    fn pack_erofs_file(
        &mut self,
        packing: &mut Packing<'_>,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Content, TreeError> {
        let pieces = packing.image.pieces(inode)?;
        let size = inode.size;
        let offset = match pieces.first().and_then(Piece::huge_source) {
            Some(source) => self.image.reserve_shown(size, source, name)?,
            None => self.image.reserve(size, name)?,
        };
        let error = |action, error: io::Error| TreeError::host(packing.path, action)(error);
        let source = Source {
            path: name,
            error: &error,
        };
        for Piece {
            at,
            source: from,
            length,
        } in pieces
        {
            let Some(from) = from else { continue };
            let mut shown = 0;
            if at.is_multiple_of(PAGE_SIZE) && from.is_multiple_of(PAGE_SIZE) {
                // No reader sees the bytes after the end of the file in its last page.
                shown = match at + length == size {
                    true => length,
                    false => length / PAGE_SIZE * PAGE_SIZE,
                };
                self.image.show(offset + at, from, shown);
            }
            let (to, left) = (offset + at + shown, length - shown);
            if left < PAGE_SIZE && to.is_multiple_of(PAGE_SIZE) {
                self.add_tail(packing, from + shown, to, left)?;
                continue;
            }
            let mut reader = PieceReader {
                image: &packing.image,
                at: from + shown,
            };
            // The piece lies in the image, so the reader does not end before it does.
            self.image.copy(&mut reader, to, left, source)?;
        }
        Ok(Content::File {
            offset,
            size,
            stamp: packing.stamp.map(|stamp| stamp.part(inode.number)),
        })
    }
}

impl TreeBuilder {
    /// Copies less than a page from the image to the offset `to`, a multiple of the page size.
    fn add_tail(
        &mut self,
        packing: &mut Packing<'_>,
        from: u64,
        to: u64,
        length: u64,
    ) -> Result<(), TreeError> {
        let length = usize::try_from(length).unwrap_or_default();
        if length == 0 {
            return Ok(());
        }
        if !packing.tails.takes(to) {
            self.write_tails(&mut packing.tails)?;
            packing.tails.start = to;
        }
        packing.image.read_into(packing.tails.room(length), from)
    }

    fn write_tails(&mut self, tails: &mut Tails) -> Result<(), TreeError> {
        self.image.put(&tails.bytes, tails.start)?;
        tails.bytes.clear();
        Ok(())
    }
}

/// Reads consecutive bytes from an offset in the image.
struct PieceReader<'a> {
    image: &'a Image<'a>,
    at: u64,
}

impl io::Read for PieceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.image.read_into(buffer, self.at);
        read.map_err(io::Error::other)?;
        self.at += buffer.len() as u64;
        Ok(buffer.len())
    }
}

fn attributes(inode: &Inode) -> Attributes {
    Attributes {
        permissions: inode.mode & 0o7777,
        uid: inode.uid,
        gid: inode.gid,
        mtime_s: inode.mtime.0,
        mtime_ns: inode.mtime.1,
    }
}
