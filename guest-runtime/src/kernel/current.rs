//! The running task, its process and its address space.
//!
//! They stay in their tables while they run: what runs is three handles. Each vCPU has its own
//! (`CpuState::current`); [`Kernel::current`] is a copy of the handles of the vCPU that holds the
//! lock.

use crate::convert::low_u32;
use crate::file::description::OpenFile;
use crate::file::{Io, Vfs};
use crate::fs;
use crate::fs::process::FileId;
use crate::kernel::Kernel;
use crate::kernel::process::Process;
use crate::kernel::signals::Signals;
use crate::kernel::space::Space;
use crate::kernel::table::{Handle, Slab, Table};
use crate::kernel::task::Task;
use crate::mm::AddressSpace;
use core::ops::{Index, IndexMut};
use hartline_linux::errno::Errno;

/// A task, its process and its address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// The task.
    pub task: Handle<Task>,
    /// Its process.
    pub process: Handle<Process>,
    /// The address space of the process.
    pub space: Handle<Space>,
}

impl Index<Current> for Table<Task> {
    type Output = Task;

    #[inline]
    fn index(&self, current: Current) -> &Task {
        &self[current.task]
    }
}

impl IndexMut<Current> for Table<Task> {
    #[inline]
    fn index_mut(&mut self, current: Current) -> &mut Task {
        &mut self[current.task]
    }
}

impl Index<Current> for Table<Process> {
    type Output = Process;

    #[inline]
    fn index(&self, current: Current) -> &Process {
        &self[current.process]
    }
}

impl IndexMut<Current> for Table<Process> {
    #[inline]
    fn index_mut(&mut self, current: Current) -> &mut Process {
        &mut self[current.process]
    }
}

impl Index<Current> for Slab<Space> {
    type Output = Space;

    #[inline]
    fn index(&self, current: Current) -> &Space {
        &self[current.space]
    }
}

impl IndexMut<Current> for Slab<Space> {
    #[inline]
    fn index_mut(&mut self, current: Current) -> &mut Space {
        &mut self[current.space]
    }
}

/// Access to what runs. Code that needs two parts of the kernel at once borrows the tables instead:
/// `kernel.tasks[kernel.current]`.
impl Kernel {
    /// The running task.
    #[inline]
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.tasks[self.current]
    }

    /// The running task, mutably.
    #[inline]
    pub fn task_mut(&mut self) -> &mut Task {
        &mut self.tasks[self.current]
    }

    /// The running process.
    #[inline]
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.processes[self.current]
    }

    /// The running process, mutably.
    #[inline]
    pub fn process_mut(&mut self) -> &mut Process {
        &mut self.processes[self.current]
    }

    /// The address space of the running process, and the code in it.
    #[inline]
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.spaces[self.current]
    }

    /// As [`space`](Self::space), mutably.
    #[inline]
    pub fn space_mut(&mut self) -> &mut Space {
        &mut self.spaces[self.current]
    }

    /// Memory of the running process.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &AddressSpace {
        &self.spaces[self.current].memory
    }

    /// Memory of the running process, mutably.
    #[inline]
    pub fn memory_mut(&mut self) -> &mut AddressSpace {
        &mut self.spaces[self.current].memory
    }

    /// Signals of the running task and process.
    #[inline]
    pub fn signals(&mut self) -> Signals<'_> {
        Signals {
            process: &mut self.processes[self.current].signals,
            thread: &mut self.tasks[self.current].signals,
        }
    }

    /// The files of the VM, and the file state of the running process.
    #[inline]
    pub fn file_state(&mut self) -> (&mut Vfs, &mut fs::process::Process) {
        let process = &mut self.processes[self.current].files;
        process.running = self.tasks[self.current].tid;
        (&mut self.vfs, process)
    }

    /// The files of the VM with what they lead to, and the file state of the running process.
    #[inline]
    pub fn io(&mut self) -> (Io<'_>, &mut fs::process::Process) {
        let io = Io {
            vfs: &mut self.vfs,
            net: &mut self.net,
            ptys: &mut self.ptys,
            disks: &mut self.disks,
        };
        let process = &mut self.processes[self.current].files;
        process.running = self.tasks[self.current].tid;
        (io, process)
    }

    /// The open file description behind a descriptor of the running process.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn file_id(&self, fd: u64) -> Result<FileId, Errno> {
        Ok(self.process().files.fds.get(low_u32(fd))?.file)
    }

    /// The description behind a descriptor of the running process, as [`file_id`](Self::file_id)
    /// returns its number.
    ///
    /// # Errors
    /// `EBADF`, also for a descriptor opened with `O_PATH`.
    pub fn file(&self, fd: u64) -> Result<&OpenFile, Errno> {
        let file = self.vfs.file(&self.process().files, low_u32(fd))?;
        file.check_located()?;
        Ok(file)
    }
}
