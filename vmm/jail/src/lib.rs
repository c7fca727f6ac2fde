//! The jail of a process that works on untrusted data: a VMM, or a worker that packs or translates
//! files.
//!
//! The daemon starts it in its own namespaces ([`spawn`]) with one socket to talk over
//! ([`Channel`]). The process then takes everything away from itself ([`enter`]): the file
//! system, its user, capabilities, and the system calls that it does not need
//! ([`Filters`]). All that it works with comes through the socket, as open descriptors;
//! directories of the host, if it is to have some ([`mount`]), when it is started. The processes
//! of the daemon are started by its privileged part, the [`spawner`].

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

mod call_names;
mod channel;
mod enter;
mod filter;
mod fork;
mod limits;
mod mount;
#[cfg(test)]
mod policy;
mod spawn;
pub mod spawner;
mod violation;

pub use channel::{Channel, MAX_DESCRIPTORS, MAX_MESSAGE};
pub use enter::{Jail, JailError, enter};
pub(crate) use enter::{become_user, drop_capabilities, failed};
pub use filter::{FilterError, Filters, Kind, Role};
pub use limits::{Limits, MAX_OUTPUT, MAX_WORKER_FILE};
pub use mount::mount;
pub use spawn::{
    CHANNEL_FD, COUNTERS_FD, Child, DEVICE_FD, INPUT_FD, NETWORK_FD, REQUESTS_FD, RESULT_FD,
    USER_HZ, VOLUME_FD, spawn,
};
pub use violation::Violation;
