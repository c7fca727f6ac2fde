//! Host registers.

macro_rules! registers {
    ($(#[$meta:meta])* $name:ident { $($variant:ident),* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "registers are named as in the manual")]
        pub enum $name { $($variant),* }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; 16] = [$(Self::$variant),*];

            /// Its number, 0–15.
            #[must_use]
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// Its bit in a set of registers.
            #[must_use]
            pub const fn mask(self) -> u16 {
                1 << self as u8
            }
        }
    };
}

registers! {
    /// A general-purpose register.
    Gpr { Rax, Rcx, Rdx, Rbx, Rsp, Rbp, Rsi, Rdi, R8, R9, R10, R11, R12, R13, R14, R15 }
}

registers! {
    /// An SSE register.
    Xmm {
        Xmm0, Xmm1, Xmm2, Xmm3, Xmm4, Xmm5, Xmm6, Xmm7,
        Xmm8, Xmm9, Xmm10, Xmm11, Xmm12, Xmm13, Xmm14, Xmm15
    }
}
