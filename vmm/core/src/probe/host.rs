//! The kind of the host.

use rustix::system::uname;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::fmt;
use std::path::Path;

/// Implementation of KVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvmKind {
    /// VT-x: module kvm_intel.
    Intel,
    /// SVM: module kvm_amd.
    Amd,
    /// Paravirtual, with shadow paging and without processor support: module kvm_pvm.
    Pvm,
    /// None of these modules is loaded.
    Unknown,
}

impl KvmKind {
    /// The kind of the loaded module.
    #[must_use]
    pub fn detect() -> Self {
        let kinds = [Self::Intel, Self::Amd, Self::Pvm];
        let loaded = |kind: &Self| Path::new("/sys/module").join(kind.module()).exists();
        kinds.into_iter().find(loaded).unwrap_or(Self::Unknown)
    }

    /// Name of the kernel module.
    #[must_use]
    pub const fn module(self) -> &'static str {
        match self {
            Self::Intel => "kvm_intel",
            Self::Amd => "kvm_amd",
            Self::Pvm => "kvm_pvm",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for KvmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.module())
    }
}

/// Processor, kernel and KVM, on which the probe's result depends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Brand string of the processor.
    pub processor: String,
    /// `uname -r`.
    pub kernel: String,
    /// Kind of KVM.
    pub kvm: KvmKind,
    /// Feature words of CPUID leaves 1, 7 and 0x8000_0001, and the signature.
    cpuid: Vec<u32>,
}

impl Host {
    /// This host.
    #[must_use]
    pub fn detect() -> Self {
        let (one, extended) = (__cpuid(1), __cpuid(0x8000_0001));
        let mut cpuid = vec![one.eax, one.ecx, one.edx, extended.ecx, extended.edx];
        if __cpuid(0).eax >= 7 {
            let seven = __cpuid_count(7, 0);
            cpuid.extend([seven.ebx, seven.ecx, seven.edx]);
        }
        Self {
            processor: brand(),
            kernel: kernel_release(),
            kvm: KvmKind::detect(),
            cpuid,
        }
    }

    /// A key that is equal for hosts with the same result of the probe.
    #[must_use]
    pub fn key(&self) -> String {
        let cpuid = self.cpuid.iter().map(|word| format!("{word:08x}"));
        let cpuid = cpuid.collect::<Vec<_>>().join(".");
        format!("{} {} {} {cpuid}", self.kvm, self.kernel, self.processor)
    }
}

fn brand() -> String {
    if __cpuid(0x8000_0000).eax < 0x8000_0004 {
        return "unknown x86-64 processor".to_owned();
    }
    let words = (0x8000_0002..=0x8000_0004).map(__cpuid);
    let bytes: Vec<u8> = words
        .flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx])
        .flat_map(u32::to_le_bytes)
        .take_while(|&byte| byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

fn kernel_release() -> String {
    uname().release().to_string_lossy().into_owned()
}
