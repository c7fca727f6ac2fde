//! The C interface of [`hartline_embed`]: `hartline_host.h` describes it, and `build.sh` makes `libhartline.so`.
//!
//! A sandbox, template or clone is a number for its callers, so that one that was ended is noticed. No panic leaves a function. Each
//! function returns a [`Status`], and [`hartline_last_error`] has a text.

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

mod border;
mod clones;
mod failure;
mod functions;
mod handles;
mod options;
mod runs;
mod templates;

pub use clones::{
    hartline_clone_end, hartline_clone_run, hartline_clone_start, hartline_clone_warnings,
};
pub use failure::{Status, hartline_last_errno, hartline_last_error, hartline_last_message};
pub use functions::{
    hartline_call, hartline_create, hartline_create_from, hartline_end, hartline_register,
    hartline_reset, hartline_start, hartline_warnings,
};
pub use options::RawOptions;
pub use runs::{EndCause, RawRun, RawRunEnd};
pub use templates::{
    RawBaseline, RawTemplateOptions, hartline_template_free, hartline_template_load,
};

use hartline_embed::Reset;
use std::ffi::{CStr, c_char};

/// The number of the interface: a library with another one has other functions or structures.
const INTERFACE: u32 = 2;

/// `hartline_reset_result` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawReset {
    /// Pages of 4 KiB that were put back.
    pub pages: u64,
    /// The time of the VM's thread, ns.
    pub time_ns: u64,
    /// Whether page tables of the guest had changed: 0 or 1.
    pub tables_changed: u32,
    /// Always 0.
    pub reserved: u32,
}

impl From<Reset> for RawReset {
    fn from(reset: Reset) -> Self {
        Self {
            pages: reset.pages,
            time_ns: u64::try_from(reset.time.as_nanos()).unwrap_or(u64::MAX),
            tables_changed: reset.tables_changed.into(),
            reserved: 0,
        }
    }
}

/// `hartline_version` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hartline_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// `hartline_interface` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hartline_interface() -> u32 {
    INTERFACE
}
