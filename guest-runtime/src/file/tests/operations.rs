//! The errors of open files without an operation, and what each kind says of itself.

use super::Machine;
use crate::file::console::Console;
use crate::file::device::Device;
use crate::file::directory::Directory;
use crate::file::epoll::Epoll;
use crate::file::eventfd::EventFd;
use crate::file::operations::{File, Mapped, Mode};
use crate::file::pidfd::PidFd;
use crate::file::pipe::PipeEnd;
use crate::file::signalfd::SignalFd;
use crate::fs::filesystem::ROOT;
use crate::wait::WaitQueue;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_RDONLY, O_RDWR};
use hartline_linux::fs::{SEEK_DATA, SEEK_END, SEEK_SET};
use std::rc::Rc;

#[test]
fn a_file_without_an_operation_refuses_it_as_on_linux() {
    let mut m = Machine::empty();
    let files: [Rc<dyn File>; 3] = [
        Rc::new(Epoll::default()),
        Rc::new(PidFd {
            pid: 1,
            waiters: WaitQueue::default(),
        }),
        Rc::new(SignalFd { set: 1.into() }),
    ];
    for file in files {
        let fd = m.open_anonymous(Rc::clone(&file), O_RDWR);
        assert_eq!(m.read(fd, 8), Err(Errno::EINVAL));
        assert_eq!(m.write(fd, &[0; 8]), Err(Errno::EINVAL));
        let id = m.id(fd).unwrap();
        assert_eq!(m.io().seek(id, 0, SEEK_SET), Err(Errno::ESPIPE));
        let io = &mut m.io();
        assert_eq!(file.fsync(io, ROOT, 1, false), Err(Errno::EINVAL));
        assert_eq!(file.sync_file_range(io, ROOT, 1), Err(Errno::ESPIPE));
        let vfs = &mut m.vfs;
        assert_eq!(file.fallocate(vfs, ROOT, 0, 0..1), Err(Errno::ENODEV));
        assert_eq!(file.mmap(vfs, ROOT, O_RDWR, false), Err(Errno::ENODEV));
    }
}

#[test]
fn files_without_a_position_refuse_one() {
    let mut m = Machine::empty();
    let fd = m.open_anonymous(Rc::new(EventFd::new(1, false)), O_RDWR);
    let [read, write] = m.pipe();
    for (reads, writes) in [(fd, fd), (read, write), (0, 1)] {
        let (reads, writes) = (m.id(reads).unwrap(), m.id(writes).unwrap());
        let (mut io, _, world) = m.parts();
        let got = io.read(reads, Some(0), (&mut [0; 8]).into(), world);
        assert_eq!(got, Err(Errno::ESPIPE));
        let put = io.write(writes, Some(0), (&[0; 8]).into(), world);
        assert_eq!(put, Err(Errno::ESPIPE));
    }
}

#[test]
fn positions_of_directories_and_texts() {
    let mut m = Machine::sample();
    let directory = m.open("/etc", O_RDONLY, 0).unwrap();
    assert_eq!(m.read(directory, 1), Err(Errno::EISDIR));
    for (path, end) in [("/etc", i64::MAX as u64), ("/proc/self/status", 0)] {
        let fd = m.open(path, O_RDONLY, 0).unwrap();
        let id = m.id(fd).unwrap();
        assert_eq!(m.io().seek(id, 7, SEEK_SET), Ok(7));
        assert_eq!(m.io().seek(id, 0, SEEK_END), Ok(end));
        assert_eq!(m.io().seek(id, 0, SEEK_DATA), Err(Errno::EINVAL));
        assert_eq!(m.io().seek(id, -1, SEEK_DATA), Err(Errno::ENXIO));
        assert_eq!(m.io().seek(id, -1, SEEK_SET), Err(Errno::EINVAL));
    }
}

#[test]
fn operations_of_one_kind() {
    let mut m = Machine::empty();
    let vfs = &mut m.vfs;
    assert_eq!(PipeEnd.fallocate(vfs, ROOT, 0, 0..1), Err(Errno::ESPIPE));
    for (flags, writable) in [(O_RDWR, true), (O_RDONLY, false)] {
        let zero = Device::Zero.mmap(vfs, ROOT, flags, false);
        assert_eq!(zero, Ok(Mapped::Zero { writable }));
    }
    let null = Device::Null.mmap(vfs, ROOT, O_RDWR, false);
    assert_eq!(null, Err(Errno::ENODEV));
    assert!(Directory.mode().has(Mode::PREAD.with(Mode::NO_POLL)));
    assert!(
        !Directory
            .mode()
            .has_any(Mode::ASYNC.with(Mode::SPLICE_READ))
    );
    assert!(Console(0).mode().has(Mode::ASYNC) && !Console(1).mode().has(Mode::ASYNC));
}
