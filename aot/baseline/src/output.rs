//! The output: host code, and its description for the linker and the runtime.

/// A translated region.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Translation {
    /// The host code, position-independent.
    pub code: Vec<u8>,
    /// The entries, sorted by guest address: functions and blocks of the region, targets of calls,
    /// code that only an indirect jump can reach, and headers of loops, at which the dispatcher
    /// continues after it has dropped host frames.
    pub entries: Vec<Entry>,
    /// Fields to fill in, sorted by offset.
    pub relocations: Vec<Relocation>,
    /// Accesses to guest memory, sorted by offset.
    pub accesses: Vec<Access>,
    /// Number of guest instructions.
    pub instructions: u32,
    /// Number of guest instructions that are handed to the interpreter in any case.
    pub interpreted: u32,
}

impl Translation {
    /// Returns the access of the host instruction at `offset`.
    #[must_use]
    pub fn access_at(&self, offset: u32) -> Option<Access> {
        let index = self
            .accesses
            .binary_search_by_key(&offset, |access| access.offset);
        index.ok().map(|index| self.accesses[index])
    }
}

/// Code that may be entered with the convention of translated functions. It polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Guest address.
    pub guest: u64,
    /// Offset in the code.
    pub host: u32,
    /// The address is one of [`Region::functions`](crate::Region::functions), or a call in the
    /// region leads to it.
    pub is_function: bool,
}

/// A field of four bytes that holds the distance from its end to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Offset of the field in the code.
    pub offset: u32,
    /// The target.
    pub target: Target,
}

/// The target of a [`Relocation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Code that enters the runtime. Like the services of images, it takes the address in
    /// `Hart.pc` as the region has it, adds the bias, and jumps to the entry point in the `Hart`
    /// structure.
    Service(Service),
    /// The host code of the guest code at this address, outside the region, with the standard
    /// convention; or code that stores the address to `Hart.pc` and jumps to `Hart.fn_dispatch`.
    Guest(u64),
    /// As `Guest`, for a call or a tail call. The function may be in the region, but LLVM's code of it
    /// is better.
    Function(u64),
    /// The first word of the image's data page: the run-time address minus the address that the
    /// region has. Only position-independent regions refer to it.
    Bias,
}

/// An entry point of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// [`fn_ecall`](hartline_abi::hart::Hart::fn_ecall).
    Ecall,
    /// [`fn_poll_entry`](hartline_abi::hart::Hart::fn_poll_entry).
    PollEntry,
    /// [`fn_resume`](hartline_abi::hart::Hart::fn_resume), for polls in loops.
    Resume,
    /// [`fn_trap`](hartline_abi::hart::Hart::fn_trap).
    Trap,
    /// [`fn_interpret_one`](hartline_abi::hart::Hart::fn_interpret_one).
    InterpretOne,
}

/// A host instruction that accesses guest memory. When it faults, the state is as before the guest
/// instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Offset of the host instruction in the code.
    pub offset: u32,
    /// Address of the guest instruction.
    pub pc: u64,
    /// Pinned integer registers whose value is in the `Hart` structure at this access and not in
    /// their host register; bit n stands for `xn`. Only atomic operations have any.
    pub in_hart: u32,
}
