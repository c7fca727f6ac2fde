//! Volumes: files and directories of the host that the guest uses by requests in shared memory
//! ([`hartline_abi::volume`]). One thread serves the requests. Other threads wait for storage.

mod arguments;
mod backend;
mod channel;
mod copies;
pub mod cost;
mod depth;
mod device;
mod files;
#[cfg(test)]
mod limit_tests;
mod names;
mod nodes;
mod owners;
mod pool;
mod server;
mod space;
#[cfg(test)]
mod tests;
pub mod tree;
mod usage;
mod worker;

pub use backend::use_descriptors;
pub use channel::Channel;
pub use copies::{Copies, FileCopy};
pub use device::Volumes;
pub use files::Volume;
pub use owners::Owners;
pub use server::Server;
pub use space::Space;
pub use tree::measure_path as measure;
pub use usage::Usage;
