//! The ports of a console: one for each destination of output.
//!
//! If standard output and standard error have the same destination, the order of a program's writes
//! is visible there. Then both share one port, whose queue keeps the order.

use hartline_abi::console::STREAMS;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use std::io::IsTerminal;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Port names of the streams.
const NAMES: [&str; STREAMS] = ["stdout", "stderr", "trace"];

/// A port of a console.
#[derive(Debug)]
pub(super) struct Port {
    /// Name of the first stream of the port.
    pub name: &'static str,
    /// Whether the port's descriptor is a terminal.
    pub is_terminal: bool,
}

/// The destinations of a guest's output.
#[derive(Debug)]
pub struct Outputs {
    pub(super) ports: Vec<Port>,
    /// By port; `None`: bytes are discarded.
    pub(super) descriptors: Vec<Option<OwnedFd>>,
    streams: [u32; STREAMS],
}

impl Outputs {
    /// The outputs for standard output, standard error and traces.
    #[must_use]
    pub fn new(streams: [OwnedFd; STREAMS]) -> Self {
        let mut outputs = Self {
            ports: Vec::with_capacity(STREAMS),
            descriptors: Vec::with_capacity(STREAMS),
            streams: [0; STREAMS],
        };
        let mut count = 0;
        for ((descriptor, name), port) in streams.into_iter().zip(NAMES).zip(&mut outputs.streams) {
            let mut known = (0..).zip(&outputs.descriptors);
            let is_known = |other: &Option<OwnedFd>| {
                (other.as_ref()).is_some_and(|other| is_same(other.as_fd(), descriptor.as_fd()))
            };
            let known = known.find(|(_, other)| is_known(other));
            *port = match known {
                Some((number, _)) => number,
                None => {
                    let is_terminal = descriptor.is_terminal();
                    outputs.ports.push(Port { name, is_terminal });
                    outputs.descriptors.push(Some(descriptor));
                    count += 1;
                    count - 1
                }
            };
        }
        outputs
    }

    /// Outputs that are [replaced](super::Console::replace_outputs) later: standard output has a port, and standard
    /// error and traces have another one.
    #[must_use]
    pub fn apart() -> Self {
        const PORTS: usize = 2;
        let ports = NAMES.into_iter().take(PORTS).map(|name| Port {
            name,
            is_terminal: false,
        });
        Self {
            ports: ports.collect(),
            descriptors: [None, None].into(),
            streams: [0, 1, 1],
        }
    }

    /// The port of each stream.
    #[must_use]
    pub fn of_streams(&self) -> [u32; STREAMS] {
        self.streams
    }
}

/// Whether two descriptors share one order of writes, so that all bytes may go to the first one.
fn is_same(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> bool {
    let (Some((file, kind)), Some((other, _))) = (identity(a), identity(b)) else {
        return false;
    };
    let (Ok(flags), Ok(other_flags)) = (fcntl_getfl(a), fcntl_getfl(b)) else {
        return false;
    };
    if file != other || flags != other_flags {
        return false;
    }
    // A regular file that is opened twice has two positions, unless all writes append.
    kind != FileType::RegularFile || flags.contains(OFlags::APPEND) || shares_position(a, b)
}

/// The numbers that identify the file of a descriptor, and the file's type. A character device is
/// identified by its device number, because it may have several inodes.
fn identity(fd: BorrowedFd<'_>) -> Option<((u64, u64), FileType)> {
    let stat = fstat(fd).ok()?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let file = match kind {
        FileType::CharacterDevice => (u64::MAX, stat.st_rdev),
        _ => (stat.st_dev, stat.st_ino),
    };
    Some((file, kind))
}

/// Whether two descriptors of one regular file are duplicates, as by `2>&1`. If the kernel cannot
/// compare them, they count as duplicates, which is the common case.
fn shares_position(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> bool {
    /// `KCMP_FILE` of `<linux/kcmp.h>`.
    const KCMP_FILE: libc::c_long = 0;
    let own = libc::c_long::from(std::process::id());
    let [a, b] = [a, b].map(|fd| libc::c_long::from(fd.as_raw_fd()));
    // SAFETY: all arguments of `kcmp` are numbers, so the kernel accesses no memory of this process,
    // and it changes nothing. `rustix` lacks this call.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, a, b) };
    order <= 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::pipe;
    use std::path::Path;

    fn streams(out: OwnedFd, err: OwnedFd, trace: OwnedFd) -> [u32; STREAMS] {
        Outputs::new([out, err, trace]).of_streams()
    }

    fn open(path: &Path, append: bool) -> OwnedFd {
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(append);
        options.open(path).unwrap().into()
    }

    #[test]
    fn streams_with_one_destination_share_a_port() {
        let (_reader, writer) = pipe().unwrap();
        let copy = || writer.try_clone().unwrap().into();
        assert_eq!(streams(copy(), copy(), copy()), [0, 0, 0]);
        let null = || File::create("/dev/null").unwrap().into();
        assert_eq!(streams(copy(), null(), copy()), [0, 1, 0]);
        assert_eq!(streams(null(), copy(), null()), [0, 1, 0]);
        let (_other, second) = pipe().unwrap();
        assert_eq!(streams(copy(), second.into(), null()), [0, 1, 2]);
    }

    #[test]
    fn a_file_is_one_destination_only_with_one_position() {
        let path = std::env::temp_dir().join(format!("hartline-ports-{}", std::process::id()));
        let (first, second) = (open(&path, false), open(&path, false));
        let copy = first.try_clone().unwrap();
        assert_eq!(streams(first, second, copy), [0, 1, 0]);
        assert_eq!(
            streams(open(&path, true), open(&path, true), open(&path, false)),
            [0, 0, 1]
        );
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn ports_have_the_names_of_their_streams() {
        let null = || File::create("/dev/null").unwrap().into();
        let (_reader, writer) = pipe().unwrap();
        let outputs = Outputs::new([null(), writer.into(), null()]);
        let names: Vec<_> = outputs.ports.iter().map(|port| port.name).collect();
        assert_eq!(names, ["stdout", "stderr"]);
        assert!(outputs.ports.iter().all(|port| !port.is_terminal));
    }
}
