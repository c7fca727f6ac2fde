//! Tests of the VFS: a writer of small images, and short forms of the calls.

mod data;
mod descriptors;
mod epoll;
mod image;
mod model;
mod names;
mod opening;
mod operations;
mod overlays;
mod proc;

use crate::convert::{low_u32, to_usize};
use crate::credentials::Credentials;
use crate::file::open::Request;
use crate::file::operations::File;
use crate::file::pty::pair::Ptys;
use crate::file::transfer::Outside;
use crate::file::{Io, Vfs};
use crate::fs::disks::Disks;
use crate::fs::filesystem::{Dentry, NewInode};
use crate::fs::inode::Attributes;
use crate::fs::process::{FileId, Process};
use crate::fs::tree::Tree;
use crate::fs::types::Ino;
use crate::fs::walk::{Options, Resolved};
use crate::ids::FIRST;
use crate::mm::{UserSlice, UserSliceMut};
use crate::net::Network;
use core::sync::atomic::{AtomicU64, Ordering};
use hartline_abi::tree::MAGIC;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::AT_FDCWD;
use hartline_linux::stat::{S_IFDIR, S_IFLNK, S_IFREG};
use std::rc::Rc;

pub fn user() -> Credentials {
    Credentials::new(1000, 1000)
}
pub const LIMIT: u64 = 16 << 20;

/// A node of an image to write.
pub enum Node {
    Dir(Vec<(&'static str, Node)>),
    File(Vec<u8>),
    Link(&'static str),
    /// Another name of the file that was written under this name.
    Hard(&'static str),
}

/// An image inode before it is laid out.
#[derive(Clone, Default)]
struct Raw {
    mode: u32,
    nlink: u32,
    parent: u32,
    offset: u64,
    size: u64,
}

#[derive(Default)]
struct Writer {
    inodes: Vec<Raw>,
    data: Vec<u8>,
    named: Vec<(&'static str, u32)>,
}

/// Start of inode data in an image of [`image`].
const DATA: u64 = 1 << 20;

impl Writer {
    fn put(&mut self, bytes: &[u8]) -> u64 {
        let offset = DATA + self.data.len() as u64;
        self.data.extend_from_slice(bytes);
        let padded = self.data.len().next_multiple_of(8);
        self.data.resize(padded, 0);
        offset
    }

    fn add(&mut self, node: &Node, parent: u32) -> u32 {
        let index = low_u32(self.inodes.len() as u64);
        self.inodes.push(Raw {
            nlink: 1,
            parent,
            ..Raw::default()
        });
        let (mode, offset, size) = match node {
            Node::File(bytes) => (S_IFREG | 0o644, self.put(bytes), bytes.len()),
            Node::Link(target) => (S_IFLNK | 0o777, self.put(target.as_bytes()), target.len()),
            Node::Hard(_) => unreachable!("handled by the directory"),
            Node::Dir(children) => {
                let mut sorted: Vec<_> = children.iter().collect();
                sorted.sort_by_key(|(name, _)| *name);
                let mut entries = Vec::new();
                for (name, child) in sorted {
                    let inode = match child {
                        Node::Hard(other) => {
                            let found = self.named.iter().find(|(name, _)| name == other);
                            let inode = found.expect("written before").1;
                            self.inodes[inode as usize].nlink += 1;
                            inode
                        }
                        child => self.add(child, index),
                    };
                    self.named.push((name, inode));
                    let at = self.put(name.as_bytes());
                    entries.extend_from_slice(&inode.to_le_bytes());
                    entries.extend_from_slice(&low_u32(name.len() as u64).to_le_bytes());
                    entries.extend_from_slice(&at.to_le_bytes());
                }
                (S_IFDIR | 0o755, self.put(&entries), children.len())
            }
        };
        let raw = &mut self.inodes[index as usize];
        (raw.mode, raw.offset, raw.size) = (mode, offset, size as u64);
        index
    }
}

/// Returns the bytes of an image.
pub fn image(root: &Node) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.add(root, 0);
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&hartline_abi::ABI_VERSION.to_le_bytes());
    bytes.extend_from_slice(&low_u32(writer.inodes.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&32u64.to_le_bytes());
    bytes.extend_from_slice(&(DATA + writer.data.len() as u64).to_le_bytes());
    for raw in &writer.inodes {
        for word in [raw.mode, raw.nlink, 0, 0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&0u64.to_le_bytes());
        bytes.extend_from_slice(&1_000_000u64.to_le_bytes());
        bytes.extend_from_slice(&5u32.to_le_bytes());
        bytes.extend_from_slice(&raw.parent.to_le_bytes());
        bytes.extend_from_slice(&raw.offset.to_le_bytes());
        bytes.extend_from_slice(&raw.size.to_le_bytes());
    }
    bytes.resize(to_usize(DATA), 0);
    bytes.extend_from_slice(&writer.data);
    bytes
}

/// An image with a few files in several directories.
pub fn sample() -> Node {
    Node::Dir(vec![
        (
            "etc",
            Node::Dir(vec![
                ("motd", Node::File(b"hello\n".to_vec())),
                ("passwd", Node::File(b"root:x:0:0::/:/bin/sh\n".to_vec())),
                ("zmotd", Node::Hard("motd")),
            ]),
        ),
        ("bin", Node::Dir(vec![("sh", Node::File(vec![7; 10_000]))])),
        ("link", Node::Link("etc/motd")),
        ("loop", Node::Link("loop")),
        ("absolute", Node::Link("/etc")),
        ("empty", Node::Dir(vec![])),
    ])
}

pub fn tree(bytes: Vec<u8>) -> Tree {
    Tree::new(Vec::leak(bytes)).expect("a good image")
}

/// A clock that advances with each reading.
pub fn clock() -> u64 {
    static NOW: AtomicU64 = AtomicU64::new(2_000_000_000_000_000_000);
    NOW.fetch_add(1000, Ordering::Relaxed)
}

/// The environment of a test: input that ends, output that is kept.
pub struct World {
    pub cred: Credentials,
    pub input: Vec<u8>,
    pub output: Vec<u8>,
    pub names: Vec<(u32, [u8; 16])>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            cred: Credentials::root(),
            input: Vec::new(),
            output: Vec::new(),
            names: Vec::new(),
        }
    }
}

impl Outside for World {
    fn task(&self) -> u32 {
        1
    }

    fn cred(&self) -> &Credentials {
        &self.cred
    }

    fn set_name(&mut self, tid: u32, name: [u8; 16]) -> Result<(), Errno> {
        self.names.push((tid, name));
        Ok(())
    }

    fn read_input(&mut self, mut to: UserSliceMut<'_>, nonblocking: bool) -> Result<usize, Errno> {
        if self.input.is_empty() && nonblocking {
            return Err(Errno::EAGAIN);
        }
        let n = to.len().min(self.input.len());
        to.copy_start(&self.input);
        self.input.drain(..n);
        Ok(n)
    }

    fn write_output(&mut self, _: u32, from: UserSlice<'_>) -> Result<usize, Errno> {
        from.append_to(&mut self.output);
        Ok(from.len())
    }

    fn terminal(&self) -> Option<u32> {
        None
    }

    fn random(&mut self, mut to: UserSliceMut<'_>) {
        to.fill(4);
    }

    fn mix(&mut self, _: UserSlice<'_>) {}

    fn entropy(&mut self, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        to.fill(5);
        Ok(to.len())
    }
}

/// A VFS and its process.
pub struct Machine {
    pub vfs: Vfs,
    pub net: Network,
    pub ptys: Ptys,
    pub disks: Disks,
    pub process: Process,
    pub world: World,
}

impl Machine {
    pub fn new(tree: Option<Tree>, limit: u64) -> Self {
        let files = Vfs::new(tree, limit, clock, Credentials::root(), FIRST, 0);
        let mut machine = Self::of(files.expect("a good image"));
        machine.open_streams().expect("standard streams");
        machine
    }

    /// A machine with these files, and no open ones.
    pub fn of((vfs, process): (Vfs, Process)) -> Self {
        Self {
            vfs,
            net: Network::default(),
            ptys: Ptys::default(),
            disks: Disks::default(),
            process,
            world: World::default(),
        }
    }

    /// Splits the machine.
    pub fn parts(&mut self) -> (Io<'_>, &mut Process, &mut World) {
        let io = Io {
            vfs: &mut self.vfs,
            net: &mut self.net,
            ptys: &mut self.ptys,
            disks: &mut self.disks,
        };
        (io, &mut self.process, &mut self.world)
    }

    /// The files with what they lead to.
    pub fn io(&mut self) -> Io<'_> {
        self.parts().0
    }

    pub fn open_streams(&mut self) -> Result<(), Errno> {
        let (mut io, process, _) = self.parts();
        io.open_streams(process)
    }

    pub fn sample() -> Self {
        Self::new(Some(tree(image(&sample()))), LIMIT)
    }

    pub fn empty() -> Self {
        Self::new(None, LIMIT)
    }

    pub fn resolve(&mut self, path: &str, follow: bool) -> Result<Resolved, Errno> {
        let options = Options::following(follow);
        self.vfs
            .resolve(&self.process, AT_FDCWD, path.as_bytes(), options)
    }

    /// The inode at `path`; a symbolic link in the last component is not followed.
    pub fn at(&mut self, path: &str) -> Result<Ino, Errno> {
        self.resolve(path, false)?.existing()
    }

    pub fn stat(&mut self, path: &str) -> Result<Attributes, Errno> {
        let ino = self.resolve(path, true)?.existing()?;
        self.vfs.fs.attributes(ino, &self.process)
    }

    pub fn make(&mut self, path: &str, new: NewInode) -> Result<Ino, Errno> {
        let resolved = self.resolve(path, false)?;
        if resolved.target.is_some() {
            return Err(Errno::EEXIST);
        }
        let dentry = resolved.dentry(Errno::EEXIST)?;
        self.vfs.fs.create(dentry, new, &self.process.cred)
    }

    pub fn mkdir(&mut self, path: &str) -> Result<Ino, Errno> {
        self.make(path, NewInode::directory(0o755))
    }

    pub fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        let resolved = self.resolve(path, false)?;
        let ino = resolved.existing()?;
        let dentry = resolved.dentry(Errno::EISDIR)?;
        self.vfs.fs.unlink(dentry, ino, &self.process.cred)
    }

    pub fn rmdir(&mut self, path: &str) -> Result<(), Errno> {
        let resolved = self.resolve(path, false)?;
        let ino = resolved.existing()?;
        let dentry = resolved.dentry(Errno::EBUSY)?;
        self.vfs
            .fs
            .remove_directory(dentry, ino, &self.process.cred)
    }

    pub fn link(&mut self, old: &str, new: &str) -> Result<(), Errno> {
        let ino = self.at(old)?;
        let resolved = self.resolve(new, false)?;
        let dentry = resolved.dentry(Errno::EEXIST)?;
        self.vfs.fs.link(dentry, ino, &self.process.cred)
    }

    pub fn rename(
        &mut self,
        old: &str,
        new: &str,
        how: crate::fs::names::Rename,
    ) -> Result<(), Errno> {
        let (source, target) = (self.resolve(old, false)?, self.resolve(new, false)?);
        let from: Dentry<'_> = source.dentry(Errno::EBUSY)?;
        let to = target.dentry(Errno::EBUSY)?;
        let ino = source.existing()?;
        self.vfs
            .fs
            .rename((from, ino), (to, target.target), how, &self.process.cred)
    }

    pub fn open(&mut self, path: &str, flags: u32, mode: u32) -> Result<u32, Errno> {
        let request = Request {
            dirfd: AT_FDCWD,
            path: path.as_bytes(),
            flags,
            mode,
            options: Options::default(),
        };
        let (mut io, process, _) = self.parts();
        io.open(process, request)
    }

    pub fn close(&mut self, fd: u32) -> Result<(), Errno> {
        let (mut io, process, _) = self.parts();
        io.close(process, fd)
    }

    /// Opens a file that is not in the file system.
    pub fn open_anonymous(&mut self, file: Rc<dyn File>, flags: u32) -> u32 {
        let (mut io, process, _) = self.parts();
        io.open_anonymous(process, file, flags).unwrap()
    }

    /// The descriptors of a new pipe.
    pub fn pipe(&mut self) -> [u32; 2] {
        let (mut io, process, _) = self.parts();
        io.pipe(process, 0, false).unwrap()
    }

    pub fn id(&self, fd: u32) -> Result<FileId, Errno> {
        Ok(self.process.fds.get(fd)?.file)
    }

    pub fn read(&mut self, fd: u32, count: usize) -> Result<Vec<u8>, Errno> {
        let mut buffer = vec![0; count];
        let id = self.id(fd)?;
        let (mut io, _, world) = self.parts();
        let n = io.read(id, None, (&mut buffer).into(), world)?;
        buffer.truncate(n);
        Ok(buffer)
    }

    pub fn write(&mut self, fd: u32, bytes: &[u8]) -> Result<usize, Errno> {
        let id = self.id(fd)?;
        let (mut io, _, world) = self.parts();
        io.write(id, None, bytes.into(), world)
    }

    /// Returns the contents of a file.
    pub fn contents(&mut self, path: &str) -> Result<Vec<u8>, Errno> {
        let ino = self.resolve(path, true)?.existing()?;
        let data = self.vfs.fs.inode(ino)?.data()?;
        let mut buffer = vec![0; to_usize(data.size())];
        let n = data.read(0, &mut buffer);
        assert_eq!(n, buffer.len());
        Ok(buffer)
    }

    /// The names in a directory, in order of their cookies.
    pub fn list(&mut self, path: &str) -> Result<Vec<String>, Errno> {
        let ino = self.resolve(path, true)?.existing()?;
        let mut names = Vec::new();
        let mut cookie = 0;
        while let Some(found) = self.vfs.fs.next_entry(ino, cookie)? {
            names.push(String::from_utf8_lossy(found.name).into_owned());
            cookie = found.cookie + 1;
        }
        Ok(names)
    }

    pub fn object(&self, fd: u32) -> &dyn File {
        &*self.vfs.file(&self.process, fd).expect("open").object
    }
}
