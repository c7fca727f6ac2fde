//! Descriptors of files without a place in the file system: counters, timers, and others.

use super::Io;
use super::description::OpenFile;
use super::operations::File;
use crate::fs::filesystem::{ANONYMOUS_DEVICE, NewInode};
use crate::fs::inode::Kind;
use crate::fs::process::Process;
use alloc::rc::Rc;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_CLOEXEC;

impl Io<'_> {
    /// Opens a file that is not in the file system, under its [`name`](File::name).
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOSPC`.
    pub fn open_anonymous(
        &mut self,
        process: &mut Process,
        file: Rc<dyn File>,
        flags: u32,
    ) -> Result<u32, Errno> {
        let new = NewInode {
            kind: Kind::Anonymous(file.name()),
            mode: 0o600,
            rdev: 0,
        };
        let ino = self
            .vfs
            .fs
            .add_unnamed(new, &process.cred, ANONYMOUS_DEVICE)?;
        let file = OpenFile::new(ino, flags & !O_CLOEXEC, file);
        self.install(process, file, flags & O_CLOEXEC != 0)
    }
}
