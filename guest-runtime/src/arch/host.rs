//! Exits to the host: host calls, notifications, the end of the program. Each takes microseconds
//! (tens of them on paravirtual KVM).

use core::ptr::{NonNull, addr_of, addr_of_mut};
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use hartline_abi::boot::{BootInfo, Shared};
use hartline_abi::call::{CALL_DATA, HostCall, MAX_REGISTER_ACCESSES, Operation, RegisterAccess};
use hartline_abi::hotness::Hotness;
use hartline_abi::image::NewerImages;
use hartline_abi::port;
use hartline_abi::report::{ExitReport, FileMapping};
use hartline_linux::errno::Errno;

/// Leaves the VM through `port`; returns when the host has served the access.
pub type VmExit = fn(port: u16);

/// Leaves the VM.
pub(crate) fn vm_exit(port: u16) {
    // SAFETY: the port belongs to the VMM, which writes memory only as documented for each port;
    // callers hold no reference to such memory.
    unsafe { core::arch::asm!("out dx, eax", in("dx") port, in("eax") 0) };
}

/// Yields to the host, so that it can run the vCPU that this one waits for.
pub(crate) fn yield_processor() {
    vm_exit(port::YIELD);
}

/// Number of exits that the runtime has made.
static EXITS: AtomicU64 = AtomicU64::new(0);

/// Number of exits that the runtime has made so far.
#[must_use]
pub fn exits() -> u64 {
    EXITS.load(Ordering::Relaxed)
}

/// The shared pages and the means to call their other side.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    shared: NonNull<Shared>,
    vm_exit: VmExit,
}

impl Host {
    /// # Safety
    /// `shared` must point to the shared pages for as long as the program runs, and nothing else in
    /// the guest may access them except through copies of this value.
    #[must_use]
    pub const unsafe fn new(shared: NonNull<Shared>, vm_exit: VmExit) -> Host {
        Host { shared, vm_exit }
    }

    /// Boot information.
    #[must_use]
    pub fn boot(&self) -> &'static BootInfo {
        // SAFETY: the pages stay mapped (`new`) and the VMM does not write the boot
        // information once the vCPU runs.
        unsafe { &*addr_of!((*self.shared.as_ptr()).boot) }
    }

    /// Takes the host's [news](hartline_abi::boot::news) of translations.
    #[must_use]
    pub fn take_news(&self) -> u64 {
        // SAFETY: a field of the live structure that is only accessed atomically.
        let word = unsafe { &*addr_of!((*self.shared.as_ptr()).images) };
        word.swap(0, Ordering::SeqCst)
    }

    /// Takes the news of translation images ([`hartline_abi::image::NewerImages`]).
    #[must_use]
    pub fn take_newer_images(&self) -> NewerImages {
        // SAFETY: a field of the live structure that is only accessed atomically.
        let words = unsafe { &*addr_of!((*self.shared.as_ptr()).image_news) };
        NewerImages(core::array::from_fn(|word| {
            words[word].swap(0, Ordering::SeqCst)
        }))
    }

    /// Announces the time of the next timer event to the VMM, ns of `CLOCK_MONOTONIC` (`u64::MAX`:
    /// none), so that it kicks the hart then. Leaves the VM if the VMM would check later than
    /// `latest`.
    pub fn announce_time(&self, at: u64, latest: u64) {
        // SAFETY: a field of the live structure that is only accessed atomically.
        let next = unsafe { &*addr_of!((*self.shared.as_ptr()).next_time) };
        next.at.store(at, Ordering::SeqCst);
        if next.next_check.load(Ordering::SeqCst) > latest {
            self.ring(port::TIMER);
        }
    }

    /// The table of counters of interpreted code. It stays mapped as long as the program runs.
    #[must_use]
    pub fn hotness(&self) -> NonNull<Hotness> {
        // SAFETY: a field of the live structure (`new`).
        unsafe {
            let table = addr_of_mut!((*self.shared.as_ptr()).hotness);
            NonNull::new_unchecked(table)
        }
    }

    /// The shared pages.
    #[must_use]
    pub const fn shared(&self) -> NonNull<Shared> {
        self.shared
    }

    /// Leaves the VM through `port`, one of [`hartline_abi::port`].
    pub fn ring(&self, port: u16) {
        // All earlier stores are in memory before the exit.
        compiler_fence(Ordering::SeqCst);
        (self.vm_exit)(port);
        compiler_fence(Ordering::SeqCst);
        EXITS.fetch_add(1, Ordering::Relaxed);
    }

    fn mailbox(&self) -> *mut HostCall {
        // SAFETY: only the address of a field is taken.
        unsafe { addr_of_mut!((*self.shared.as_ptr()).call) }
    }

    /// Makes a host call; `args` returns further results.
    ///
    /// # Errors
    /// The error that the host returned.
    pub fn call(&self, operation: Operation, args: &mut [u64; 6]) -> Result<u64, Errno> {
        let mailbox = self.mailbox();
        // SAFETY: the mailbox is this vCPU's own; the VMM reads it only inside `ring`.
        unsafe {
            addr_of_mut!((*mailbox).operation).write_volatile(operation as u32);
            addr_of_mut!((*mailbox).args).write_volatile(*args);
        }
        self.ring(port::CALL);
        // SAFETY: as above; the VMM has answered.
        let result = unsafe {
            *args = addr_of!((*mailbox).args).read_volatile();
            addr_of!((*mailbox).result).read_volatile()
        };
        Errno::check(result)
    }

    /// The data buffer of host calls: filled before, or read after, [`call`](Self::call).
    #[must_use]
    pub fn call_data(&mut self) -> &mut [u8; CALL_DATA] {
        // SAFETY: the VMM accesses the buffer only inside `ring`. This borrow cannot be alive then,
        // as `call` is made by the same vCPU.
        unsafe { &mut (*self.mailbox()).data }
    }

    /// Accesses registers of virtio devices, in order.
    ///
    /// # Errors
    /// The error that the host returned.
    pub fn access_registers(mut self, accesses: &mut [RegisterAccess]) -> Result<(), Errno> {
        for part in accesses.chunks_mut(MAX_REGISTER_ACCESSES) {
            let (records, _) = self
                .call_data()
                .as_chunks_mut::<{ RegisterAccess::LENGTH }>();
            for (record, access) in records.iter_mut().zip(&*part) {
                *record = access.to_bytes();
            }
            let mut args = [part.len() as u64, 0, 0, 0, 0, 0];
            self.call(Operation::Registers, &mut args)?;
            let (records, _) = self.call_data().as_chunks::<{ RegisterAccess::LENGTH }>();
            for (access, record) in part.iter_mut().zip(records) {
                *access = RegisterAccess::from_bytes(*record);
            }
        }
        Ok(())
    }

    /// Tells the VMM the image file, by its guest-physical address, in an image window, whose
    /// number is below [`IMAGE_WINDOWS`](hartline_abi::layout::IMAGE_WINDOWS).
    pub fn announce_window(&self, number: u64, gpa: u64) {
        let Ok(number) = usize::try_from(number) else {
            return;
        };
        // SAFETY: an element of the array; the VMM reads it only when nothing depends on it.
        unsafe {
            let windows = addr_of_mut!((*self.shared.as_ptr()).windows).cast::<u64>();
            windows.add(number).write_volatile(gpa);
        }
    }

    /// Writes the exit report; [`port::EXIT`] publishes it.
    pub fn report(&self, report: &ExitReport) {
        // SAFETY: the VMM reads the report only after the exit.
        unsafe {
            addr_of_mut!((*self.shared.as_ptr()).report).write_volatile(report.clone());
        }
    }

    /// Writes the mappings that belong to the exit report, or to a request for a call stack; mappings
    /// above the limit are left out.
    pub fn report_mappings(&self, mappings: impl Iterator<Item = FileMapping>) {
        // SAFETY: the shared pages stay mapped, and the VMM reads the mappings only inside an exit.
        let list = unsafe { &mut *addr_of_mut!((*self.shared.as_ptr()).mappings) };
        list.count = 0;
        for (entry, mapping) in list.entries.iter_mut().zip(mappings) {
            *entry = mapping;
            list.count += 1;
        }
    }
}
