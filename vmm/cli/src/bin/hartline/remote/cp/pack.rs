//! Local files as a tar file.

use super::place::below;
use super::shown;
use super::stream::Outgoing;
use rustix::fs::{Mode, OFlags, major, minor};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Longest link target in a header, bytes.
const TARGET: usize = 100;

/// A file, or a directory with everything in it.
#[derive(Debug)]
pub struct Pack {
    /// The file.
    pub root: PathBuf,
    /// Its name in the archive; `None`: the contents of the directory have no directory above them.
    pub name: Option<OsString>,
    /// Whether the root is the file that a symbolic link leads to.
    pub follow: bool,
}

/// An archive that is being written.
struct Archive<'a> {
    builder: Builder<&'a mut Outgoing>,
    /// Number of sockets, which have no members.
    left_out: u64,
}

impl Pack {
    /// Writes the tar file. Result: the number of sockets, which are left out.
    ///
    /// # Errors
    /// A file cannot be read; `BrokenPipe`: the other side takes no more.
    pub fn run(&self, mut writer: Outgoing) -> io::Result<u64> {
        let packed = self.pack(&mut writer);
        if let Err(error) = &packed {
            // Without an end, the daemon does not take the tar file for a whole one.
            writer.fail(error);
        }
        packed
    }

    fn pack(&self, writer: &mut Outgoing) -> io::Result<u64> {
        let mut archive = Archive {
            builder: Builder::new(writer),
            left_out: 0,
        };
        match &self.name {
            Some(name) => archive.add(&self.root, name, self.follow)?,
            None => archive.add_contents(&self.root, OsStr::new(""))?,
        }
        let left_out = archive.left_out;
        archive.builder.into_inner()?.flush()?;
        Ok(left_out)
    }
}

/// An error with the path of its file.
fn of(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| {
        let text = format!("{}: {error}", path.display());
        io::Error::new(error.kind(), text)
    }
}

fn header(metadata: &Metadata, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & 0o7777);
    header.set_uid(metadata.uid().into());
    header.set_gid(metadata.gid().into());
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_size(0);
    header
}

impl Archive<'_> {
    /// Adds a file.
    fn add(&mut self, path: &Path, name: &OsStr, follow: bool) -> io::Result<()> {
        let metadata = match follow {
            true => fs::metadata(path),
            false => fs::symlink_metadata(path),
        };
        let metadata = metadata.map_err(of(path))?;
        let kind = metadata.file_type();
        if kind.is_file() {
            return self.add_file(path, name, follow);
        }
        if kind.is_dir() {
            let mut header = header(&metadata, EntryType::Directory);
            self.builder.append_data(&mut header, name, io::empty())?;
            return self.add_contents(path, name);
        }
        if kind.is_symlink() {
            return self.add_link(path, name, &metadata);
        }
        let kind = match () {
            () if kind.is_fifo() => EntryType::Fifo,
            () if kind.is_char_device() => EntryType::Char,
            () if kind.is_block_device() => EntryType::Block,
            () => {
                self.left_out += 1;
                let _ = writeln!(
                    io::stderr(),
                    "hartline: {}: a socket",
                    shown(name.as_bytes())
                );
                return Ok(());
            }
        };
        let mut header = header(&metadata, kind);
        if kind != EntryType::Fifo {
            header.set_device_major(major(metadata.rdev()))?;
            header.set_device_minor(minor(metadata.rdev()))?;
        }
        self.builder.append_data(&mut header, name, io::empty())
    }

    fn add_contents(&mut self, path: &Path, name: &OsStr) -> io::Result<()> {
        for entry in fs::read_dir(path).map_err(of(path))? {
            let entry = entry.map_err(of(path))?;
            let name = below(name, &entry.file_name());
            self.add(&entry.path(), &name, false)?;
        }
        Ok(())
    }

    /// Adds a regular file with the length that it has now: it may change meanwhile.
    fn add_file(&mut self, path: &Path, name: &OsStr, follow: bool) -> io::Result<()> {
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        flags.set(OFlags::NOFOLLOW, !follow);
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
        let file = File::from(file.map_err(of(path))?);
        let metadata = file.metadata()?;
        let mut header = header(&metadata, EntryType::Regular);
        header.set_size(metadata.len());
        let contents = file.chain(io::repeat(0)).take(metadata.len());
        self.builder.append_data(&mut header, name, contents)
    }

    fn add_link(&mut self, path: &Path, name: &OsStr, metadata: &Metadata) -> io::Result<()> {
        let target = fs::read_link(path).map_err(of(path))?;
        let target = target.as_os_str().as_bytes();
        let mut header = header(metadata, EntryType::Symlink);
        if target.len() > TARGET {
            let long = [("linkpath", target)];
            self.builder.append_pax_extensions(long)?;
        }
        header.set_link_name_literal(&target[..target.len().min(TARGET)])?;
        self.builder.append_data(&mut header, name, io::empty())
    }
}
