//! Tasks that wait until the program handles their page fault (`userfaultfd`).

use crate::kernel::Kernel;
use crate::kernel::task::{Event, Wait};
use crate::mm::Access;
use crate::wait::{ALL, Registration};
use hartline_linux::userfaultfd::{UFFD_PAGEFAULT_FLAG_WP, UFFD_PAGEFAULT_FLAG_WRITE};

impl Kernel {
    /// Makes the running task wait, when it [resumes](Self::resume), after a fault at `address`. Its
    /// registers are those before the access, which it repeats.
    pub(crate) fn await_user_fault(&mut self, address: u64, access: Access) {
        self.end_replay();
        // If the open file was closed meanwhile, the page is filled as any other.
        let Some(file) = self.space().user_faults.upgrade() else {
            return;
        };
        if self.interrupted() {
            self.kick_self();
            return;
        }
        let flags = match access {
            Access::Write if self.memory().is_store_protected(address, access) => {
                UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP
            }
            Access::Write => UFFD_PAGEFAULT_FLAG_WRITE,
            Access::Read | Access::Execute => 0,
        };
        file.add(self.task().tid, address, flags);
        let registration = Registration::new(&file.waiters, ALL);
        let task = self.task_mut();
        task.wait = Some(Wait::for_event(Event::File));
        task.registrations.clear();
        task.registrations.push(registration);
        // The task is still in the exception, which it leaves first.
        task.awaits_page = true;
        self.serve_wakeups();
    }
}
