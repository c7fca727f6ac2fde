//! Restartable sequences (`rseq`): the fields in which a thread finds the number of its vCPU, and the
//! abort of its critical section when another task runs on that vCPU, or a signal handler.
//!
//! A task leaves its vCPU only where the library OS knows its registers: at a safepoint, in a system
//! call, or between two interpreted instructions. A section without such a place runs as a whole. At
//! safepoints, translated code leaves out registers that nothing reads later. Where a file has the
//! [signature](RSEQ_SIG) of aborts, the translator leaves out none, because the code after an abort
//! may read them.

use crate::convert::low_u32;
use crate::kernel::Kernel;
use crate::kernel::signals::SigInfo;
use crate::kernel::task::Task;
use crate::mm::{AddressSpace, user};
use core::mem::offset_of;
use hartline_abi::image::RSEQ_SIG;
use hartline_abi::layout::USER_END;
use hartline_linux::errno::Errno;
use hartline_linux::rseq::{
    ORIG_RSEQ_SIZE, RSEQ_CPU_ID_UNINITIALIZED, RSEQ_FLAG_UNREGISTER, Rseq, RseqCs,
};
use hartline_linux::siginfo::SI_KERNEL;
use hartline_linux::signal::SIGSEGV;

/// The registration of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// Address and length of its `struct rseq`.
    area: (u64, u32),
    /// The word in front of the code to which sections are aborted.
    signature: u32,
    /// The vCPU and the concurrency identifier in the area; none if the area is not up to date.
    shown: Option<[u32; 2]>,
    /// The concurrency identifier, while the thread is on a vCPU.
    identifier: Option<u32>,
    /// Another task has run on the vCPU since the area was looked at.
    is_due: bool,
}

impl Registration {
    /// Address and length of the `struct rseq`, and the signature.
    pub(crate) fn settings(&self) -> ((u64, u32), u32) {
        (self.area, self.signature)
    }

    /// The registration that a process made by `fork` inherits.
    #[must_use]
    pub fn inherited(self) -> Self {
        Self {
            identifier: None,
            is_due: true,
            ..self
        }
    }
}

impl Kernel {
    /// Serves `rseq` for the running task.
    ///
    /// # Errors
    /// As rseq(2) says; `EINVAL` for another signature than [`RSEQ_SIG`].
    pub(crate) fn register_sequences(
        &mut self,
        area: (u64, u32),
        flags: i32,
        signature: u32,
    ) -> Result<(), Errno> {
        let (address, length) = area;
        let old = self.task().sequences;
        let check = |old: &Registration| match () {
            () if old.area != area => Err(Errno::EINVAL),
            () if old.signature != signature => Err(Errno::EPERM),
            () => Ok(()),
        };
        if flags == RSEQ_FLAG_UNREGISTER {
            check(&old.ok_or(Errno::EINVAL)?)?;
            let memory = self.memory_mut();
            write_numbers(memory, address, [0, RSEQ_CPU_ID_UNINITIALIZED], 0)?;
            self.forget_sequences();
            return Ok(());
        }
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        if let Some(old) = old {
            check(&old)?;
            return Err(Errno::EBUSY);
        }
        let alignment = u64::from(ORIG_RSEQ_SIZE);
        if length < ORIG_RSEQ_SIZE || !address.is_multiple_of(alignment) || signature != RSEQ_SIG {
            return Err(Errno::EINVAL);
        }
        let end = address.checked_add(length.into());
        if end.is_none_or(|end| end > USER_END) {
            return Err(Errno::EFAULT);
        }
        let pointer = address + offset_of!(Rseq, rseq_cs) as u64;
        user::write(self.memory_mut(), pointer, &0u64)?;
        self.task_mut().sequences = Some(Registration {
            area,
            signature,
            shown: None,
            identifier: None,
            is_due: true,
        });
        // The numbers are written before the program continues.
        self.resume_sequence();
        Ok(())
    }

    /// Ends the registration of the running task: at its request, or with its program.
    pub(crate) fn forget_sequences(&mut self) {
        self.release_identifier();
        self.task_mut().sequences = None;
    }

    /// Records that the running task leaves its vCPU.
    #[inline]
    pub(crate) fn interrupt_sequence(&mut self) {
        if let Some(registration) = &mut self.task_mut().sequences {
            registration.is_due = true;
            self.release_identifier();
        }
    }

    /// Records that a task was taken away from its vCPU, and will not run again.
    pub(crate) fn take_identifier_of(&mut self, task: u32) {
        let Some(Task {
            process, sequences, ..
        }) = self.tasks.get_mut(task)
        else {
            return;
        };
        if let Some(identifier) = sequences.as_mut().and_then(|it| it.identifier.take()) {
            let space = self.processes[*process].space;
            self.spaces[space].identifiers &= !(1 << identifier);
        }
    }

    fn release_identifier(&mut self) {
        let registration = self.task_mut().sequences.as_mut();
        if let Some(identifier) = registration.and_then(|it| it.identifier.take()) {
            self.space_mut().identifiers &= !(1 << identifier);
        }
    }

    /// Makes the numbers in the area of the running task right, after another task has run on the
    /// vCPU, and aborts the section that the task is in. During a system call that is left to
    /// [`settle_sequence`](Self::settle_sequence).
    #[inline]
    pub(crate) fn resume_sequence(&mut self) {
        if let Some(registration) = self.task().sequences {
            let is_in_call = self.task().retry.is_some() || self.task().awaits_page;
            self.settle_or_fail(registration, is_in_call);
        }
    }

    /// Aborts the section that the running task is in, after another task has run on the vCPU during
    /// a system call, or before a handler is entered. Returns whether `Hart::pc` has changed.
    #[inline]
    pub(crate) fn settle_sequence(&mut self) -> bool {
        let Some(registration) = self.task().sequences else {
            return false;
        };
        if !registration.is_due && !self.signals().next_is_handled() {
            return false;
        }
        let pc = self.hart().pc.get();
        self.settle_or_fail(registration, false);
        self.hart().pc.get() != pc
    }

    /// A wrong area or section is answered with `SIGSEGV`.
    fn settle_or_fail(&mut self, registration: Registration, is_in_call: bool) {
        if self.settle(registration, is_in_call).is_err() {
            let info = SigInfo::fault(SIGSEGV, SI_KERNEL, 0);
            self.signals().send_fault(info);
            self.kick_self();
        }
    }

    fn settle(&mut self, registration: Registration, is_in_call: bool) -> Result<(), Errno> {
        /// The most identifiers, at least as many as vCPUs.
        const MOST: u32 = u64::BITS;
        let cpu = low_u32(self.cpu as u64);
        let space = self.space_mut();
        let free = space.identifiers.trailing_ones().min(MOST - 1);
        let identifier = registration.identifier.unwrap_or(free);
        space.identifiers |= 1 << identifier;
        let shown = Some([cpu, identifier]);
        let mut settled = Registration {
            shown,
            identifier: Some(identifier),
            is_due: false,
            ..registration
        };
        self.task_mut().sequences = Some(settled);
        let (address, _) = registration.area;
        if registration.shown != shown {
            write_numbers(self.memory_mut(), address, [cpu; 2], identifier)?;
        }
        let pointer = address + offset_of!(Rseq, rseq_cs) as u64;
        let section: u64 = user::read(self.memory_mut(), pointer)?;
        if section == 0 {
            return Ok(());
        }
        if is_in_call {
            settled.is_due = true;
            self.task_mut().sequences = Some(settled);
            self.kick_self();
            return Ok(());
        }
        let pc = self.hart().pc.get();
        let memory = self.memory_mut();
        let abort = interrupted(memory, (registration, section), pc)?;
        user::write(memory, pointer, &0u64)?;
        if let Some(abort) = abort {
            self.hart().pc.set(abort);
        }
        Ok(())
    }
}

/// Writes `cpu_id_start` and `cpu_id`, `node_id` and `mm_cid`.
fn write_numbers(
    memory: &mut AddressSpace,
    address: u64,
    cpus: [u32; 2],
    identifier: u32,
) -> Result<(), Errno> {
    /// There is one node.
    const NODE: u32 = 0;
    let node = address + offset_of!(Rseq, node_id) as u64;
    user::write(memory, address, &cpus)?;
    user::write(memory, node, &[NODE, identifier])
}

/// Returns where a thread continues that was interrupted at `pc`, if that is in the critical section
/// at address `section`.
///
/// # Errors
/// `EFAULT`; `EINVAL` for a section that the kernel rejects.
fn interrupted(
    memory: &mut AddressSpace,
    (registration, section): (Registration, u64),
    pc: u64,
) -> Result<Option<u64>, Errno> {
    let RseqCs {
        version,
        flags,
        start_ip: start,
        post_commit_offset: length,
        abort_ip: abort,
    } = user::read(memory, section)?;
    let end = start.checked_add(length);
    let is_inside = |ip: u64| ip.wrapping_sub(start) < length;
    let is_valid = version == 0
        && abort < USER_END
        && end.is_some_and(|end| end < USER_END)
        && !is_inside(abort);
    if !is_valid {
        return Err(Errno::EINVAL);
    }
    let word: u32 = user::read(memory, abort.wrapping_sub(4))?;
    if word != registration.signature {
        return Err(Errno::EINVAL);
    }
    if !is_inside(pc) {
        return Ok(None);
    }
    let at = registration.area.0 + offset_of!(Rseq, flags) as u64;
    // The flags of sections and threads are obsolete.
    match flags | user::read::<u32>(memory, at)? {
        0 => Ok(Some(abort)),
        _ => Err(Errno::EINVAL),
    }
}
