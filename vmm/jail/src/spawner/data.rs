//! The data directory and the owners of its files.
//!
//! ```text
//! DATA            root, group of the service, sticky: the service makes files, and cannot
//!                 replace root's files
//! DATA/lock       root: keeps other daemons away
//! DATA/empty      root: the root directory of jails
//! DATA/volumes    root, readable for the service: names of volumes
//! all else        the service
//! ```
//! If a version whose daemon was root made the data directory, the first start gives it to the
//! service.
//! Until that is done, only root can enter it. Later, only the names at the top are checked,
//! because an administrator may have restored them from a backup.

use super::volumes::{VolumeDirectory, open_directory};
use super::{Settings, SpawnerError, host};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, openat};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The maximum time for an earlier daemon to release the data directory, and the time between two
/// attempts to lock it.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const LOCK_PERIOD: Duration = Duration::from_millis(20);
/// Mode of the directory: sticky, for root and the service's group.
const MODE: u32 = 0o1770;
/// Mode of a directory that the service does not own yet.
const CLOSED: u32 = 0o700;
const LOCK: &str = "lock";
const EMPTY: &str = "empty";
const VOLUMES: &str = "volumes";
/// Names at the top that the service owns. Everything else there stays as it is.
const OWN: [&str; 15] = [
    "hartline.db",
    "hartline.db-wal",
    "hartline.db-shm",
    "secret",
    "secret.new",
    "secrets.key",
    "secrets.new",
    "probe.json",
    "reserve",
    "uploads",
    "trees",
    "images",
    "machines",
    "snapshots",
    "tmp",
];
/// Maximum depth of directories below those names.
const DEPTH: u32 = 4;

/// The open data directory.
#[derive(Debug)]
pub(super) struct Data {
    /// Keeps other daemons away, as long as any process has it open.
    pub lock: File,
    /// An empty directory that only root changes.
    pub empty: PathBuf,
    /// The volumes.
    pub volumes: VolumeDirectory,
}

impl Data {
    /// Makes missing files, locks the directory, and gives the service its files.
    ///
    /// # Errors
    /// [`SpawnerError`].
    pub(super) fn open(settings: &Settings) -> Result<Self, SpawnerError> {
        let (path, service) = (settings.data_dir.as_path(), settings.service());
        let directory = make_and_open(path).map_err(host(path.display()))?;
        let status = directory.metadata().map_err(host(path.display()))?;
        if status.uid() != 0 {
            return Err(SpawnerError::Data {
                path: path.display().to_string(),
                why: "must be root's: chown it to root, if no other program works with it",
            });
        }
        let is_handed_over = status.mode() & 0o7777 == MODE && status.gid() == service;
        if !is_handed_over {
            let closed = directory.set_permissions(Permissions::from_mode(CLOSED));
            closed.map_err(host(path.display()))?;
        }
        let lock = lock(path)?;
        let empty = path.join(EMPTY);
        own_directory(&empty, 0o555, 0)?;
        if fs::read_dir(&empty)
            .map_err(host(empty.display()))?
            .next()
            .is_some()
        {
            return Err(SpawnerError::Data {
                path: empty.display().to_string(),
                why: "must be empty: delete its contents",
            });
        }
        let volumes = own_directory(&path.join(VOLUMES), 0o750, service)?;
        let depth = if is_handed_over { 0 } else { DEPTH };
        // The former user of the service, if the service had another one.
        let before = match status.mode() & 0o7777 {
            MODE => status.gid(),
            _ => 0,
        };
        let hand = Hand {
            before: [0, before],
            service,
        };
        let handed = OWN
            .into_iter()
            .try_for_each(|name| hand.over(&directory, OsStr::new(name), depth))
            .and_then(|()| fchown(&directory, Some(0), Some(service)))
            .and_then(|()| directory.set_permissions(Permissions::from_mode(MODE)));
        handed.map_err(host(path.display()))?;
        Ok(Self {
            lock,
            empty,
            volumes: VolumeDirectory::new(volumes, settings.owner()),
        })
    }
}

fn make_and_open(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(CLOSED).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // The operator may have put a symbolic link here.
    File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(path)
}

/// Locks the directory.
fn lock(data: &Path) -> Result<File, SpawnerError> {
    let path = data.join(LOCK);
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let lock = options.custom_flags(libc::O_NOFOLLOW).open(&path);
    let lock = lock.map_err(host(path.display()))?;
    // If a daemon ends while it starts a jailed process, that process holds the lock until it
    // executes its program or ends.
    let patience = Instant::now() + LOCK_PATIENCE;
    while lock.try_lock().is_err() {
        if Instant::now() >= patience {
            return Err(SpawnerError::Locked(data.display().to_string()));
        }
        thread::sleep(LOCK_PERIOD);
    }
    Ok(lock)
}

/// Makes a directory that root owns, and opens it.
fn own_directory(path: &Path, mode: u32, group: u32) -> Result<File, SpawnerError> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(host(path.display())(error));
        }
        _ => {}
    }
    let directory = open_directory(path).map_err(host(path.display()))?;
    if directory.metadata().map_err(host(path.display()))?.uid() != 0 {
        return Err(SpawnerError::Data {
            path: path.display().to_string(),
            why: "must be root's: another user has made it",
        });
    }
    let made = fchown(&directory, Some(0), Some(group))
        .and_then(|()| directory.set_permissions(Permissions::from_mode(mode)));
    made.map_err(host(path.display()))?;
    Ok(directory)
}

/// Gives files to the service.
struct Hand {
    /// Users whose files may be given away.
    before: [u32; 2],
    service: u32,
}

impl Hand {
    /// Gives the service the file `name` of a directory of the daemon's, and the contents of a
    /// directory down to `depth` levels. Files of other owners or with several links stay.
    fn over(&self, parent: &File, name: &OsStr, depth: u32) -> io::Result<()> {
        let file = match open(parent, name, OFlags::PATH) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let status = file.metadata()?;
        let is_file = status.is_file() && status.nlink() == 1;
        if !self.before.contains(&status.uid()) || !(is_file || status.is_dir()) {
            return Ok(());
        }
        if status.is_dir() && depth > 0 {
            let directory = open(parent, name, OFlags::DIRECTORY)?;
            for entry in fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))? {
                self.over(&directory, &entry?.file_name(), depth - 1)?;
            }
        }
        // The directory itself comes last: until then only its former owner changes it.
        self.give(&file)
    }

    fn give(&self, file: &File) -> io::Result<()> {
        let (user, group) = (Uid::from_raw(self.service), Gid::from_raw(self.service));
        // The empty path is the open file itself.
        let flags = AtFlags::EMPTY_PATH;
        Ok(chownat(file, "", Some(user), Some(group), flags)?)
    }
}

/// Opens the file `name` of a directory. No link is followed.
fn open(directory: &File, name: &OsStr, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_vmm::platform::CoreSchedulingMode;
    use std::os::unix::fs::symlink;

    /// Only root can give files away.
    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    fn settings(data: &Path) -> Settings {
        Settings {
            data_dir: data.to_path_buf(),
            socket: data.join("socket"),
            listen: None,
            tls: None,
            first_uid: 0x7200_0000,
            uids: 4,
            dedicated_cpus: Vec::new(),
            disk_bandwidth: None,
            require_limits: false,
            core_scheduling: CoreSchedulingMode::Off,
            networks: None,
        }
    }

    fn owner(path: &Path) -> (u32, u32) {
        let status = fs::symlink_metadata(path).unwrap();
        (status.uid(), status.mode() & 0o7777)
    }

    #[test]
    fn files_of_an_earlier_version_are_handed_over() {
        if !is_root() {
            return;
        }
        let host = tempfile::tempdir().unwrap();
        let data = host.path().join("data");
        let at = |name: &str| data.join(name);
        fs::create_dir_all(at("trees/volumes")).unwrap();
        fs::create_dir_all(at("volumes/id")).unwrap();
        for name in [
            "hartline.db",
            "trees/volumes/x",
            "volumes/id/file",
            "strange",
        ] {
            fs::write(at(name), "").unwrap();
        }
        fs::write(host.path().join("secret"), "").unwrap();
        fs::hard_link(host.path().join("secret"), at("secret")).unwrap();
        symlink(host.path(), at("images")).unwrap();
        let settings = settings(&data);
        let service = settings.service();
        let open = Data::open(&settings).unwrap();
        assert_eq!(owner(&data), (0, MODE));
        for name in ["hartline.db", "trees", "trees/volumes", "trees/volumes/x"] {
            assert_eq!(owner(&at(name)).0, service, "{name}");
        }
        for name in [
            "volumes",
            "volumes/id/file",
            "strange",
            "secret",
            "images",
            "lock",
        ] {
            assert_eq!(owner(&at(name)).0, 0, "{name}");
        }
        assert_eq!(owner(host.path()).0, 0);
        drop(open);
        // From now on only the names at the top are given to the service.
        fs::write(at("trees/volumes/y"), "").unwrap();
        fs::remove_file(at("secret")).unwrap();
        fs::write(at("secret"), "restored").unwrap();
        Data::open(&settings).unwrap();
        assert_eq!(owner(&at("trees/volumes/y")).0, 0);
        assert_eq!(owner(&at("secret")).0, service);
    }

    #[test]
    fn directories_of_others_are_refused() {
        if !is_root() {
            return;
        }
        let host = tempfile::tempdir().unwrap();
        for name in [EMPTY, VOLUMES] {
            let data = host.path().join(format!("data-{name}"));
            fs::create_dir(&data).unwrap();
            symlink("/", data.join(name)).unwrap();
            assert!(Data::open(&settings(&data)).is_err(), "a link as {name}");
            fs::remove_file(data.join(name)).unwrap();
            fs::create_dir(data.join(name)).unwrap();
            std::os::unix::fs::chown(data.join(name), Some(7), None).unwrap();
            let refused = Data::open(&settings(&data)).unwrap_err();
            assert!(refused.to_string().contains("must be root's"), "{refused}");
        }
    }
}
