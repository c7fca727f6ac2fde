//! Page faults that the program handles (`userfaultfd`): the open file, from which the handling
//! thread reads the faults of others.

use super::readable;
use crate::file::caller::Caller;
use crate::file::description::OpenFile;
use crate::file::operations::{File, Mode};
use crate::file::transfer::Transfer;
use crate::file::view::View;
use crate::mm::{UserSliceMut, VmFlags, user};
use crate::wait::poll::PollTable;
use crate::wait::{ALL, READABLE, WaitQueue};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;
use hartline_abi::layout::PAGE_SIZE;
use hartline_linux::errno::Errno;
use hartline_linux::poll::POLLERR;
use hartline_linux::userfaultfd::{
    _UFFDIO_API, _UFFDIO_COPY, _UFFDIO_REGISTER, _UFFDIO_UNREGISTER, _UFFDIO_WAKE,
    _UFFDIO_WRITEPROTECT, _UFFDIO_ZEROPAGE, UFFD_API, UFFD_EVENT_PAGEFAULT,
    UFFD_FEATURE_EXACT_ADDRESS, UFFD_FEATURE_PAGEFAULT_FLAG_WP, UFFD_FEATURE_THREAD_ID, UFFDIO_API,
    UFFDIO_COPY, UFFDIO_COPY_MODE_DONTWAKE, UFFDIO_COPY_MODE_WP, UFFDIO_REGISTER,
    UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP, UFFDIO_UNREGISTER, UFFDIO_WAKE,
    UFFDIO_WRITEPROTECT, UFFDIO_WRITEPROTECT_MODE_DONTWAKE, UFFDIO_WRITEPROTECT_MODE_WP,
    UFFDIO_ZEROPAGE, UFFDIO_ZEROPAGE_MODE_DONTWAKE, UffdMsg, UffdioApi, UffdioCopy, UffdioRange,
    UffdioRegister, UffdioWriteprotect, UffdioZeropage,
};
use zerocopy::IntoBytes;

/// Supported features.
const FEATURES: u64 =
    UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_THREAD_ID | UFFD_FEATURE_EXACT_ADDRESS;

/// A fault of a task, which waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    tid: u32,
    address: u64,
    /// `UFFD_PAGEFAULT_FLAG_…`.
    flags: u64,
    /// It was read.
    is_told: bool,
}

/// A userfaultfd.
#[derive(Debug, Default)]
pub struct UserFaultFd {
    /// By which the address space knows the open file.
    token: Rc<()>,
    /// `UFFDIO_API` was successful, with these features.
    features: Cell<Option<u64>>,
    faults: RefCell<Vec<Waiting>>,
    /// The parties that wait for faults.
    readers: WaitQueue,
    /// The tasks that wait for pages.
    pub waiters: WaitQueue,
}

impl UserFaultFd {
    /// The token of the open file.
    #[must_use]
    pub fn token(&self) -> Weak<()> {
        Rc::downgrade(&self.token)
    }

    /// Adds a fault of a task that is going to wait. A repeated fault gives one event.
    pub fn add(&self, tid: u32, address: u64, flags: u64) {
        let mut faults = self.faults.borrow_mut();
        let page = |address: u64| address / PAGE_SIZE;
        let same = |fault: &Waiting| page(fault.address) == page(address) && fault.flags == flags;
        if faults.iter().any(|fault| fault.tid == tid && same(fault)) {
            return;
        }
        faults.retain(|fault| fault.tid != tid);
        faults.push(Waiting {
            tid,
            address,
            flags,
            is_told: false,
        });
        self.readers.wake(READABLE);
    }

    /// Wakes the tasks that wait for pages in `range`.
    fn wake(&self, range: &Range<u64>) {
        let mut faults = self.faults.borrow_mut();
        faults.retain(|fault| !range.contains(&fault.address));
        self.waiters.wake_all(ALL);
    }

    fn is_readable(&self) -> bool {
        self.faults.borrow().iter().any(|fault| !fault.is_told)
    }

    /// Answers `UFFDIO_API`.
    fn agree(&self, caller: &mut dyn Caller, address: u64) -> Result<(), Errno> {
        let wanted: UffdioApi = user::read(caller.memory(), address)?;
        let is_good = wanted.api == UFFD_API && wanted.features & !FEATURES == 0;
        if !is_good || self.features.get().is_some() {
            let nothing = UffdioApi {
                api: 0,
                features: 0,
                ioctls: 0,
            };
            user::write(caller.memory(), address, &nothing)?;
            return Err(Errno::EINVAL);
        }
        let answer = UffdioApi {
            api: UFFD_API,
            features: FEATURES,
            ioctls: 1 << _UFFDIO_API | 1 << _UFFDIO_REGISTER | 1 << _UFFDIO_UNREGISTER,
        };
        user::write(caller.memory(), address, &answer)?;
        self.features.set(Some(wanted.features));
        Ok(())
    }

    fn register(&self, caller: &mut dyn Caller, address: u64) -> Result<(), Errno> {
        let wanted: UffdioRegister = user::read(caller.memory(), address)?;
        let mode = wanted.mode;
        let known = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP;
        if mode == 0 || mode & !known != 0 {
            return Err(Errno::EINVAL);
        }
        let UffdioRange { start, len } = wanted.range;
        checked(start, len)?;
        if !caller.memory().are_faults_of(&self.token()) {
            return Err(Errno::EBUSY);
        }
        let mut flags = VmFlags::NONE;
        let mut ioctls = 1 << _UFFDIO_WAKE | 1 << _UFFDIO_COPY | 1 << _UFFDIO_ZEROPAGE;
        if mode & UFFDIO_REGISTER_MODE_MISSING != 0 {
            flags = flags.with(VmFlags::VM_UFFD_MISSING);
        }
        if mode & UFFDIO_REGISTER_MODE_WP != 0 {
            flags = flags.with(VmFlags::VM_UFFD_WP);
            ioctls |= 1 << _UFFDIO_WRITEPROTECT;
        }
        caller.memory().register_faults(start, len, flags)?;
        let answer = UffdioRegister { ioctls, ..wanted };
        user::write(caller.memory(), address, &answer)
    }

    /// Fills missing pages of `range`, from the bytes at `source` or with zeros. Returns how many
    /// bytes it filled, or the error of the first page.
    fn install(
        &self,
        caller: &mut dyn Caller,
        range: &Range<u64>,
        source: Option<u64>,
        protect: bool,
    ) -> i64 {
        let mut done = 0;
        while range.start + done < range.end {
            let bytes = match source {
                None => Ok(None),
                Some(source) => {
                    let from = source.wrapping_add(done);
                    let page = user::slice(caller.memory(), from, PAGE_SIZE);
                    page.map(|page| Some(page.to_vec()))
                }
            };
            let result = bytes.and_then(|bytes| {
                let at = range.start + done;
                caller.memory().install_page(at, bytes.as_deref(), protect)
            });
            match result {
                Ok(()) => done += PAGE_SIZE,
                Err(error) if done == 0 => return -i64::from(error.number()),
                Err(_) => break,
            }
        }
        done.cast_signed()
    }

    /// The result of a request that filled `done` of `length` bytes, after waking the tasks that
    /// wait for them.
    fn filled(&self, start: u64, length: u64, done: i64, wakes: bool) -> Result<u64, Errno> {
        let done = Errno::check(done)?;
        if wakes {
            self.wake(&(start..start + done));
        }
        match done == length {
            true => Ok(0),
            false => Err(Errno::EAGAIN),
        }
    }

    fn copy(&self, caller: &mut dyn Caller, address: u64) -> Result<u64, Errno> {
        let wanted: UffdioCopy = user::read(caller.memory(), address)?;
        let UffdioCopy {
            dst,
            src,
            len,
            mode,
            ..
        } = wanted;
        let range = checked(dst, len)?;
        let known = UFFDIO_COPY_MODE_DONTWAKE | UFFDIO_COPY_MODE_WP;
        if mode & !known != 0 || src.checked_add(len).is_none() {
            return Err(Errno::EINVAL);
        }
        let protect = mode & UFFDIO_COPY_MODE_WP != 0;
        let copy = self.install(caller, &range, Some(src), protect);
        let answer = UffdioCopy { copy, ..wanted };
        user::write(caller.memory(), address, &answer)?;
        self.filled(dst, len, copy, mode & UFFDIO_COPY_MODE_DONTWAKE == 0)
    }

    fn zero(&self, caller: &mut dyn Caller, address: u64) -> Result<u64, Errno> {
        let wanted: UffdioZeropage = user::read(caller.memory(), address)?;
        let UffdioRange { start, len } = wanted.range;
        let range = checked(start, len)?;
        if wanted.mode & !UFFDIO_ZEROPAGE_MODE_DONTWAKE != 0 {
            return Err(Errno::EINVAL);
        }
        let zeropage = self.install(caller, &range, None, false);
        let answer = UffdioZeropage { zeropage, ..wanted };
        user::write(caller.memory(), address, &answer)?;
        self.filled(start, len, zeropage, wanted.mode == 0)
    }

    fn write_protect(&self, caller: &mut dyn Caller, address: u64) -> Result<u64, Errno> {
        const DONTWAKE: u64 = UFFDIO_WRITEPROTECT_MODE_DONTWAKE;
        let wanted: UffdioWriteprotect = user::read(caller.memory(), address)?;
        let UffdioRange { start, len } = wanted.range;
        let range = checked(start, len)?;
        let on = match wanted.mode {
            0 | DONTWAKE => false,
            UFFDIO_WRITEPROTECT_MODE_WP => true,
            _ => return Err(Errno::EINVAL),
        };
        caller.memory().protect_faults(start, len, on)?;
        if wanted.mode == 0 {
            self.wake(&range);
        }
        Ok(0)
    }
}

/// The range of a request.
fn checked(start: u64, length: u64) -> Result<Range<u64>, Errno> {
    let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
    match (start | length).is_multiple_of(PAGE_SIZE) && length > 0 {
        true => Ok(start..end),
        false => Err(Errno::EINVAL),
    }
}

impl File for UserFaultFd {
    fn mode(&self) -> Mode {
        Mode::SINGLE
    }

    fn name(&self) -> &'static str {
        "[userfaultfd]"
    }

    fn release(&self, _: &mut super::Io<'_>, _: crate::fs::types::Ino, _: u32) {
        self.faults.borrow_mut().clear();
        self.waiters.wake_all(ALL);
    }

    fn read(&self, transfer: &mut Transfer<'_>, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        let features = self.features.get().ok_or(Errno::EINVAL)?;
        let room = to.len() / size_of::<UffdMsg>();
        if room == 0 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = Vec::new();
        let mut faults = self.faults.borrow_mut();
        for fault in faults.iter_mut().filter(|fault| !fault.is_told).take(room) {
            fault.is_told = true;
            let message = UffdMsg {
                event: UFFD_EVENT_PAGEFAULT,
                flags: fault.flags,
                address: match features & UFFD_FEATURE_EXACT_ADDRESS {
                    0 => fault.address & !(PAGE_SIZE - 1),
                    _ => fault.address,
                },
                ptid: match features & UFFD_FEATURE_THREAD_ID {
                    0 => 0,
                    _ => fault.tid,
                },
                ..UffdMsg::default()
            };
            bytes.extend_from_slice(message.as_bytes());
        }
        match bytes.is_empty() {
            true => Err(Errno::EAGAIN),
            false => Ok(to.copy_start(&bytes)),
        }
    }

    fn poll(&self, _: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.wait(&self.readers);
        match self.features.get() {
            None => POLLERR,
            Some(_) => readable(self.is_readable()),
        }
    }

    fn ioctl(&self, caller: &mut dyn Caller, request: u32, address: u64) -> Result<u64, Errno> {
        if request == UFFDIO_API {
            return self.agree(caller, address).map(|()| 0);
        }
        self.features.get().ok_or(Errno::EINVAL)?;
        if request == UFFDIO_REGISTER {
            return self.register(caller, address).map(|()| 0);
        }
        let is_own = caller.memory().are_faults_of(&self.token());
        match request {
            UFFDIO_COPY | UFFDIO_ZEROPAGE | UFFDIO_WRITEPROTECT if !is_own => Err(Errno::ENOENT),
            UFFDIO_COPY => self.copy(caller, address),
            UFFDIO_ZEROPAGE => self.zero(caller, address),
            UFFDIO_WRITEPROTECT => self.write_protect(caller, address),
            UFFDIO_UNREGISTER | UFFDIO_WAKE => {
                let UffdioRange { start, len } = user::read(caller.memory(), address)?;
                let range = checked(start, len)?;
                if request == UFFDIO_UNREGISTER && is_own {
                    caller.memory().unregister_faults(start, len)?;
                }
                self.wake(&range);
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        }
    }
}
