//! Access for the service to a data directory below directories that only root may walk through,
//! for example a user's home.

use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Flags of the mounts on the path.
const FLAGS: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);
/// Mode of directories that all users may walk through, and none but root may list.
const WALKED: u32 = 0o711;

/// Lets this process, which has one thread, reach an absolute path after it has given up root. If
/// necessary, it makes a mount namespace in which the parent directories have no other entries.
///
/// # Errors
/// Any I/O error of the host.
pub(super) fn make_reachable(path: &Path) -> io::Result<()> {
    let Some(blocked) = first_blocked(path)? else {
        return Ok(());
    };
    // SAFETY: the table of descriptors stays as it is: only the mount namespace of this process,
    // which has one thread, changes.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private)?;
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY);
    let target = options.open(path)?;
    mount("hartlined", &blocked, "tmpfs", FLAGS, None)?;
    walkable(&blocked)?;
    let below = path.strip_prefix(&blocked).map_err(io::Error::other)?;
    let mut at = blocked.clone();
    for name in below {
        at.push(name);
        fs::create_dir(&at)?;
        walkable(&at)?;
    }
    mount_bind(format!("/proc/self/fd/{}", target.as_raw_fd()), path)?;
    let closed = MountFlags::BIND | MountFlags::RDONLY;
    Ok(mount_remount(&blocked, closed | FLAGS, "")?)
}

/// The first parent directory of a path that not all users may walk through.
fn first_blocked(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
    above.reverse();
    for directory in above {
        if fs::metadata(directory)?.mode() & 0o001 == 0 {
            return Ok(Some(directory.to_path_buf()));
        }
    }
    Ok(None)
}

fn walkable(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(WALKED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_closed_directory_is_found() {
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("a/b/data");
        fs::create_dir_all(&path).unwrap();
        let modes = |modes: [u32; 3]| {
            for (name, mode) in ["", "a", "a/b"].into_iter().zip(modes) {
                let directory = host.path().join(name);
                fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
            }
            first_blocked(&path).unwrap()
        };
        assert_eq!(modes([0o755, 0o711, 0o755]), None);
        assert_eq!(modes([0o755, 0o700, 0o700]), Some(host.path().join("a")));
        assert_eq!(modes([0o755, 0o711, 0o750]), Some(host.path().join("a/b")));
    }
}
