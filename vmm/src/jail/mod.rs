//! The jail of a process that works on what strangers sent: a VMM, or a worker that packs
//! or translates files.
//!
//! The daemon starts it in namespaces of its own ([`spawn`]) with one socket to talk over
//! ([`Channel`]). The process then takes everything away from itself ([`enter`]): the file
//! system, its user, capabilities, and the system calls that it does not need
//! ([`Filters`]). All that it works with comes through the socket, as open descriptors;
//! directories of the host, if it is to have some ([`mount`]), when it is started.

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
