//! Opening, reading, writing, seeking.

use super::{Machine, user};
use crate::credentials::Credentials;
use crate::file::path::Path;
use crate::fs::filesystem::NewInode;
use crate::ids::FIRST;
use alloc::rc::Rc;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{
    __O_TMPFILE, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_LARGEFILE, O_NOATIME,
    O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY,
};
use hartline_linux::stat::{S_IFIFO, S_IFMT};

const CREATE: u32 = O_CREAT | O_RDWR;

#[test]
fn open_flags() {
    let mut m = Machine::sample();
    assert_eq!(m.open("/etc/motd", O_RDONLY, 0), Ok(3));
    assert_eq!(m.open("/none", O_RDONLY, 0), Err(Errno::ENOENT));
    let exclusive = CREATE | O_EXCL;
    assert_eq!(m.open("/etc/motd", exclusive, 0), Err(Errno::EEXIST));
    assert_eq!(m.open("/link", exclusive, 0), Err(Errno::EEXIST));
    assert_eq!(m.open("/etc", O_WRONLY, 0), Err(Errno::EISDIR));
    assert_eq!(m.open("/etc", CREATE, 0), Err(Errno::EISDIR));
    assert_eq!(m.open("/etc/", CREATE, 0), Err(Errno::EISDIR));
    assert_eq!(m.open("/new/", CREATE, 0), Err(Errno::EISDIR));
    assert_eq!(m.open("/etc/motd/", O_RDONLY, 0), Err(Errno::ENOTDIR));
    assert_eq!(m.open("/etc/motd", O_DIRECTORY, 0), Err(Errno::ENOTDIR));
    assert_eq!(m.open("/link", O_NOFOLLOW, 0), Err(Errno::ELOOP));
    assert_eq!(m.open("/etc", CREATE | O_DIRECTORY, 0), Err(Errno::EINVAL));
    m.process.umask = 0o027;
    let fd = m.open("/new", exclusive | O_CLOEXEC, 0o666).unwrap();
    assert_eq!(m.stat("/new").unwrap().mode & 0o7777, 0o640);
    assert!(m.process.fds.get(fd).unwrap().close_on_exec);
    let flags = m.vfs.file(&m.process, fd).unwrap().flags;
    assert_eq!(flags, O_RDWR | O_LARGEFILE);
    m.process.cred = Rc::new(user());
    assert_eq!(m.open("/new", O_RDONLY, 0), Err(Errno::EACCES));
    assert_eq!(m.open("/etc/motd", O_NOATIME, 0), Err(Errno::EPERM));
}

#[test]
fn reading_and_writing() {
    let mut m = Machine::sample();
    let fd = m.open("/etc/motd", O_RDWR, 0).unwrap();
    assert_eq!(m.read(fd, 3).unwrap(), b"hel");
    assert_eq!(m.write(fd, b"LO"), Ok(2));
    assert_eq!(m.contents("/etc/zmotd").unwrap(), b"helLO\n");
    assert_eq!(m.read(fd, 10).unwrap(), b"\n");
    assert_eq!(m.read(fd, 10).unwrap(), b"");
    let id = m.id(fd).unwrap();
    assert_eq!(m.io().seek(id, -2, 2), Ok(4));
    assert_eq!(m.io().seek(id, -5, 1), Err(Errno::EINVAL));
    assert_eq!(m.io().seek(id, i64::MAX, 1), Err(Errno::EOVERFLOW));
    assert_eq!(m.io().seek(id, 100, 3), Err(Errno::ENXIO));
    assert_eq!(m.io().seek(id, 1, 4), Ok(6));
    assert_eq!(m.io().seek(id, 0, 9), Err(Errno::EINVAL));
    let append = m.open("/etc/motd", O_WRONLY | O_APPEND, 0).unwrap();
    assert_eq!(m.write(append, b"more"), Ok(4));
    assert_eq!(m.read(append, 1), Err(Errno::EBADF));
    assert_eq!(m.contents("/etc/motd").unwrap(), b"helLO\nmore");
    let only = m.open("/etc/motd", O_RDONLY, 0).unwrap();
    assert_eq!(m.write(only, b"x"), Err(Errno::EBADF));
    m.open("/etc/motd", O_WRONLY | O_TRUNC, 0).unwrap();
    assert_eq!(m.contents("/etc/motd").unwrap(), b"");
    let directory = m.open("/etc", O_RDONLY, 0).unwrap();
    assert_eq!(m.read(directory, 1), Err(Errno::EISDIR));
}

#[test]
fn a_removed_file_lives_while_it_is_open() {
    let mut m = Machine::empty();
    let used = m.vfs.fs.budget().used();
    let fd = m.open("/tmp/f", CREATE, 0o600).unwrap();
    m.write(fd, &[9; 100_000]).unwrap();
    m.unlink("/tmp/f").unwrap();
    let id = m.id(fd).unwrap();
    m.io().seek(id, 0, 0).unwrap();
    assert_eq!(m.read(fd, 200_000).unwrap(), [9; 100_000]);
    assert!(m.vfs.fs.budget().used() > used + 100_000);
    m.close(fd).unwrap();
    assert_eq!(m.vfs.fs.budget().used(), used);
    assert_eq!(m.close(fd), Err(Errno::EBADF));
}

#[test]
fn unnamed_files_and_locations() {
    let mut m = Machine::empty();
    let unnamed = __O_TMPFILE | O_DIRECTORY;
    assert_eq!(m.open("/tmp", unnamed, 0o600), Err(Errno::EINVAL));
    let fd = m.open("/tmp", unnamed | O_RDWR, 0o600).unwrap();
    m.write(fd, b"data").unwrap();
    assert_eq!(m.list("/tmp").unwrap(), [""; 0]);
    let ino = m.process.fds.get(fd).unwrap().ino;
    assert!(m.vfs.fs.inode(ino).unwrap().nameable);
    let resolved = m.resolve("/tmp/now", false).unwrap();
    let dentry = resolved.dentry(Errno::EEXIST).unwrap();
    m.vfs.fs.link(dentry, ino, &m.process.cred).unwrap();
    assert_eq!(m.contents("/tmp/now").unwrap(), b"data");
    let path = m.open("/tmp/now", O_PATH | O_RDWR, 0).unwrap();
    assert!(m.object(path).is::<Path>());
    assert_eq!(m.read(path, 1), Err(Errno::EBADF));
    assert_eq!(m.write(path, b"x"), Err(Errno::EBADF));
}

#[test]
fn devices() {
    let mut m = Machine::empty();
    let null = m.open("/dev/null", O_RDWR, 0).unwrap();
    assert_eq!(m.write(null, b"gone"), Ok(4));
    assert_eq!(m.read(null, 4).unwrap(), b"");
    let zero = m.open("/dev/zero", O_RDWR, 0).unwrap();
    assert_eq!(m.read(zero, 3).unwrap(), [0; 3]);
    let full = m.open("/dev/full", O_RDWR, 0).unwrap();
    assert_eq!(m.write(full, b"x"), Err(Errno::ENOSPC));
    let random = m.open("/dev/urandom", O_RDONLY, 0).unwrap();
    assert_eq!(m.read(random, 2).unwrap(), [4, 4]);
    let input = m.open("/dev/stdin", O_RDONLY, 0).unwrap();
    m.world.input = b"typed".to_vec();
    assert_eq!(m.read(input, 3).unwrap(), b"typ");
    assert_eq!(m.read(0, 9).unwrap(), b"ed");
    let output = m.open("/dev/stdout", O_WRONLY, 0).unwrap();
    assert_eq!(m.write(output, b"shown"), Ok(5));
    assert_eq!(m.world.output, b"shown");
    let id = m.id(1).unwrap();
    assert_eq!(m.io().seek(id, 0, 1), Err(Errno::ESPIPE));
    let id = m.id(null).unwrap();
    assert_eq!(m.io().seek(id, 5, 0), Ok(0));
    assert_eq!(m.list("/dev/shm").unwrap(), [""; 0]);
}

#[test]
fn fifos() {
    let mut m = Machine::empty();
    m.make("/tmp/f", NewInode::fifo(0o600)).unwrap();
    assert_eq!(m.stat("/tmp/f").unwrap().mode & S_IFMT, S_IFIFO);
    let nonblocking = O_WRONLY | O_NONBLOCK;
    assert_eq!(m.open("/tmp/f", nonblocking, 0), Err(Errno::ENXIO));
    // One that waits for its other end is there, so that the other side sees it.
    let waiting = m.open("/tmp/f", O_RDONLY, 0).unwrap();
    let end = m.vfs.other_end(&m.process, waiting).unwrap();
    assert_eq!((end.open, end.opens), (false, 0));
    let write = m.open("/tmp/f", nonblocking, 0).unwrap();
    let end = m.vfs.other_end(&m.process, waiting).unwrap();
    assert_eq!((end.open, end.opens), (true, 1));
    m.close(write).unwrap();
    m.close(waiting).unwrap();
    let read = m.open("/tmp/f", O_RDONLY | O_NONBLOCK, 0).unwrap();
    assert_eq!(m.vfs.other_end(&m.process, read), None);
    assert_eq!(m.read(read, 1).unwrap(), b"");
    let write = m.open("/tmp/f", nonblocking, 0).unwrap();
    assert_eq!(m.read(read, 1), Err(Errno::EAGAIN));
    m.write(write, b"through").unwrap();
    assert_eq!(m.read(read, 100).unwrap(), b"through");
    m.close(read).unwrap();
    assert_eq!(m.write(write, b"x"), Err(Errno::EPIPE));
}

#[test]
fn the_terminal() {
    let mut m = Machine::empty();
    assert_eq!(m.open("/dev/tty", O_RDWR, 0), Err(Errno::ENXIO));
    let made = crate::file::Vfs::new(
        None,
        1 << 20,
        super::clock,
        Credentials::root(),
        FIRST,
        0b110,
    );
    (m.vfs, m.process) = made.unwrap();
    m.open_streams().unwrap();
    for stream in [1, 2] {
        let link = m.at(&format!("/proc/self/fd/{stream}")).unwrap();
        let path = m.vfs.read_link(link, &m.process).unwrap();
        assert_eq!(path, b"/dev/console");
        // `ttyname` compares these.
        let ino = m.process.fds.get(stream).unwrap().ino;
        assert_eq!(ino, m.at("/dev/console").unwrap());
    }
    let terminal = m.open("/dev/tty", O_RDWR, 0).unwrap();
    assert_eq!(m.read(terminal, 1), Err(Errno::EIO));
    let id = m.id(terminal).unwrap();
    assert_eq!(m.io().seek(id, 0, 1), Err(Errno::ESPIPE));
}
