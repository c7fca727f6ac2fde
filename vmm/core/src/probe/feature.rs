//! The instruction-set extensions that the probe tests.

use std::fmt;

/// An extension of the x86-64 instruction set beyond its baseline (SSE2). The probe tests
/// extensions in this order: each follows the ones that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names of the instruction set's manual")]
pub enum Feature {
    Sse3,
    Ssse3,
    Sse41,
    Sse42,
    Popcnt,
    Lzcnt,
    Bmi1,
    Bmi2,
    Movbe,
    Cx16,
    Pclmul,
    Adx,
    Avx,
    F16c,
    Fma,
    Avx2,
    Avx512f,
    Avx512cd,
    Avx512bw,
    Avx512dq,
    Avx512vl,
}

/// The vector registers whose contents must survive exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Registers {
    Xmm,
    Ymm,
    Zmm,
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 21] = [
        Self::Sse3,
        Self::Ssse3,
        Self::Sse41,
        Self::Sse42,
        Self::Popcnt,
        Self::Lzcnt,
        Self::Bmi1,
        Self::Bmi2,
        Self::Movbe,
        Self::Cx16,
        Self::Pclmul,
        Self::Adx,
        Self::Avx,
        Self::F16c,
        Self::Fma,
        Self::Avx2,
        Self::Avx512f,
        Self::Avx512cd,
        Self::Avx512bw,
        Self::Avx512dq,
        Self::Avx512vl,
    ];

    /// LLVM's name of the target feature.
    #[must_use]
    pub const fn llvm_name(self) -> &'static str {
        match self {
            Self::Sse3 => "sse3",
            Self::Ssse3 => "ssse3",
            Self::Sse41 => "sse4.1",
            Self::Sse42 => "sse4.2",
            Self::Popcnt => "popcnt",
            Self::Lzcnt => "lzcnt",
            Self::Bmi1 => "bmi",
            Self::Bmi2 => "bmi2",
            Self::Movbe => "movbe",
            Self::Cx16 => "cx16",
            Self::Pclmul => "pclmul",
            Self::Adx => "adx",
            Self::Avx => "avx",
            Self::F16c => "f16c",
            Self::Fma => "fma",
            Self::Avx2 => "avx2",
            Self::Avx512f => "avx512f",
            Self::Avx512cd => "avx512cd",
            Self::Avx512bw => "avx512bw",
            Self::Avx512dq => "avx512dq",
            Self::Avx512vl => "avx512vl",
        }
    }

    /// The feature that must work before this one can be used; LLVM implies it.
    #[must_use]
    pub const fn requires(self) -> Option<Self> {
        Some(match self {
            Self::Ssse3 => Self::Sse3,
            Self::Sse41 => Self::Ssse3,
            Self::Sse42 => Self::Sse41,
            Self::Avx => Self::Sse42,
            Self::F16c | Self::Fma | Self::Avx2 => Self::Avx,
            Self::Avx512f => Self::Avx2,
            Self::Avx512cd | Self::Avx512bw | Self::Avx512dq | Self::Avx512vl => Self::Avx512f,
            _ => return None,
        })
    }

    /// The registers that the feature adds or widens.
    pub(super) const fn registers(self) -> Option<Registers> {
        match self {
            Self::Avx => Some(Registers::Ymm),
            Self::Avx512f => Some(Registers::Zmm),
            _ => None,
        }
    }

    /// Whether translated code uses the feature by default. It does not use the AVX-512 family: its
    /// wide registers make every context switch more expensive, and translated code seldom has
    /// vectors of that length.
    #[must_use]
    pub fn by_default(self) -> bool {
        self < Self::Avx512f
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.llvm_name())
    }
}
