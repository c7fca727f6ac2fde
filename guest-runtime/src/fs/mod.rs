//! The file system: a read-only image under an in-memory overlay, `/dev`, `/proc`, volumes, pipes,
//! and the locks of files. Open files are in [`crate::file`].
//!
//! This module does not leave the VM, and reaches the program's memory only through the slices that
//! it gets.

pub mod attributes;
pub mod budget;
pub mod data;
pub mod devices;
pub mod directory;
pub mod disks;
pub mod dnotify;
pub mod filesystem;
pub mod inode;
pub mod leases;
pub mod locks;
pub mod lookup;
pub mod mounts;
pub mod names;
pub mod notify;
mod origin;
pub mod overlay;
pub mod pages;
pub mod pipe;
pub mod proc;
pub mod process;
pub mod registry;
pub mod seals;
pub mod stat;
pub mod tmpfs;
pub mod tree;
pub mod types;
pub mod volume;
pub mod walk;
mod write_access;
pub mod xattr;
