//! A tar file of a machine as local files. The machine is not trusted: no member leaves the directory,
//! whatever names and links the tar file has, because no link is followed.
//!
//! The first component of each name is the file that was requested. It is replaced by the local name.

use super::shown;
use super::stream::Incoming;
use anyhow::{Context, bail, ensure};
use hartline_tree::Attributes;
use hartline_tree::archive::{Archive, Kind, Member};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::Path;

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;
/// Most new directories, whose attributes are kept to the end.
const MAX_DIRECTORIES: usize = 1 << 20;
/// Permissions that files get here. Set-ID bits of a stranger's files are not kept.
const PERMISSIONS: u32 = 0o777;

/// Where the files go.
#[derive(Debug)]
pub struct Root {
    directory: File,
    /// Name of the file; `None`: the contents of a directory are unpacked.
    name: Option<OsString>,
}

/// Unpacking.
#[derive(Debug)]
pub struct Unpack {
    root: Root,
    owners: bool,
    /// New directories, and the attributes that they get at the end.
    made: Vec<(Vec<OsString>, Attributes)>,
    /// Number of devices and FIFOs, which are not made here.
    left_out: u64,
}

impl Root {
    /// Opens the directory.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn open(directory: &Path, name: Option<OsString>) -> anyhow::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(directory, flags, Mode::empty()).map_err(io::Error::from);
        let opened = opened.with_context(|| directory.display().to_string())?;
        Ok(Self {
            directory: opened.into(),
            name,
        })
    }

    /// The local components of a name in the archive; none for the directory itself.
    fn local(&self, path: &[u8]) -> anyhow::Result<Vec<OsString>> {
        let wrong = || format!("{}: a name that leads elsewhere", shown(path));
        ensure!(!path.starts_with(b"/") && !path.contains(&0), wrong());
        let mut names = path
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty());
        let first = names.next().with_context(wrong)?;
        ensure!(first != b"..", wrong());
        let mut local: Vec<OsString> = self.name.iter().cloned().collect();
        for name in names {
            ensure!(!matches!(name, b"." | b".."), wrong());
            local.push(OsStr::from_bytes(name).to_os_string());
        }
        Ok(local)
    }

    /// The directory of a file, opened without following links, and the file's name.
    fn parent<'a>(&self, names: &'a [OsString]) -> io::Result<(File, &'a OsStr)> {
        let (last, above) = names.split_last().ok_or(io::ErrorKind::IsADirectory)?;
        let mut directory = self.directory.try_clone()?;
        for name in above {
            directory = open_directory(&directory, name)?;
        }
        Ok((directory, last))
    }
}

fn open_directory(parent: &File, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?.into())
}

/// The type of the file with this name, if there is one.
fn existing(parent: &File, name: &OsStr) -> io::Result<Option<FileType>> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Unpack {
    /// Unpacks to `root`; `owners`: files keep their owners and groups.
    pub fn new(root: Root, owners: bool) -> Self {
        Self {
            root,
            owners,
            made: Vec::new(),
            left_out: 0,
        }
    }

    /// Unpacks a tar file. Result: the number of devices and FIFOs, which are left out.
    ///
    /// # Errors
    /// The tar file is not valid, or files cannot be made.
    pub fn run(mut self, incoming: Incoming) -> anyhow::Result<u64> {
        let path = Path::new("the machine's answer");
        let mut archive = Archive::new(path, Box::new(incoming));
        while let Some(member) = archive.next_member()? {
            self.add(&mut archive, &member)
                .with_context(|| shown(&member.path))?;
            archive.skip(member.padding)?;
        }
        while let Some((names, attributes)) = self.made.pop() {
            let directory = match names.is_empty() {
                true => self.root.directory.try_clone()?,
                false => {
                    let (parent, name) = self.root.parent(&names)?;
                    open_directory(&parent, name)?
                }
            };
            self.describe(&directory, &attributes)?;
        }
        Ok(self.left_out)
    }

    fn add(&mut self, archive: &mut Archive<'_>, member: &Member) -> anyhow::Result<()> {
        let names = self.root.local(&member.path)?;
        if names.is_empty() {
            ensure!(member.kind == Kind::Directory, "not a directory");
            return Ok(archive.skip(member.size)?);
        }
        let (parent, name) = self.root.parent(&names)?;
        let old = existing(&parent, name)?;
        if member.kind == Kind::Directory {
            match old {
                Some(FileType::Directory) => {}
                Some(_) => bail!("a directory cannot replace a file"),
                None => {
                    ensure!(
                        self.made.len() < MAX_DIRECTORIES,
                        "there are too many directories"
                    );
                    rustix::fs::mkdirat(&parent, name, Mode::RWXU).map_err(io::Error::from)?;
                    self.made.push((names.clone(), member.attributes));
                }
            }
            return Ok(archive.skip(member.size)?);
        }
        if let Kind::Special { .. } = member.kind {
            self.left_out += 1;
            let _ = writeln!(
                io::stderr(),
                "hartline: {}: a device or FIFO",
                shown(&member.path)
            );
            return Ok(archive.skip(member.size)?);
        }
        let target = match member.kind {
            Kind::HardLink => Some(self.root.local(&member.target)?),
            _ => None,
        };
        // The other name of a file may be this one.
        if target.as_ref() == Some(&names) {
            return Ok(());
        }
        match old {
            None => {}
            Some(FileType::RegularFile | FileType::Symlink) => {
                rustix::fs::unlinkat(&parent, name, AtFlags::empty()).map_err(io::Error::from)?;
            }
            Some(FileType::Directory) => bail!("a file cannot replace a directory"),
            Some(_) => bail!("only regular files and symbolic links are replaced"),
        }
        match (member.kind, target) {
            (Kind::HardLink, Some(target)) => {
                let (from, old) = self.root.parent(&target)?;
                let linked = rustix::fs::linkat(&from, old, &parent, name, AtFlags::empty());
                Ok(linked.map_err(io::Error::from)?)
            }
            (Kind::Symlink, _) => {
                self.add_link(&parent, name, member)?;
                Ok(archive.skip(member.size)?)
            }
            _ => self.add_file(archive, (&parent, name), member),
        }
    }

    fn add_link(&self, parent: &File, name: &OsStr, member: &Member) -> io::Result<()> {
        rustix::fs::symlinkat(OsStr::from_bytes(&member.target), parent, name)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if self.owners {
            let Attributes { uid, gid, .. } = member.attributes;
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::chownat(parent, name, Some(uid), Some(gid), flags)?;
        }
        let times = times(&member.attributes);
        Ok(rustix::fs::utimensat(parent, name, &times, flags)?)
    }

    fn add_file(
        &self,
        archive: &mut Archive<'_>,
        (parent, name): (&File, &OsStr),
        member: &Member,
    ) -> anyhow::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let made = rustix::fs::openat(parent, name, flags, mode).map_err(io::Error::from)?;
        let mut file = File::from(made);
        let mut piece = vec![0; PIECE];
        let mut left = member.size;
        while left > 0 {
            let count = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
            let bytes = &mut piece[..count];
            archive.read(bytes)?;
            left -= count as u64;
            // Zeros become holes.
            match bytes.iter().all(|&byte| byte == 0) {
                true => _ = file.seek(SeekFrom::Current(i64::try_from(count)?))?,
                false => file.write_all(bytes)?,
            }
        }
        file.set_len(member.size)?;
        Ok(self.describe(&file, &member.attributes)?)
    }

    /// Sets owner, permissions and time.
    fn describe(&self, file: &File, attributes: &Attributes) -> io::Result<()> {
        if self.owners {
            fchown(file, Some(attributes.uid), Some(attributes.gid))?;
        }
        let permissions = attributes.permissions & PERMISSIONS;
        file.set_permissions(Permissions::from_mode(permissions))?;
        Ok(rustix::fs::futimens(file, &times(attributes))?)
    }
}

/// The times of a file: it was read just now.
fn times(attributes: &Attributes) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_NOW,
        },
        last_modification: Timespec {
            tv_sec: attributes.mtime_s,
            tv_nsec: attributes.mtime_ns.into(),
        },
    }
}

#[cfg(test)]
mod tests;
