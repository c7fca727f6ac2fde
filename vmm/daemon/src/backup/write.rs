//! Making a backup.

use super::files::{directory, entries, entry, reader};
use super::{
    BackupError, DATABASE, END, MACHINES, Objects, SECRET, SNAPSHOT, START, Summary, UPLOADS,
    VERSION, VOLUMES, at,
};
use rustix::fs::readlinkat;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tar::{Builder, EntryType, Header};

/// Number of attempts at a backup; an attempt fails if something in its snapshot is deleted.
const TRIES: u32 = 5;

/// Writes a backup of a data directory to a new file. The service has the user `service`.
///
/// # Errors
/// [`BackupError`]. There is no file then.
pub fn write(data: &Path, service: u32, file: &Path) -> Result<Summary, BackupError> {
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    let output = options.open(file).map_err(at(file))?;
    let written = write_into(data, service, (file, &output));
    if written.is_err() {
        // The first error is reported.
        let _ = fs::remove_file(file);
    }
    written
}

fn write_into(
    data: &Path,
    service: u32,
    (file, output): (&Path, &File),
) -> Result<Summary, BackupError> {
    let mut missing = PathBuf::new();
    for _ in 0..TRIES {
        output.set_len(0).map_err(at(file))?;
        io::Seek::rewind(&mut &*output).map_err(at(file))?;
        let snapshot = Snapshot::take(data, service)?;
        match archive(data, &snapshot, (file, output))? {
            None => {
                output.sync_all().map_err(at(file))?;
                return Ok(Summary {
                    programs: snapshot.objects.programs.len(),
                    machines: snapshot.objects.machines.len(),
                    volumes: snapshot.objects.volumes.len(),
                });
            }
            Some(path) => missing = path,
        }
    }
    Err(BackupError::Changing(missing))
}

/// A snapshot of the database, deleted when dropped.
struct Snapshot {
    path: PathBuf,
    objects: Objects,
}

impl Snapshot {
    /// Takes a snapshot, as the service's user.
    fn take(data: &Path, service: u32) -> Result<Self, BackupError> {
        let path = data
            .join("tmp")
            .join(format!("backup-{}.db", std::process::id()));
        let taken = Command::new("/proc/self/exe")
            .arg(SNAPSHOT)
            .arg(data.join(DATABASE))
            .arg(&path)
            .stdin(Stdio::null())
            .uid(service)
            .gid(service)
            .output()
            .map_err(at(&path))?;
        let mut snapshot = Self {
            path,
            objects: Objects::default(),
        };
        if !taken.status.success() {
            let message = String::from_utf8_lossy(&taken.stderr).trim().to_owned();
            return Err(BackupError::Snapshot(message));
        }
        let objects = serde_json::from_slice(&taken.stdout);
        snapshot.objects = objects.map_err(|error| BackupError::Snapshot(error.to_string()))?;
        Ok(snapshot)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // The next daemon deletes files that are left there.
        let _ = fs::remove_file(&self.path);
    }
}

/// Writes the archive. Result: something in the snapshot that is gone, if there is such.
fn archive(
    data: &Path,
    snapshot: &Snapshot,
    (file, output): (&Path, &File),
) -> Result<Option<PathBuf>, BackupError> {
    let root = File::open(data).map_err(at(data))?;
    let mut members = Members {
        data,
        file,
        builder: Builder::new(io::BufWriter::with_capacity(1 << 20, output)),
        links: HashMap::new(),
    };
    members.text(START, VERSION)?;
    let temporary = directory(&root, OsStr::new("tmp")).map_err(at(data))?;
    let name = snapshot.path.file_name().unwrap_or_default();
    if members
        .regular(&temporary, name, Path::new(DATABASE))?
        .is_none()
    {
        return Ok(Some(snapshot.path.clone()));
    }
    let secret = members.regular(&root, OsStr::new(SECRET), Path::new(SECRET))?;
    if secret.is_none() {
        return Ok(Some(data.join(SECRET)));
    }
    let uploads = directory(&root, OsStr::new(UPLOADS)).map_err(at(data))?;
    for id in checked(&snapshot.objects.programs)? {
        let path = Path::new(UPLOADS).join(id);
        if members.regular(&uploads, OsStr::new(id), &path)?.is_none() {
            return Ok(Some(path));
        }
    }
    // A machine that was never started has no files, and one that was deleted has none any more.
    for (kind, ids, is_needed) in [
        (MACHINES, &snapshot.objects.machines, false),
        (VOLUMES, &snapshot.objects.volumes, true),
    ] {
        let parent = directory(&root, OsStr::new(kind)).map_err(at(&data.join(kind)))?;
        for id in checked(ids)? {
            let path = Path::new(kind).join(id);
            let found = members.any(&parent, OsStr::new(id), &path)?;
            if found.is_none() && is_needed {
                return Ok(Some(path));
            }
        }
    }
    members.text(END, "")?;
    let written = members
        .builder
        .into_inner()
        .and_then(|buffer| buffer.into_inner().map_err(io::IntoInnerError::into_error));
    written.map_err(at(file))?;
    Ok(None)
}

/// The ids of a snapshot, which the service wrote: they are names without a slash or dots.
fn checked(ids: &[String]) -> Result<impl Iterator<Item = &str>, BackupError> {
    let is_id = |id: &String| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    match ids.iter().find(|id| !is_id(id)) {
        Some(id) => Err(BackupError::Snapshot(format!("{id:?}: not an id"))),
        None => Ok(ids.iter().map(String::as_str)),
    }
}

/// The members of an archive while it is written.
struct Members<'a> {
    data: &'a Path,
    file: &'a Path,
    builder: Builder<io::BufWriter<&'a File>>,
    /// Members by device and inode, of files with several names.
    links: HashMap<(u64, u64), PathBuf>,
}

impl Members<'_> {
    /// Adds a small file.
    fn text(&mut self, name: &str, text: &str) -> Result<(), BackupError> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o600);
        header.set_size(text.len() as u64);
        let added = self.builder.append_data(&mut header, name, text.as_bytes());
        added.map_err(at(self.file))
    }

    /// Adds a regular file as the member `path`. `None`: there is none.
    fn regular(
        &mut self,
        parent: &File,
        name: &OsStr,
        path: &Path,
    ) -> Result<Option<()>, BackupError> {
        let host = self.data.join(path);
        let file = match reader(parent, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(at(&host))?,
        };
        let status = file.metadata().map_err(at(&host))?;
        if !status.is_file() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
            return Err(at(&host)(error));
        }
        let mut header = header(&status, EntryType::Regular);
        header.set_size(status.len());
        // A file that becomes shorter is filled up with zeros.
        let bytes = file.chain(io::repeat(0)).take(status.len());
        let added = self.builder.append_data(&mut header, path, bytes);
        added.map_err(at(&host))?;
        Ok(Some(()))
    }

    /// Adds a file, a symbolic link, or a directory with its contents. `None`: there is nothing of
    /// this name.
    fn any(&mut self, parent: &File, name: &OsStr, path: &Path) -> Result<Option<()>, BackupError> {
        let host = self.data.join(path);
        let found = match entry(parent, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(at(&host))?,
        };
        let status = found.metadata().map_err(at(&host))?;
        let identity = (status.dev(), status.ino());
        if status.is_dir() {
            let mut header = header(&status, EntryType::Directory);
            let added = self.builder.append_data(&mut header, path, io::empty());
            added.map_err(at(self.file))?;
            let below = directory(parent, name).map_err(at(&host))?;
            for entry in entries(&below).map_err(at(&host))? {
                let name = entry.map_err(at(&host))?.file_name();
                // A file that is deleted meanwhile is not in the backup.
                self.any(&below, &name, &path.join(&name))?;
            }
            return Ok(Some(()));
        }
        if let Some(first) = self.links.get(&identity) {
            let mut header = header(&status, EntryType::Link);
            let added = self.builder.append_link(&mut header, path, first);
            return added.map(Some).map_err(at(self.file));
        }
        let added = if status.is_symlink() {
            let target = readlinkat(parent, name, Vec::new()).map_err(io::Error::from);
            let target = OsString::from_vec(target.map_err(at(&host))?.into_bytes());
            let mut header = header(&status, EntryType::Symlink);
            let added = self.builder.append_link(&mut header, path, &target);
            added.map(Some).map_err(at(self.file))?
        } else if status.is_file() {
            self.regular(parent, name, path)?
        } else {
            // Volumes have nothing else.
            return Ok(Some(()));
        };
        if status.nlink() > 1 && added.is_some() {
            self.links.insert(identity, path.to_path_buf());
        }
        Ok(added)
    }
}

/// A header with the attributes of a file.
fn header(status: &Metadata, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(status.mode() & 0o7777);
    header.set_uid(status.uid().into());
    header.set_gid(status.gid().into());
    header.set_mtime(u64::try_from(status.mtime()).unwrap_or(0));
    header.set_size(0);
    header
}
