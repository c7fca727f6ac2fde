//! Restoring a backup.

use super::files::{parent, top};
use super::{
    BackupError, DATABASE, END, MACHINES, SECRET, START, Summary, UPLOADS, VERSION, VOLUMES, at,
};
use rustix::fs::{AtFlags, Mode, OFlags, linkat, mkdirat, openat, symlinkat};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, fchown, lchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use tar::{Archive, Entry, EntryType};

/// Mode of the data directory: the next daemon gives the service its files.
const CLOSED: u32 = 0o700;

/// Restores a backup as a new data directory.
///
/// # Errors
/// [`BackupError`].
pub fn restore(file: &Path, data: &Path) -> Result<Summary, BackupError> {
    let input = File::open(file).map_err(at(file))?;
    make(data)?;
    let root = File::open(data).map_err(at(data))?;
    let mut archive = Archive::new(io::BufReader::with_capacity(1 << 20, input));
    let invalid = |why: &dyn std::fmt::Display| BackupError::Invalid {
        path: file.to_path_buf(),
        why: why.to_string(),
    };
    let mut members = archive.entries().map_err(|error| invalid(&error))?;
    let mut first = match members.next() {
        Some(first) => first.map_err(|error| invalid(&error))?,
        None => return Err(invalid(&"it is empty")),
    };
    let mut version = String::new();
    let read = (&mut first).take(16).read_to_string(&mut version);
    let is_ours = first.path().is_ok_and(|path| path == Path::new(START));
    if read.is_err() || !is_ours {
        return Err(invalid(&"it has another beginning"));
    }
    if version != VERSION {
        return Err(invalid(&"a newer version of hartlined wrote it"));
    }
    let mut summary = Summary::default();
    for member in members {
        let mut member = member.map_err(|error| invalid(&error))?;
        let path = member.path().map_err(|error| invalid(&error))?.into_owned();
        if path == Path::new(END) {
            sync(&root).map_err(at(data))?;
            return Ok(summary);
        }
        let top = top(&path).unwrap_or_default();
        if ![DATABASE, SECRET, UPLOADS, MACHINES, VOLUMES]
            .map(PathBuf::from)
            .contains(&top)
        {
            return Err(invalid(&format!("it has the member {path:?}")));
        }
        extract(&root, &path, &mut member).map_err(at(&data.join(&path)))?;
        if path.components().count() == 2 {
            match top.to_str() {
                Some(UPLOADS) => summary.programs += 1,
                Some(MACHINES) => summary.machines += 1,
                _ => summary.volumes += 1,
            }
        }
    }
    Err(invalid(&"its end is missing"))
}

/// Makes the data directory, and the directories in it.
fn make(data: &Path) -> Result<(), BackupError> {
    match fs::read_dir(data) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(BackupError::Occupied(data.to_path_buf()));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = DirBuilder::new().recursive(true).mode(CLOSED).create(data);
            made.map_err(at(data))?;
        }
        Err(error) => return Err(at(data)(error)),
    }
    let closed = chown(data, Some(0), Some(0))
        .and_then(|()| fs::set_permissions(data, Permissions::from_mode(CLOSED)));
    closed.map_err(at(data))?;
    for name in [UPLOADS, MACHINES, VOLUMES] {
        let path = data.join(name);
        DirBuilder::new()
            .mode(CLOSED)
            .create(&path)
            .map_err(at(&path))?;
    }
    Ok(())
}

/// Makes a member below the data directory. No link is followed.
fn extract<R: Read>(root: &File, path: &Path, member: &mut Entry<'_, R>) -> io::Result<()> {
    let (parent, name) = parent(root, path)?;
    let header = member.header();
    let mode = header.mode()? & 0o7777;
    // All else belongs to root, until the next daemon gives it to the service.
    let owner = match path.starts_with(VOLUMES) {
        true => [header.uid()?, header.gid()?],
        false => [0, 0],
    };
    let [uid, gid] = owner.map(|id| u32::try_from(id).map_err(io::Error::other));
    let (uid, gid) = (uid?, gid?);
    let modified = UNIX_EPOCH + Duration::from_secs(header.mtime()?);
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a member of another type");
    let nofollow = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match header.entry_type() {
        EntryType::Directory => {
            mkdirat(&parent, name, Mode::RWXU)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | nofollow;
            let made = File::from(openat(&parent, name, flags, Mode::empty())?);
            fchown(&made, Some(uid), Some(gid))?;
            made.set_permissions(Permissions::from_mode(mode))
        }
        EntryType::Regular => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | nofollow;
            let mut made = File::from(openat(&parent, name, flags, Mode::RUSR | Mode::WUSR)?);
            io::copy(member, &mut made)?;
            fchown(&made, Some(uid), Some(gid))?;
            made.set_permissions(Permissions::from_mode(mode))?;
            made.set_modified(modified)
        }
        EntryType::Symlink => {
            let target = member.link_name()?.ok_or_else(wrong)?.into_owned();
            symlinkat(&target, &parent, name)?;
            // The directory is opened, and the last component of the path is not followed.
            let link = PathBuf::from(format!("/proc/self/fd/{}", raw(&parent))).join(name);
            lchown(link, Some(uid), Some(gid))
        }
        EntryType::Link => {
            let target = member.link_name()?.ok_or_else(wrong)?.into_owned();
            let (from, old) = super::files::parent(root, &target)?;
            Ok(linkat(&from, old, &parent, name, AtFlags::empty())?)
        }
        _ => Err(wrong()),
    }
}

fn raw(file: &File) -> i32 {
    use std::os::fd::AsRawFd;
    file.as_raw_fd()
}

/// Writes the file system of a directory to the disk.
fn sync(root: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(root)?)
}
