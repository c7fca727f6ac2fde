//! Access for the service to a data directory below directories that only root may walk through,
//! for example a user's home.

use std::ffi::{CStr, CString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Flags of the mounts on the path.
const FLAGS: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
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
    // SAFETY: integers.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount(
        c"none",
        Path::new("/"),
        c"",
        libc::MS_REC | libc::MS_PRIVATE,
    )?;
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY);
    let target = options.open(path)?;
    mount(c"hartlined", &blocked, c"tmpfs", FLAGS)?;
    walkable(&blocked)?;
    let below = path.strip_prefix(&blocked).map_err(io::Error::other)?;
    let mut at = blocked.clone();
    for name in below {
        at.push(name);
        fs::create_dir(&at)?;
        walkable(&at)?;
    }
    let source = CString::new(format!("/proc/self/fd/{}", target.as_raw_fd()))?;
    mount(&source, path, c"", libc::MS_BIND)?;
    let closed = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
    mount(c"none", &blocked, c"", closed | FLAGS)
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

fn mount(source: &CStr, target: &Path, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    let target = CString::new(target.as_os_str().as_bytes())?;
    // SAFETY: NUL-terminated strings; no data are passed.
    check(unsafe {
        let none = std::ptr::null();
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, none)
    })
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
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
