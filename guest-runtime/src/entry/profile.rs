//! Answers the VMM's requests for samples ([`hartline_abi::profile`]).

use crate::convert::to_usize;
use crate::kernel::Kernel;
use crate::mm::{AddressSpace, Label};
use core::ptr::addr_of_mut;
use core::sync::atomic::Ordering;
use hartline_abi::profile::{Location, STACK_WORDS, Sample};

/// Host stack pointer of translated code at a safepoint, as thunks pass it to their handlers. The
/// word after the one that it points to is the first return address.
pub type Frame = *const u64;

/// Takes a sample if the VMM has requested one. The program is at `Hart::pc`.
///
/// # Safety
/// `frame` must be from the thunk of the current handler; it is not used for
/// [`Location::Interpreter`].
pub(crate) unsafe fn answer(kernel: &mut Kernel, location: Location, frame: Frame) {
    let shared = kernel.host.shared().as_ptr();
    // SAFETY: the shared pages stay mapped. The VMM writes only what is atomic, and reads the other
    // fields only after the last store below.
    unsafe {
        let sample = addr_of_mut!((*shared).sample);
        let wanted = (*sample).request.load(Ordering::Acquire);
        let own = (*sample).cpu.load(Ordering::Relaxed) == kernel.hart().id;
        if own && wanted != (*sample).answer.load(Ordering::Relaxed) {
            fill(kernel, sample, location, frame);
            if (*sample).finds_stack.load(Ordering::Relaxed) != 0 {
                kernel.sample_stack();
            }
            (*sample).answer.store(wanted, Ordering::Release);
        }
    }
}

/// # Safety
/// As [`answer`]; `sample` is the mailbox.
#[cold]
unsafe fn fill(kernel: &mut Kernel, sample: *mut Sample, location: Location, frame: Frame) {
    let (pc, end) = (kernel.hart().pc.get(), kernel.hart().stack_base);
    let (inode, file_offset) = file_at(kernel.memory(), pc).unwrap_or_default();
    let mut words = 0;
    if location != Location::Interpreter {
        words = to_usize(end.saturating_sub(frame as u64)) / 8;
        words = words.saturating_sub(1);
    }
    let length = words.min(STACK_WORDS);
    // SAFETY: the caller's contract; the stack is mapped up to its base, and the part above the
    // thunk's frame belongs to code that does not run now.
    unsafe {
        addr_of_mut!((*sample).location).write(location as u64);
        addr_of_mut!((*sample).pc).write(pc);
        addr_of_mut!((*sample).inode).write(inode.into());
        addr_of_mut!((*sample).file_offset).write(file_offset);
        addr_of_mut!((*sample).length).write(length as u64);
        addr_of_mut!((*sample).available).write(words as u64);
        let stack = addr_of_mut!((*sample).stack).cast::<u64>();
        if length != 0 {
            core::ptr::copy_nonoverlapping(frame.add(1), stack, length);
        }
    }
}

/// The file of the root file system tree that is mapped at a guest address, and the offset in the
/// file.
fn file_at(memory: &AddressSpace, pc: u64) -> Option<(u32, u64)> {
    let (start, vma) = memory.vmas().find(pc)?;
    match &vma.label {
        Label::File(file) => Some((file.inode?, file.offset + (pc - start))),
        _ => None,
    }
}
