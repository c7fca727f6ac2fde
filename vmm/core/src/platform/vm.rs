//! The KVM device and a VM with its memory slots.

use super::{Error, Mapping};
use kvm_bindings::{
    CpuId, KVM_CAP_PRE_FAULT_MEMORY, KVM_MAX_CPUID_ENTRIES, KVM_MEM_READONLY,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{Cap, VmFd};
use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The interface version of every Linux since 2.6.22.
const API_VERSION: i32 = 12;

/// The open KVM device.
#[derive(Debug)]
pub struct Kvm {
    pub(super) system: kvm_ioctls::Kvm,
    /// What the processors of guests can have, once a vCPU needs it.
    supported_cpuid: OnceLock<CpuId>,
}

impl Kvm {
    /// Path of the device in Linux.
    pub const DEVICE: &str = "/dev/kvm";

    /// Opens the device and checks that it is KVM.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::NoPermission`], [`Error::Open`] or [`Error::NotKvm`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let open = |source: io::Error| match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                Error::NoDevice { path: path.into() }
            }
            Some(libc::EACCES | libc::EPERM) => Error::NoPermission { path: path.into() },
            _ => Error::Open {
                path: path.into(),
                source,
            },
        };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| open(io::Error::from_raw_os_error(libc::EINVAL)))?;
        let system = kvm_ioctls::Kvm::new_with_path(&name).map_err(|e| open(e.into()))?;
        Self::check(system, path)
    }

    /// Takes an open device, and checks that it is KVM.
    ///
    /// # Errors
    /// [`Error::NotKvm`].
    pub fn from_descriptor(device: OwnedFd) -> Result<Self, Error> {
        // SAFETY: `into_raw_fd` gives up the ownership of an open descriptor, which the result takes.
        let system = unsafe { kvm_ioctls::Kvm::from_raw_fd(device.into_raw_fd()) };
        Self::check(system, Path::new(Self::DEVICE))
    }

    fn check(system: kvm_ioctls::Kvm, path: &Path) -> Result<Self, Error> {
        match system.get_api_version() {
            API_VERSION => Ok(Self {
                system,
                supported_cpuid: OnceLock::new(),
            }),
            version => Err(Error::NotKvm {
                path: path.into(),
                version,
            }),
        }
    }

    /// The underlying handle, for capability queries.
    #[must_use]
    pub fn system(&self) -> &kvm_ioctls::Kvm {
        &self.system
    }

    /// The features that KVM supports in guests. The first call asks KVM, which takes 0.4 ms where the
    /// host is a VM itself.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub(super) fn supported_cpuid(&self) -> Result<&CpuId, Error> {
        if let Some(known) = self.supported_cpuid.get() {
            return Ok(known);
        }
        let found = self.system.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES);
        let found = found.map_err(Error::request("KVM_GET_SUPPORTED_CPUID"))?;
        Ok(self.supported_cpuid.get_or_init(|| found))
    }

    /// Refuses more vCPUs than a VM can have on this host.
    ///
    /// # Errors
    /// [`Error::Cpus`].
    pub fn check_cpus(&self, cpus: u32) -> Result<(), Error> {
        let most = self.system.get_max_vcpus();
        match usize::try_from(cpus).is_ok_and(|cpus| cpus <= most) {
            true => Ok(()),
            false => Err(Error::Cpus { cpus, most }),
        }
    }

    /// Creates a VM without memory.
    ///
    /// # Errors
    /// [`Error::Request`], also for a capability that every supported kernel has.
    pub fn create_vm(&self) -> Result<Vm, Error> {
        let fd = loop {
            match self.system.create_vm() {
                // A signal can interrupt the kernel's registration with the address space.
                Err(error) if error.errno() == libc::EINTR => {}
                other => break other.map_err(Error::request("KVM_CREATE_VM"))?,
            }
        };
        for (capability, request) in [
            (
                Cap::ReadonlyMem,
                "read-only memory slots are not supported by this kernel",
            ),
            (
                Cap::ImmediateExit,
                "immediate exits are not supported by this kernel",
            ),
        ] {
            if !fd.check_extension(capability) {
                let source = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
                return Err(Error::Request { request, source });
            }
        }
        let vm = Vm {
            fd,
            slots: Vec::new(),
            has_apics: false,
        };
        vm.deny_msrs()?;
        vm.disable_pmu()?;
        Ok(vm)
    }
}

/// The guest's access rights to a memory slot, regardless of its page tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read, write, execute.
    ReadWrite,
    /// Read and execute; a write exits to the VMM.
    ReadOnly,
}

/// A VM. Keeps the memory of its slots alive.
#[derive(Debug)]
pub struct Vm {
    pub(super) fd: VmFd,
    slots: Vec<(u64, Arc<Mapping>)>,
    /// Whether the VM has local APICs in the kernel.
    pub(super) has_apics: bool,
}

impl Vm {
    /// Number of memory slots.
    #[cfg(test)]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether the processor walks the guest's page tables itself (EPT, NPT). Otherwise KVM has shadows of
    /// them. Also `false` before Linux 6.10, which does not tell.
    #[must_use]
    pub fn has_nested_paging(&self) -> bool {
        self.fd.check_extension_raw(KVM_CAP_PRE_FAULT_MEMORY.into()) > 0
    }

    /// Makes KVM forget what it knows of the guest's page tables in the slot at `gpa`, and of the pages
    /// there: the slot is removed and added again. No vCPU runs.
    ///
    /// # Errors
    /// [`Error::Request`]: KVM refuses, or there is no such slot.
    pub fn renew_slot(&self, gpa: u64) -> Result<(), Error> {
        let request = "KVM_SET_USER_MEMORY_REGION";
        let at = self.slots.iter().position(|(start, _)| *start == gpa);
        let found = at.and_then(|at| Some((u32::try_from(at).ok()?, &self.slots[at].1)));
        let (slot, memory) = found.ok_or_else(|| Error::Request {
            request,
            source: io::Error::from_raw_os_error(libc::ENOENT),
        })?;
        let region = |memory_size| kvm_userspace_memory_region {
            slot,
            flags: if memory.writable() {
                0
            } else {
                KVM_MEM_READONLY
            },
            guest_phys_addr: gpa,
            memory_size,
            userspace_addr: memory.base().as_ptr().expose_provenance() as u64,
        };
        for size in [0, memory.length()] {
            // SAFETY: as in `add_slot`; without memory, the slot is removed.
            let set = unsafe { self.fd.set_user_memory_region(region(size)) };
            set.map_err(Error::request(request))?;
        }
        Ok(())
    }

    /// Makes `memory` the guest-physical memory from `gpa`.
    ///
    /// # Errors
    /// [`Error::Request`] if KVM refuses: misaligned, overlapping, too many slots.
    pub fn add_slot(
        &mut self,
        gpa: u64,
        memory: Arc<Mapping>,
        access: Access,
    ) -> Result<(), Error> {
        let read_only = access == Access::ReadOnly || !memory.writable();
        let request = "KVM_SET_USER_MEMORY_REGION";
        let slot = u32::try_from(self.slots.len()).map_err(|_| Error::Request {
            request,
            source: io::Error::from_raw_os_error(libc::E2BIG),
        })?;
        let region = kvm_userspace_memory_region {
            slot,
            flags: if read_only { KVM_MEM_READONLY } else { 0 },
            guest_phys_addr: gpa,
            memory_size: memory.length(),
            userspace_addr: memory.base().as_ptr().expose_provenance() as u64,
        };
        // SAFETY: the mapping covers the whole region, and `slots` keeps it mapped at least as long as
        // the VM's descriptor. No reference to its bytes exists, so the guest may change them.
        unsafe { self.fd.set_user_memory_region(region) }.map_err(Error::request(request))?;
        self.slots.push((gpa, memory));
        Ok(())
    }
}
