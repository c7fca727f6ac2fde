//! Programs in VMs of this process: functions that they export are called, and the VMs are reset
//! (docs/sandbox.md).
//!
//! Translations come from the cache of `hartline build` and `hartline run`. What is missing is translated while
//! the program runs.
//!
//! ```no_run
//! use hartline_embed::{Options, Program, Sandbox};
//!
//! # fn main() -> Result<(), hartline_embed::StartError> {
//! let program = Program::load("./shout".as_ref(), Options::default())?;
//! let sandbox = Sandbox::start(&program)?;
//! let output = sandbox.call("shout", b"hello", None)?;
//! sandbox.reset()?;
//! # Ok(())
//! # }
//! ```

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

pub mod ahead;
mod contents;
mod error;
mod forks;
pub mod images;
mod program;
mod sandbox;
mod serving;
mod streams;
mod template;
pub mod translation;
mod vm;
mod warm_clone;

pub use error::Error;
pub use forks::forks;
pub use hartline_abi::exports::{MAX_DATA, MAX_NAME};
pub use hartline_vmm::exports::{CallError, Exports, Reset, ResetError, Streams};
pub use program::{LoadError, Options, Outputs, Program};
pub use sandbox::{Sandbox, StartError};
pub use serving::wait_for_translators;
pub use streams::{Captures, Output, input_of};
pub use template::{Template, TemplateError, TemplateOptions};
pub use warm_clone::{Cause, RunEnd, RunError, WarmClone};
