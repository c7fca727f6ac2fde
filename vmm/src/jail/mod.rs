//! The jail of a process that works on untrusted data: a VMM, or a worker that packs or translates
//! files.
//!
//! The daemon starts the process in its own namespaces ([`spawn`]) with one socket ([`Channel`]).
//! The process then drops its rights ([`enter`]): the file system, its user, capabilities, and the
//! system calls that it does not need ([`Filters`]). It receives everything that it works with
//! through the socket, as open descriptors. Directories of the host ([`mount`]), if it has any, are
//! passed at the start.

mod call_names;
mod channel;
mod enter;
mod filter;
mod mount;
mod policy;
mod spawn;
mod violation;

pub use channel::{Channel, MAX_DESCRIPTORS, MAX_MESSAGE};
pub use enter::{Jail, JailError, Limits, enter};
pub(crate) use enter::{become_user, drop_capabilities, set_parent_death_signal};
pub use filter::{FilterError, Filters, Kind, Role};
pub use mount::mount;
pub use policy::{CallCount, call_counts};
pub use spawn::{CHANNEL_FD, Child, DEVICE_FD, RESULT_FD, VOLUME_FD, spawn};
pub use violation::Violation;
