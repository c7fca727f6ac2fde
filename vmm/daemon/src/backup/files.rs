//! Files below a directory, opened without following links.

use rustix::fs::{Mode, OFlags, openat};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};

/// Opens a directory below another one.
pub(super) fn directory(parent: &File, name: &OsStr) -> io::Result<File> {
    open(parent, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens a file for reading. The caller checks its type: opening does not wait, and has no effect.
pub(super) fn reader(parent: &File, name: &OsStr) -> io::Result<File> {
    open(parent, name, OFlags::RDONLY | OFlags::NONBLOCK)
}

/// Opens an entry, of any type, for its attributes.
pub(super) fn entry(parent: &File, name: &OsStr) -> io::Result<File> {
    open(parent, name, OFlags::PATH)
}

fn open(parent: &File, name: &OsStr, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?.into())
}

/// The entries of a directory.
pub(super) fn entries(directory: &File) -> io::Result<fs::ReadDir> {
    fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// The directory of a path below `root`, and the last component. Every component is a name.
pub(super) fn parent<'a>(root: &File, path: &'a Path) -> io::Result<(File, &'a OsStr)> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "a name that leads elsewhere");
    let mut names = path.components().map(|component| match component {
        Component::Normal(name) => Ok(name),
        _ => Err(wrong()),
    });
    let mut last = names.next().ok_or_else(wrong)??;
    let mut parent = root.try_clone()?;
    for name in names {
        parent = directory(&parent, last)?;
        last = name?;
    }
    Ok((parent, last))
}

/// The first component of a path.
pub(super) fn top(path: &Path) -> Option<PathBuf> {
    path.components()
        .next()
        .map(|first| PathBuf::from(first.as_os_str()))
}
