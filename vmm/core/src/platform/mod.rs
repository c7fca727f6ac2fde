//! The KVM-specific code: the rest of the VMM sees memory, a VM, a vCPU and its exits.

mod core_scheduling;
mod cpuid;
mod interrupts;
mod kick;
mod memory;
mod msrs;
mod pagemap;
mod plain;
mod stats;
mod vcpu;
mod vcpu_state;
mod vm;

pub use core_scheduling::{
    CoreScheduling, CoreSchedulingMode, Member as CoreMember, NoCoreScheduling,
};
pub use interrupts::Message;
pub use kick::Kicker;
pub(crate) use kick::kick_signal;
pub use memory::{Contents, Mapping, memory_file};
pub(crate) use pagemap::Pagemap;
pub use pagemap::keep_pagemap;
pub use plain::Plain;
pub use stats::{CounterFile, Counters};
pub use vcpu::{Exit, Mmio, UserEntry, Vcpu, VmFailure};
pub(crate) use vcpu_state::VcpuState;
pub use vm::{Access, Kvm, Vm};

use std::io;
use std::path::PathBuf;

/// Errors between the VMM and KVM or the host's memory management.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no KVM device.
    #[error(
        "{path} does not exist: load the module kvm_intel, kvm_amd or kvm_pvm, or give this container the device"
    )]
    NoDevice {
        /// The device file.
        path: PathBuf,
    },
    /// The device may not be opened by this user.
    #[error(
        "{path}: permission denied: add the user to the group that owns the device (usually kvm)"
    )]
    NoPermission {
        /// The device file.
        path: PathBuf,
    },
    /// The device could not be opened for another reason.
    #[error("{path}: cannot be opened: {source}")]
    Open {
        /// The device file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The device answers, but not with KVM's stable API version.
    #[error("{path}: not a KVM device of API version 12 (it has {version})")]
    NotKvm {
        /// The device file.
        path: PathBuf,
        /// The result of `KVM_GET_API_VERSION`.
        version: i32,
    },
    /// The number of vCPUs exceeds the limit of the host's KVM.
    #[error("{cpus} vCPUs: this host's KVM gives a VM at most {most}")]
    Cpus {
        /// The requested number.
        cpus: u32,
        /// The maximum number.
        most: usize,
    },
    /// A request to KVM failed.
    #[error("KVM: {request}: {source}")]
    Request {
        /// Name of the ioctl.
        request: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The host refused memory.
    #[error("{length} bytes of memory for {what}: {source}")]
    Memory {
        /// The purpose of the memory.
        what: &'static str,
        /// The length, bytes.
        length: u64,
        /// The reason.
        source: io::Error,
    },
    /// An access is outside a mapping: a bug of the VMM, never of the guest.
    #[error("access to {length} bytes at offset {offset:#x} of a mapping of {mapped} bytes")]
    Bounds {
        /// Offset of the access.
        offset: u64,
        /// Its length.
        length: u64,
        /// Length of the mapping.
        mapped: u64,
    },
}

impl Error {
    /// Turns the error of an ioctl into [`Error::Request`].
    fn request(request: &'static str) -> impl Fn(vmm_sys_util::errno::Error) -> Self {
        move |e| Self::Request {
            request,
            source: e.into(),
        }
    }
}
