//! Which ports a console has: one for each place where output goes.
//!
//! What a program writes to standard output and standard error has an order, which can be seen
//! where both go to the same place. There they have one port, whose queue keeps the order.

use hartline_abi::console::STREAMS;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Names of the streams.
const NAMES: [&str; STREAMS] = ["stdout", "stderr", "trace"];

/// A port of a console.
#[derive(Debug)]
pub(super) struct Port {
    /// Name of the first stream that it carries.
    pub name: &'static str,
    /// What comes through it is seen on a terminal.
    pub is_terminal: bool,
}

/// Where the output of a guest goes.
#[derive(Debug)]
pub struct Outputs {
    pub(super) ports: Vec<Port>,
    /// By port.
    pub(super) descriptors: Vec<OwnedFd>,
    streams: [u32; STREAMS],
}

impl Outputs {
    /// For standard output, standard error and traces.
    #[must_use]
    pub fn new(streams: [OwnedFd; STREAMS]) -> Self {
        let mut outputs = Self {
            ports: Vec::with_capacity(STREAMS),
            descriptors: Vec::with_capacity(STREAMS),
            streams: [0; STREAMS],
        };
        for ((descriptor, name), port) in streams.into_iter().zip(NAMES).zip(&mut outputs.streams) {
            let is_same = |other: &OwnedFd| is_same(other.as_raw_fd(), descriptor.as_raw_fd());
            let known = outputs.descriptors.iter().position(is_same);
            let number = known.unwrap_or(outputs.ports.len());
            if known.is_none() {
                // SAFETY: any descriptor may be asked about.
                let is_terminal = unsafe { libc::isatty(descriptor.as_raw_fd()) } == 1;
                outputs.ports.push(Port { name, is_terminal });
                outputs.descriptors.push(descriptor);
            }
            // At most `STREAMS`.
            *port = number as u32;
        }
        outputs
    }

    /// The port of each stream.
    #[must_use]
    pub fn of_streams(&self) -> [u32; STREAMS] {
        self.streams
    }
}

/// Whether the order of what is written to two descriptors can be seen, and writing all of it
/// to the first one makes no difference.
fn is_same(a: RawFd, b: RawFd) -> bool {
    let (Some((file, kind)), Some((other, _))) = (identity(a), identity(b)) else {
        return false;
    };
    // SAFETY: any descriptor may be asked about.
    let flags = |fd| unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let mode = flags(a);
    if file != other || mode != flags(b) {
        return false;
    }
    // Two positions in one file are two places, unless all is appended.
    kind != libc::S_IFREG || mode & libc::O_APPEND != 0 || shares_position(a, b)
}

/// What tells the file of a descriptor from others (a device has no other inode that matters),
/// and its type.
fn identity(fd: RawFd) -> Option<((u64, u64), libc::mode_t)> {
    // SAFETY: all zeros are a valid structure, which the call fills.
    let (result, stat) = unsafe {
        let mut stat = std::mem::zeroed::<libc::stat>();
        (libc::fstat(fd, &mut stat), stat)
    };
    let kind = stat.st_mode & libc::S_IFMT;
    let file = match kind {
        libc::S_IFCHR => (u64::MAX, stat.st_rdev),
        _ => (stat.st_dev, stat.st_ino),
    };
    (result == 0).then_some((file, kind))
}

/// Whether two descriptors of one regular file were duplicated from one another, as by `2>&1`.
/// A kernel that cannot tell has them taken for that, which is much more common than the other.
fn shares_position(a: RawFd, b: RawFd) -> bool {
    /// `KCMP_FILE` of `<linux/kcmp.h>`.
    const FILE: libc::c_long = 0;
    // SAFETY: no preconditions.
    let order = unsafe {
        let me = libc::c_long::from(libc::getpid());
        libc::syscall(
            libc::SYS_kcmp,
            me,
            me,
            FILE,
            libc::c_long::from(a),
            libc::c_long::from(b),
        )
    };
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
    fn streams_to_one_place_share_a_port() {
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
    fn a_file_is_one_place_only_where_its_position_is_one() {
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
