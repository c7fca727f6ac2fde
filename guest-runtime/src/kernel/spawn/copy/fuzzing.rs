//! Entry point for the fuzz target `copy` (`fuzz/`): unpacks an archive in a file system in memory, as
//! a copy from the host does. Not an API: no documentation, no stability. It is built always, so that
//! clippy and the compiler check it with the code that it calls.

use super::write::Writer;
use crate::credentials::Credentials;
use crate::file::Vfs;
use crate::fs::filesystem::{Dentry, NewInode};
use crate::fs::process::Process;
use crate::fs::types::Ino;
use crate::fs::walk::Options;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::AT_FDCWD;

/// Memory of the file system, bytes.
const LIMIT: u64 = 16 << 20;
/// The most members.
const MEMBERS: u64 = 1000;

/// Unpacks an archive into a new directory, in pieces of this length. Result: whether everything
/// outside of the directory is as it was.
///
/// # Errors
/// The file system cannot be made.
pub fn unpack(archive: &[u8], piece: usize) -> Result<bool, Errno> {
    let (mut vfs, process) = Vfs::new(None, LIMIT, || 5, Credentials::root(), 1, 0)?;
    let root = find(&mut vfs, &process, b"/")?;
    let tmp = find(&mut vfs, &process, b"/tmp")?;
    for name in [&b"work"[..], b"other"] {
        let directory = Dentry {
            directory: tmp,
            name,
        };
        let new = NewInode::directory(0o755);
        vfs.fs.create(directory, new, &process.cred)?;
    }
    let before = [names(&vfs, root)?, names(&vfs, tmp)?];
    let directory = find(&mut vfs, &process, b"/tmp/work")?;
    let mut writer = Writer::new(&mut vfs, directory, (true, MEMBERS));
    let mut pieces = archive.chunks(piece.max(1));
    let taken = pieces.try_for_each(|piece| writer.take(piece, &mut vfs, &process));
    // An archive that is refused is removed in part only: members before the fault stay.
    let _ = taken.and_then(|()| writer.end(&mut vfs, &process));
    writer.release(&mut vfs, &process);
    let other = find(&mut vfs, &process, b"/tmp/other")?;
    let after = [names(&vfs, root)?, names(&vfs, tmp)?];
    // A VM keeps its first process for ever: it is in a list that it has itself.
    process.registry.remove(process.pid);
    Ok(before == after && names(&vfs, other)?.is_empty())
}

fn find(vfs: &mut Vfs, process: &Process, path: &[u8]) -> Result<Ino, Errno> {
    let resolved = vfs.resolve(process, AT_FDCWD, path, Options::following(false))?;
    resolved.existing()
}

/// The entries of a directory, with their inodes and modes.
fn names(vfs: &Vfs, directory: Ino) -> Result<Vec<(Vec<u8>, Ino, u32)>, Errno> {
    let (mut entries, mut cookie) = (Vec::new(), 0);
    while let Some(found) = vfs.fs.next_entry(directory, cookie)? {
        entries.push((found.name.to_vec(), found.ino, found.mode));
        cookie = found.cookie + 1;
    }
    Ok(entries)
}
