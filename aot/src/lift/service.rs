//! Entry points of the runtime for translated code. Code at the start of the image converts the
//! link-time address in `Hart.pc` to a run-time address. So the address is one constant where it is
//! stored, and the call is one short instruction.

use hartline_abi::hart::offset;

/// An entry point of the runtime that takes the link-time pc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// [`fn_dispatch`](hartline_abi::hart::Hart::fn_dispatch).
    Dispatch,
    /// [`fn_ecall`](hartline_abi::hart::Hart::fn_ecall).
    Ecall,
    /// [`fn_poll`](hartline_abi::hart::Hart::fn_poll).
    Poll,
    /// [`fn_poll_float`](hartline_abi::hart::Hart::fn_poll_float).
    PollFloat,
    /// [`fn_poll_entry`](hartline_abi::hart::Hart::fn_poll_entry).
    PollEntry,
    /// [`fn_resume`](hartline_abi::hart::Hart::fn_resume).
    Resume,
    /// [`fn_trap`](hartline_abi::hart::Hart::fn_trap).
    Trap,
    /// [`fn_interpret_one`](hartline_abi::hart::Hart::fn_interpret_one).
    InterpretOne,
}

impl Service {
    /// All services, in the order of their code in an image.
    pub const ALL: [Self; 8] = [
        Self::Dispatch,
        Self::Ecall,
        Self::Poll,
        Self::PollFloat,
        Self::PollEntry,
        Self::Resume,
        Self::Trap,
        Self::InterpretOne,
    ];

    /// Returns the symbol of the code that jumps to the service.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Dispatch => "hartline_dispatch",
            Self::Ecall => "hartline_ecall",
            Self::Poll => "hartline_poll",
            Self::PollFloat => "hartline_poll_float",
            Self::PollEntry => "hartline_poll_entry",
            Self::Resume => "hartline_resume",
            Self::Trap => "hartline_trap",
            Self::InterpretOne => "hartline_interpret_one",
        }
    }

    /// Returns the offset of its address in the `Hart` structure.
    #[must_use]
    pub const fn offset(self) -> u64 {
        match self {
            Self::Dispatch => offset::FN_DISPATCH,
            Self::Ecall => offset::FN_ECALL,
            Self::Poll => offset::FN_POLL,
            Self::PollFloat => offset::FN_POLL_FLOAT,
            Self::PollEntry => offset::FN_POLL_ENTRY,
            Self::Resume => offset::FN_RESUME,
            Self::Trap => offset::FN_TRAP,
            Self::InterpretOne => offset::FN_INTERPRET_ONE,
        }
    }
}
