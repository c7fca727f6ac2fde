//! Reading directories: `getdents64`.

use super::Entry;
use crate::convert::low_u16;
use crate::file::Vfs;
use crate::file::directory::Directory;
use crate::fs::directory::FIRST_COOKIE;
use crate::fs::inode::directory_type;
use crate::fs::proc;
use crate::fs::process::Process;
use crate::fs::types::Ino;
use crate::fs::volume::is_volume;
use crate::kernel::Kernel;
use crate::mm::user;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::inotify::IN_ACCESS;
use hartline_linux::stat::S_IFDIR;
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[(nr::getdents64, getdents64)];

/// Length of `struct linux_dirent64` before the name.
const HEADER: usize = 19;
/// The most bytes that one call returns.
const MAX_BYTES: u64 = 1 << 20;

struct Item<'a> {
    cookie: u64,
    name: Cow<'a, [u8]>,
    ino: u64,
    kind: u8,
}

/// Returns the first entry of `directory` with at least this cookie, `.` and `..` included.
fn next_item<'a>(
    vfs: &'a Vfs,
    process: &Process,
    directory: Ino,
    cookie: u64,
) -> Result<Option<Item<'a>>, Errno> {
    if cookie < FIRST_COOKIE {
        let (name, ino) = match cookie {
            0 => (b".".as_slice(), directory),
            _ if directory.is_at(process.root) => (b"..".as_slice(), directory),
            _ => (b"..".as_slice(), vfs.fs.parent(directory, process)?),
        };
        return Ok(Some(Item {
            cookie,
            name: Cow::Borrowed(name),
            ino: ino.0,
            kind: directory_type(S_IFDIR),
        }));
    }
    if let Some(node) = proc::Node::from_ino(directory) {
        let Some((cookie, name, node)) = node.next_entry(cookie, process) else {
            return Ok(None);
        };
        return Ok(Some(Item {
            cookie,
            name: Cow::Owned(name),
            ino: node.ino().0,
            kind: directory_type(node.attributes(process)?.mode),
        }));
    }
    let found = vfs.fs.next_entry(directory, cookie)?;
    Ok(found.map(|found| Item {
        cookie: found.cookie,
        name: Cow::Borrowed(found.name),
        ino: found.ino.0,
        kind: directory_type(found.mode),
    }))
}

fn append(out: &mut Vec<u8>, item: &Item<'_>, length: usize) {
    let end = out.len() + length;
    out.extend_from_slice(&item.ino.to_le_bytes());
    out.extend_from_slice(&(item.cookie + 1).to_le_bytes());
    out.extend_from_slice(&low_u16(length as u64).to_le_bytes());
    out.push(item.kind);
    out.extend_from_slice(&item.name);
    out.resize(end, 0);
}

/// Returns the entries of a volume's directory that fit in `room`, and the cookie after them.
fn host_entries(entries: &[u8], room: usize, mut cookie: u64) -> Result<(&[u8], u64), Errno> {
    let mut end = 0;
    while let Some(entry) = entries.get(end..).filter(|rest| rest.len() >= HEADER) {
        let next = entry[8..16].try_into().map(u64::from_le_bytes);
        let length = usize::from(u16::from_le_bytes([entry[16], entry[17]]));
        if length < HEADER || length > entry.len() {
            return Err(Errno::EIO);
        }
        if end + length > room {
            break;
        }
        cookie = next.map_err(|_| Errno::EIO)?;
        end += length;
    }
    match end {
        0 if !entries.is_empty() => Err(Errno::EINVAL),
        _ => Ok((&entries[..end], cookie)),
    }
}

fn getdents64(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = kernel.file_id(a[0])?;
    let (vfs, process) = kernel.file_state();
    let file = vfs.files.get(id)?;
    file.check_located()?;
    if !file.object.is::<Directory>() {
        return Err(Errno::ENOTDIR);
    }
    let (directory, mut cookie) = (file.ino, file.offset);
    if vfs.fs.attributes(directory, process)?.nlink == 0 {
        return Err(Errno::ENOENT);
    }
    let room = a[2].min(MAX_BYTES) as usize;
    if is_volume(directory) {
        let entries = vfs.fs.volume_entries(directory, cookie)?;
        let (out, cookie) = host_entries(&entries, room, cookie)?;
        user::write_bytes(kernel.memory_mut(), a[1], out)?;
        kernel.vfs.files.get_mut(id)?.offset = cookie;
        return Ok(out.len() as u64);
    }
    let mut out = Vec::new();
    while let Some(item) = next_item(vfs, process, directory, cookie)? {
        let length = (HEADER + item.name.len() + 1).next_multiple_of(8);
        if out.len() + length > room {
            if out.is_empty() {
                return Err(Errno::EINVAL);
            }
            break;
        }
        append(&mut out, &item, length);
        cookie = item.cookie + 1;
    }
    user::write_bytes(kernel.memory_mut(), a[1], &out)?;
    let vfs = &mut kernel.vfs;
    vfs.files.get_mut(id)?.offset = cookie;
    vfs.fs.accessed(directory);
    vfs.fs.fsnotify(directory, IN_ACCESS);
    Ok(out.len() as u64)
}
