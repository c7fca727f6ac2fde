//! The console (virtio 1.3, section 5.3): ports for the program's standard output and standard
//! error and for traces, and one thread that writes their bytes to descriptors of the host.
//!
//! The device has no input. The library OS reads standard input with host calls, and only as much
//! as a program wants, because the rest is for the host's next reader. So ports never send
//! anything to the driver, and a driver may leave out their RX queues.

mod backend;
mod control;
mod device;
pub mod log;
mod ports;
mod shared;
mod stats;
#[cfg(test)]
mod tests;
mod worker;

pub use device::Console;
pub use ports::Outputs;
pub use stats::{Counters, Statistics};
