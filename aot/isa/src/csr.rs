//! Control and status registers that a user-mode program can name.

/// `fflags`: accrued floating-point exceptions.
pub const CSR_FFLAGS: u16 = 0x001;
/// `frm`: dynamic rounding mode.
pub const CSR_FRM: u16 = 0x002;
/// `fcsr`: `frm` and `fflags`.
pub const CSR_FCSR: u16 = 0x003;
/// `cycle`, read-only.
pub const CSR_CYCLE: u16 = 0xc00;
/// `time`, read-only.
pub const CSR_TIME: u16 = 0xc01;
/// `instret`, read-only.
pub const CSR_INSTRET: u16 = 0xc02;

/// Accrued exception flags, the low five bits of `fcsr`.
pub mod fflags {
    /// Inexact.
    pub const NX: u32 = 1;
    /// Underflow.
    pub const UF: u32 = 2;
    /// Overflow.
    pub const OF: u32 = 4;
    /// Division by zero.
    pub const DZ: u32 = 8;
    /// Invalid operation.
    pub const NV: u32 = 16;
}

/// Name of an unprivileged CSR; `None` for the others and for `hpmcounter*`.
#[must_use]
pub const fn csr_name(csr: u16) -> Option<&'static str> {
    Some(match csr {
        CSR_FFLAGS => "fflags",
        CSR_FRM => "frm",
        CSR_FCSR => "fcsr",
        0x008 => "vstart",
        0x009 => "vxsat",
        0x00a => "vxrm",
        0x00f => "vcsr",
        0x015 => "seed",
        CSR_CYCLE => "cycle",
        CSR_TIME => "time",
        CSR_INSTRET => "instret",
        0xc20 => "vl",
        0xc21 => "vtype",
        0xc22 => "vlenb",
        _ => return None,
    })
}
