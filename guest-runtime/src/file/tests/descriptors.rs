//! The descriptor table, pipes, eventfds.

use super::Machine;
use crate::convert::{low_u8, low_u32};
use crate::file::Target;
use crate::file::eventfd::EventFd;
use crate::fs::pipe::CAPACITY;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_RDONLY, O_RDWR};
use hartline_linux::limits::PIPE_BUF;
use std::rc::Rc;

#[test]
fn the_lowest_free_descriptor() {
    let mut m = Machine::empty();
    for fd in 3..10 {
        assert_eq!(m.open("/dev/null", O_RDONLY, 0), Ok(fd));
    }
    m.close(7).unwrap();
    m.close(4).unwrap();
    assert_eq!(m.open("/dev/null", O_RDONLY, 0), Ok(4));
    assert_eq!(m.open("/dev/null", O_RDONLY, 0), Ok(7));
    assert_eq!(m.open("/dev/null", O_RDONLY, 0), Ok(10));
    m.process.fds.limit = 12;
    assert_eq!(m.open("/dev/null", O_RDONLY, 0), Ok(11));
    assert_eq!(m.open("/dev/null", O_RDONLY, 0), Err(Errno::EMFILE));
    assert_eq!(m.process.fds.next(12), None);
}

/// Copies a descriptor.
fn duplicate(m: &mut Machine, fd: u32, to: Target) -> Result<u32, Errno> {
    let (mut io, process, _) = m.parts();
    io.duplicate(process, fd, to, false)
}

#[test]
fn the_table_grows_as_on_linux() {
    let mut m = Machine::empty();
    for (fd, capacity) in [(63, 64), (64, 128), (127, 128), (128, 256), (600, 1024)] {
        let to = Target::Exactly(fd);
        duplicate(&mut m, 0, to).unwrap();
        assert_eq!(m.process.fds.capacity(), capacity, "with {fd}");
    }
}

#[test]
fn duplicates_share_their_description() {
    let mut m = Machine::sample();
    let fd = m.open("/etc/motd", O_RDONLY, 0).unwrap();
    let duplicate = |m: &mut Machine, to| duplicate(m, fd, to);
    assert_eq!(duplicate(&mut m, Target::AtLeast(20)), Ok(20));
    assert_eq!(duplicate(&mut m, Target::AtLeast(20)), Ok(21));
    assert_eq!(duplicate(&mut m, Target::Exactly(1)), Ok(1));
    assert_eq!(duplicate(&mut m, Target::AtLeast(5000)), Err(Errno::EINVAL));
    assert_eq!(duplicate(&mut m, Target::Exactly(5000)), Err(Errno::EBADF));
    assert_eq!(m.read(20, 2).unwrap(), b"he");
    assert_eq!(m.read(1, 2).unwrap(), b"ll");
    m.close(fd).unwrap();
    m.close(20).unwrap();
    assert_eq!(m.read(21, 2).unwrap(), b"o\n");
}

/// A number that outlives its description does not refer to a later description in the same slot.
#[test]
fn a_closed_description_is_no_later_one() {
    let mut m = Machine::sample();
    let fd = m.open("/etc/motd", O_RDONLY, 0).unwrap();
    let old = m.process.fds.get(fd).unwrap().file;
    m.close(fd).unwrap();
    assert!(m.vfs.files.get(old).is_err());
    assert_eq!(m.open("/etc/motd", O_RDONLY, 0), Ok(fd));
    let new = m.process.fds.get(fd).unwrap().file;
    assert_ne!(old, new);
    assert!(m.vfs.files.get(old).is_err() && m.vfs.files.get_mut(old).is_err());
    assert!(m.vfs.files.release(old).is_none(), "it is open no more");
    assert!(m.vfs.files.get(new).is_ok());
}

#[test]
fn pipes() {
    let mut m = Machine::empty();
    let used = m.vfs.fs.budget().used();
    let [read, write] = m.pipe();
    assert_eq!(m.read(read, 1), Err(Errno::EAGAIN));
    assert_eq!(m.write(write, &[1; 10]), Ok(10));
    assert_eq!(m.write(write, &vec![2; 2 * CAPACITY]), Ok(CAPACITY - 10));
    assert_eq!(m.write(write, b"x"), Err(Errno::EAGAIN));
    assert_eq!(
        m.read(read, 11).unwrap(),
        [[1; 10].as_slice(), &[2]].concat()
    );
    // Less than `PIPE_BUF` bytes are free: a small write writes all or nothing.
    assert_eq!(m.write(write, &[3; PIPE_BUF]), Err(Errno::EAGAIN));
    assert_eq!(m.read(read, 2 * CAPACITY).unwrap().len(), CAPACITY - 11);
    assert_eq!(m.write(read, b"x"), Err(Errno::EBADF));
    assert_eq!(m.read(write, 1), Err(Errno::EBADF));
    m.write(write, b"last").unwrap();
    m.close(write).unwrap();
    assert_eq!(m.read(read, 100).unwrap(), b"last");
    assert_eq!(m.read(read, 100).unwrap(), b"");
    m.close(read).unwrap();
    assert_eq!(m.vfs.fs.budget().used(), used);
    let [read, write] = m.pipe();
    m.close(read).unwrap();
    assert_eq!(m.write(write, b"x"), Err(Errno::EPIPE));
}

#[test]
fn a_pipe_keeps_the_order_of_bytes() {
    let mut m = Machine::empty();
    let [read, write] = m.pipe();
    let (mut sent, mut got, mut state) = (0_u32, 0_u32, 1_u64);
    while got < 300_000 {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let length = (state >> 40) as u32 % 9000;
        let bytes: Vec<u8> = (sent..sent + length)
            .map(|n| low_u8(u64::from(n)))
            .collect();
        sent += low_u32(m.write(write, &bytes).unwrap_or(0) as u64);
        let wanted = (state >> 20) as usize % 9000;
        for byte in m.read(read, wanted).unwrap_or_default() {
            assert_eq!(byte, low_u8(u64::from(got)));
            got += 1;
        }
    }
}

#[test]
fn eventfds() {
    let mut m = Machine::empty();
    let mut open = |semaphore| {
        let event = Rc::new(EventFd::new(2, semaphore));
        m.open_anonymous(event, O_RDWR)
    };
    let (counter, semaphore) = (open(false), open(true));
    assert_eq!(m.read(counter, 7), Err(Errno::EINVAL));
    assert_eq!(m.read(counter, 8).unwrap(), 2_u64.to_le_bytes());
    assert_eq!(m.read(counter, 8), Err(Errno::EAGAIN));
    assert_eq!(m.read(semaphore, 8).unwrap(), 1_u64.to_le_bytes());
    assert_eq!(m.write(counter, &(u64::MAX - 1).to_le_bytes()), Ok(8));
    assert_eq!(m.write(counter, &1_u64.to_le_bytes()), Err(Errno::EAGAIN));
    assert_eq!(
        m.write(counter, &u64::MAX.to_le_bytes()),
        Err(Errno::EINVAL)
    );
    assert_eq!(m.open("/proc/self/fd/3", O_RDWR, 0), Err(Errno::ENXIO));
}

#[test]
fn memory_files() {
    let mut m = Machine::empty();
    let (mut io, process, _) = m.parts();
    let fd = io.open_memory(process, b"name", 0, true).unwrap();
    m.write(fd, b"abc").unwrap();
    let again = m.open(&format!("/proc/self/fd/{fd}"), O_RDONLY, 0).unwrap();
    assert_eq!(m.read(again, 9).unwrap(), b"abc");
    let link = m.at(&format!("/proc/self/fd/{fd}")).unwrap();
    let target = m.vfs.read_link(link, &m.process).unwrap();
    assert_eq!(target, b"/memfd:name (deleted)");
}
