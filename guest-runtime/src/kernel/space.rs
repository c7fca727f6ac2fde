//! Address spaces, with the code in them, and the processes that use them.

use crate::exec::images::Images;
use crate::exec::interp::CodeId;
use crate::file::userfaultfd::UserFaultFd;
use crate::kernel::Kernel;
use crate::kernel::aio::Contexts;
use crate::kernel::current::Current;
use crate::kernel::debug::SpaceDebug;
use crate::kernel::table::Handle;
use crate::mm::AddressSpace;
use alloc::boxed::Box;
use alloc::rc::Weak;

/// An address space with the code in it.
#[derive(Debug)]
pub struct Space {
    /// Memory.
    pub memory: AddressSpace,
    /// Translation images.
    pub images: Images,
    /// The code that interpreters execute.
    code: CodeId,
    /// Number of processes that use it.
    users: u32,
    /// The commands of `membarrier` that were registered: `MEMBARRIER_CMD_REGISTER_…`.
    pub barriers: u64,
    /// The concurrency identifiers (`mm_cid`) of the tasks that run, as a bit set.
    pub identifiers: u64,
    /// Contexts of asynchronous I/O.
    pub aio: Contexts,
    /// What a debugger has done to it.
    pub(crate) debug: Option<Box<SpaceDebug>>,
    /// The open file through which the program handles page faults.
    pub user_faults: Weak<UserFaultFd>,
    /// Address of the word that has the generation of the VM; 0: there is none.
    pub generation_word: u64,
}

impl Space {
    /// Creates an address space for one process.
    #[must_use]
    pub fn new(memory: AddressSpace, images: Images) -> Self {
        Self {
            memory,
            images,
            code: CodeId::next(),
            users: 1,
            barriers: 0,
            identifiers: 0,
            aio: Contexts::default(),
            debug: None,
            user_faults: Weak::new(),
            generation_word: 0,
        }
    }

    /// The code that interpreters execute.
    #[must_use]
    pub fn code(&self) -> CodeId {
        self.code
    }

    /// Makes interpreters decode the code anew, because it has changed.
    pub(crate) fn renew_code(&mut self) {
        self.code = CodeId::next();
    }

    /// Counts one more process that uses the address space.
    pub fn retain(&mut self) {
        self.users += 1;
    }

    /// Whether several processes use the address space.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.users > 1
    }
}

impl Kernel {
    /// Gives the running process another address space.
    pub(crate) fn replace_space(&mut self, space: Handle<Space>) {
        self.release_space();
        self.process_mut().space = space;
        self.run(Current {
            space,
            ..self.current
        });
    }

    /// Counts one process less that uses the current address space, which is removed when another
    /// one runs.
    pub(super) fn release_space(&mut self) {
        let space = self.space_mut();
        space.users -= 1;
        if space.users == 0 {
            let polls = space.aio.take_polls();
            self.drop_polls(polls);
        }
    }

    /// Makes this vCPU run another task, or the same one in another address space.
    pub(super) fn run(&mut self, current: Current) {
        self.cpus[self.cpu].current = current;
        let old = self.set_current(current).space;
        if old == current.space {
            return;
        }
        // An idle vCPU keeps its page tables.
        if !self.is_idle() {
            self.memory().load();
            self.catch_up_translations();
            self.notice_changed_code();
        }
        if self.spaces[old].users == 0
            && let Some(space) = self.spaces.remove(old)
        {
            space.memory.tear_down();
        }
    }

    /// Sets what the kernel works for. Returns what it worked for before.
    pub(super) fn set_current(&mut self, current: Current) -> Current {
        let old = core::mem::replace(&mut self.current, current);
        // Another program may be at the same addresses.
        self.forget_fetch();
        if old.space != current.space {
            if self.chaos.checks() {
                self.spaces[old].memory.audit();
                self.spaces[current].memory.audit();
            }
            self.use_dispatch_cache();
        }
        old
    }
}
