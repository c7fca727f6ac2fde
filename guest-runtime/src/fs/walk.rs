//! Path resolution.

use super::filesystem::{Dentry, FileSystem};
use super::inode::MAY_EXEC;
use super::proc;
use super::process::Process;
use super::types::{Ino, MAX_LINKS};
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::limits::{NAME_MAX, PATH_MAX};
use hartline_linux::mount::MS_NOSYMFOLLOW;
use hartline_linux::stat::{S_IFLNK, S_IFMT};

/// Options of path resolution.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Follow a symbolic link in the last component.
    pub follow: bool,
    /// Follow no symbolic link at all (`RESOLVE_NO_SYMLINKS`).
    pub no_symlinks: bool,
    /// Do not follow links of `/proc` to open files (`RESOLVE_NO_MAGICLINKS`).
    pub no_magic_links: bool,
    /// Do not leave the file system (`RESOLVE_NO_XDEV`).
    pub one_device: bool,
    /// Do not leave the starting directory (`RESOLVE_BENEATH`).
    pub beneath: bool,
    /// The starting directory is the root (`RESOLVE_IN_ROOT`).
    pub in_root: bool,
}

impl Options {
    /// Options that follow, or do not follow, a symbolic link in the last component.
    pub fn following(follow: bool) -> Self {
        Self {
            follow,
            ..Self::default()
        }
    }
}

/// Last component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Last {
    /// A name.
    Name(Vec<u8>),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// The path is the root, or a link of `/proc` was followed.
    Root,
}

/// A resolved path.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The directory of the last component.
    pub parent: Ino,
    /// The last component.
    pub last: Last,
    /// The inode that the path leads to, if it exists.
    pub target: Option<Ino>,
    /// A `/` follows the last component.
    pub trailing_slash: bool,
}

impl Resolved {
    /// The inode that the path leads to.
    ///
    /// # Errors
    /// `ENOENT` if it does not exist.
    pub fn existing(&self) -> Result<Ino, Errno> {
        self.target.ok_or(Errno::ENOENT)
    }

    /// The place of the last component.
    ///
    /// # Errors
    /// `error` if the last component is not a name.
    pub fn dentry(&self, error: Errno) -> Result<Dentry<'_>, Errno> {
        match &self.last {
            Last::Name(name) => Ok(Dentry {
                directory: self.parent,
                name,
            }),
            _ => Err(error),
        }
    }
}

/// The state of a path resolution.
struct Walk<'a> {
    fs: &'a mut FileSystem,
    process: &'a Process,
    options: Options,
    start: Ino,
    root: Ino,
    at: Ino,
    rest: Vec<u8>,
    position: usize,
    links: u32,
}

/// The result of a step.
enum Step {
    Done(Resolved),
    On,
}

/// Resolves `path` from the directory `start`.
///
/// # Errors
/// Errors of path_resolution(7); for `options`, errors of openat2(2).
pub fn resolve(
    fs: &mut FileSystem,
    process: &Process,
    start: Ino,
    path: &[u8],
    options: Options,
) -> Result<Resolved, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    if path.len() >= PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let root = if options.in_root { start } else { process.root };
    let mut walk = Walk {
        fs,
        process,
        options,
        start,
        root,
        at: start,
        rest: path.to_vec(),
        position: 0,
        links: 0,
    };
    walk.enter_root()?;
    loop {
        if let Step::Done(resolved) = walk.step()? {
            walk.fs.mounts.used(resolved.parent.1);
            if let Some(target) = resolved.target {
                walk.fs.mounts.used(target.1);
            }
            return Ok(resolved);
        }
    }
}

impl Walk<'_> {
    /// Continues at the root if the rest of the path is absolute.
    fn enter_root(&mut self) -> Result<(), Errno> {
        if self.rest.first() != Some(&b'/') {
            return Ok(());
        }
        if self.options.beneath {
            return Err(Errno::EXDEV);
        }
        self.go(self.root)
    }

    /// Continues at an inode, which may be on another file system.
    fn go(&mut self, to: Ino) -> Result<(), Errno> {
        if self.options.one_device {
            let from = self.fs.attributes(self.start, self.process)?;
            if to.1 != self.start.1 || self.fs.attributes(to, self.process)?.device != from.device {
                return Err(Errno::EXDEV);
            }
        }
        self.at = to;
        Ok(())
    }

    /// The next component, whether a slash follows it, and whether another component follows it.
    fn component(&mut self) -> Option<(Vec<u8>, bool, bool)> {
        let rest = &self.rest[self.position..];
        let start = rest.iter().position(|&byte| byte != b'/')?;
        let rest = &rest[start..];
        let length = rest.iter().position(|&byte| byte == b'/');
        let length = length.unwrap_or(rest.len());
        let name = rest[..length].to_vec();
        let slash = length < rest.len();
        let last = rest[length..].iter().all(|&byte| byte == b'/');
        self.position += start + length;
        Some((name, slash, last))
    }

    fn step(&mut self) -> Result<Step, Errno> {
        let Some((name, slash, last)) = self.component() else {
            return Ok(self.done(self.at, Last::Root, Some(self.at), true));
        };
        let attributes = self.fs.attributes(self.at, self.process)?;
        if !attributes.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        attributes.check(&self.process.cred, MAY_EXEC)?;
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let directory = self.at;
        match name.as_slice() {
            b"." => {
                if last {
                    return Ok(self.done(directory, Last::Dot, Some(directory), slash));
                }
            }
            b".." => {
                self.up()?;
                if last {
                    return Ok(self.done(directory, Last::DotDot, Some(self.at), slash));
                }
            }
            _ => return self.named(name, slash, last),
        }
        Ok(Step::On)
    }

    fn done(&self, parent: Ino, last: Last, target: Option<Ino>, slash: bool) -> Step {
        Step::Done(Resolved {
            parent,
            last,
            target,
            trailing_slash: slash,
        })
    }

    fn up(&mut self) -> Result<(), Errno> {
        if self.at.is_at(self.start) && self.options.beneath {
            return Err(Errno::EXDEV);
        }
        if !self.at.is_at(self.root) {
            self.go(self.fs.parent(self.at, self.process)?)?;
        }
        Ok(())
    }

    fn named(&mut self, name: Vec<u8>, slash: bool, last: bool) -> Result<Step, Errno> {
        let directory = self.at;
        let Some(child) = self.fs.lookup(directory, &name, self.process)? else {
            if last {
                return Ok(self.done(directory, Last::Name(name), None, slash));
            }
            return Err(Errno::ENOENT);
        };
        let mode = self.fs.attributes(child, self.process)?.mode;
        if mode & S_IFMT == S_IFLNK && (!last || slash || self.options.follow) {
            return self.follow(child, last, slash);
        }
        self.go(child)?;
        if last {
            return Ok(self.done(directory, Last::Name(name), Some(child), slash));
        }
        Ok(Step::On)
    }

    fn follow(&mut self, link: Ino, last: bool, slash: bool) -> Result<Step, Errno> {
        self.links += 1;
        let refused = self.options.no_symlinks || self.fs.has_mount_flag(link, MS_NOSYMFOLLOW);
        if self.links > MAX_LINKS || refused {
            return Err(Errno::ELOOP);
        }
        let target = match proc::Node::from_ino(link) {
            Some(node) => {
                if let Some(ino) = node.magic_target(self.process) {
                    return self.follow_magic(ino, last, slash);
                }
                node.link_text(self.process)
            }
            None => self.fs.link_target(link)?,
        };
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        let mut rest = target;
        rest.extend_from_slice(&self.rest[self.position..]);
        self.rest = rest;
        self.position = 0;
        self.enter_root()?;
        Ok(Step::On)
    }

    fn follow_magic(&mut self, ino: Ino, last: bool, slash: bool) -> Result<Step, Errno> {
        if self.options.no_magic_links {
            return Err(Errno::ELOOP);
        }
        if self.options.beneath || self.options.in_root {
            return Err(Errno::EXDEV);
        }
        self.go(ino)?;
        if last {
            return Ok(self.done(ino, Last::Root, Some(ino), slash));
        }
        Ok(Step::On)
    }
}
