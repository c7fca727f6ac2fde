//! The kernel of the VM, and the guard through which the vCPU that holds its lock uses it.
//!
//! Functions that run guest code without the lock consume the guard, and return a new one
//! afterwards. So safe code has at most one reference to the kernel.

use crate::arch::cpus;
use crate::entry::thunks;
use crate::kernel::Kernel;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};
use hartline_abi::port;

/// The kernel of the one program in this VM.
static KERNEL: AtomicPtr<Kernel> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the kernel that the entry points use.
pub fn set_kernel(kernel: &'static mut Kernel) {
    KERNEL.store(kernel, Ordering::Release);
}

/// The kernel, for the vCPU that holds the lock ([`cpus::lock`]).
///
/// To drop the guard does not release the lock: host frames are dropped with the lock held.
pub(crate) struct KernelGuard {
    kernel: NonNull<Kernel>,
}

impl KernelGuard {
    /// Creates the guard of a vCPU that already holds the lock.
    ///
    /// # Safety
    /// [`set_kernel`] was called, and this vCPU holds the lock. If there is another guard, in
    /// dropped or interrupted host frames, it has no reference to the kernel while this one exists.
    pub unsafe fn of_owner() -> Self {
        let kernel = KERNEL.load(Ordering::Acquire);
        Self {
            // SAFETY: the caller's contract: `set_kernel` was called.
            kernel: unsafe { NonNull::new_unchecked(kernel) },
        }
    }

    /// Enters the library OS from guest code. If another vCPU has changed the images or the task of
    /// this vCPU, its host frames are dropped.
    ///
    /// # Safety
    /// [`set_kernel`] was called, and this vCPU has no guard. No caller up the stack may own
    /// anything that must be dropped.
    pub unsafe fn enter() -> Self {
        cpus::lock();
        // SAFETY: the caller's contract, and the lock was taken just now.
        let mut kernel = unsafe { Self::of_owner() };
        if kernel.adopt_cpu() {
            // SAFETY: the caller's contract.
            unsafe { thunks::restart() };
        }
        kernel
    }

    /// As [`enter`](Self::enter), from translated code, which is compared with the interpreter if
    /// the run is checked (`--check`).
    ///
    /// # Safety
    /// As for [`enter`](Self::enter).
    pub unsafe fn enter_from_translated() -> Self {
        // SAFETY: the caller's contract.
        let mut kernel = unsafe { Self::enter() };
        let hart = kernel.hart();
        if let Some(shadow) = &mut kernel.shadow {
            shadow.leave(hart);
        }
        kernel
    }

    /// As [`enter`](Self::enter), from the interpreter, which has executed a `fence.i` if `fenced` is
    /// set. The fence counts also if host frames are dropped.
    ///
    /// # Safety
    /// As for [`enter`](Self::enter).
    pub unsafe fn enter_from_interpreter(fenced: bool) -> Self {
        cpus::lock();
        // SAFETY: the caller's contract, and the lock was taken just now.
        let mut kernel = unsafe { Self::of_owner() };
        let restarts = kernel.adopt_cpu();
        let drops = fenced && kernel.fence_code();
        if restarts || drops {
            // SAFETY: the caller's contract.
            unsafe { thunks::restart() };
        }
        kernel
    }

    /// Leaves the library OS for translated code, which continues at `Hart::pc`. If the run is
    /// checked, the interpreter runs ahead.
    pub fn leave(mut self) {
        let hart = self.hart();
        let Kernel {
            shadow,
            spaces,
            current,
            ..
        } = &mut *self;
        if let Some(shadow) = shadow {
            let space = &mut spaces[*current];
            shadow.enter(hart, space.code(), &mut space.memory);
        }
        self.release();
    }

    /// Releases the lock, after it has notified idle vCPUs of ready tasks.
    #[inline]
    pub fn release(mut self) {
        if !cpus::several() {
            return;
        }
        let host = self.host;
        let wakes = self.rouse();
        // SAFETY: the guard is consumed, so no reference to the kernel is left.
        unsafe { cpus::unlock() };
        if wakes {
            host.ring(port::WAKE);
        }
    }
}

impl Deref for KernelGuard {
    type Target = Kernel;

    #[inline]
    fn deref(&self) -> &Kernel {
        // SAFETY: the contract of the guard: only this vCPU uses the kernel, through this guard.
        unsafe { self.kernel.as_ref() }
    }
}

impl DerefMut for KernelGuard {
    #[inline]
    fn deref_mut(&mut self) -> &mut Kernel {
        // SAFETY: as for `deref`; the guard is borrowed mutably.
        unsafe { self.kernel.as_mut() }
    }
}
