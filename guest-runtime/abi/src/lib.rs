//! Every structure that crosses the VM boundary: between the VMM, the guest
//! runtime and translated code.
//!
//! All integers are little-endian (both sides are x86-64), and all structures are `repr(C)` with
//! sizes and offsets checked at compile time. Readers trust nothing here: the VMM checks what the
//! guest wrote, and the runtime checks what came from files.
#![no_std]
#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

pub mod boot;
pub mod call;
pub mod chaos;
pub mod checkpoint;
pub mod console;
pub mod copy;
pub mod dispatch;
pub mod elf;
pub mod exports;
pub mod frames;
pub mod handshake;
pub mod hart;
pub mod hotness;
pub mod image;
pub mod interrupt;
pub mod jit;
pub mod layout;
pub mod limits;
pub mod paging;
pub mod port;
pub mod profile;
pub mod report;
pub mod secret;
pub mod spawn;
pub mod timeline;
pub mod tree;
pub mod virtio;
pub mod volume;
pub mod vsock;

/// Version of everything in this crate. A runtime and a VMM work together, and a cached translation
/// image is usable, only if their versions are equal.
pub const ABI_VERSION: u32 = 10;
