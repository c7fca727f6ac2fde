//! TAP interfaces of the host (Documentation/networking/tuntap.rst).

mod backend;
mod batch;
mod ioctl;
#[cfg(test)]
mod tests;

pub use backend::{Tap, TapError};
pub use batch::Batch;
