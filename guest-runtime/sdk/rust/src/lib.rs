//! Functions that a program exports to its host, functions of the host that it calls, and work in parts.
//!
//! A program in a VM of Hartline:
//!
//! ```no_run
//! use hartline_sdk::Errno;
//! use std::convert::Infallible;
//!
//! fn shout(input: &[u8], output: &mut Vec<u8>) -> Result<(), Errno> {
//!     output.extend(input.iter().map(u8::to_ascii_uppercase));
//!     Ok(())
//! }
//!
//! fn main() -> Result<Infallible, Errno> {
//!     hartline_sdk::export("shout", shout)?;
//!     hartline_sdk::serve()
//! }
//! ```
//!
//! The host then calls `shout` as often as it likes, and can reset the VM to the moment of the first [`serve`].
//! The same program runs everywhere: on another Linux, [`serve`] and [`call_host`] fail with [`Errno::ENOSYS`], and
//! the program can call its functions itself, with [`call`]. [`multiprocess`] uses threads on every system.
//!
//! `hartline.h` and `hartline_parallel.h` are the same for C. A program should use one of the two: they do not
//! know each other's functions and threads.
#[cfg(not(target_os = "linux"))]
compile_error!("hartline-sdk is for programs that run on Linux");

mod calls;
mod errno;
mod parallel;
pub mod system_call;

pub use calls::{
    MAX_DATA, MAX_EXPORTS, MAX_NAME, call, call_host, export, generation, keep_generation, serve,
};
pub use errno::Errno;
pub use parallel::{MAX_PARTS, hart_id, multiprocess};
