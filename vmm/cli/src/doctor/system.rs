//! Information of the host's kernel in `/sys` and `/proc`.

use serde::Serialize;
use std::arch::x86_64::__cpuid;
use std::fs;

/// The host's settings for memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Transparent huge pages: `always`, `madvise` or `never`; empty if the kernel has none.
    pub transparent_huge_pages: String,
    /// When the kernel compacts memory for huge pages: `always`, `defer`, `defer+madvise`,
    /// `madvise` or `never`.
    pub defragmentation: String,
    /// Number of reserved 2 MiB pages. Hartline uses transparent ones.
    pub hugetlb_pages: u64,
    /// Number of free reserved pages.
    pub hugetlb_free: u64,
    /// `vm.overcommit_memory`.
    pub overcommit: u64,
}

impl Memory {
    /// Settings of this host.
    #[must_use]
    pub fn detect() -> Self {
        let huge = |name: &str| {
            let path = format!("/sys/kernel/mm/transparent_hugepage/{name}");
            selected(&fs::read_to_string(path).unwrap_or_default()).to_owned()
        };
        let reserved =
            |name: &str| number(&format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"));
        Self {
            transparent_huge_pages: huge("enabled"),
            defragmentation: huge("defrag"),
            hugetlb_pages: reserved("nr_hugepages"),
            hugetlb_free: reserved("free_hugepages"),
            overcommit: number("/proc/sys/vm/overcommit_memory"),
        }
    }
}

/// The word in brackets: `always [madvise] never`.
fn selected(text: &str) -> &str {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or("", |(word, _)| word)
}

/// A file with one number; 0 if there is no such file.
fn number(path: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Signatures of common hypervisors in CPUID leaf 0x4000_0000.
const HYPERVISORS: [(&str, &str); 6] = [
    ("KVMKVMKVM", "KVM"),
    ("Microsoft Hv", "Hyper-V"),
    ("VMwareVMware", "VMware"),
    ("XenVMMXenVMM", "Xen"),
    ("TCGTCGTCGTCG", "QEMU's TCG"),
    ("bhyve bhyve", "bhyve"),
];

/// Name of the hypervisor that this host runs under; `None` on bare metal.
#[must_use]
pub fn hypervisor() -> Option<String> {
    const PRESENT: u32 = 1 << 31;
    if __cpuid(1).ecx & PRESENT == 0 {
        return None;
    }
    let leaf = __cpuid(0x4000_0000);
    let words = [leaf.ebx, leaf.ecx, leaf.edx];
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    let signature = String::from_utf8_lossy(&bytes);
    let signature = signature.trim_matches(|c: char| !c.is_ascii_graphic());
    let known = HYPERVISORS.iter().find(|(name, _)| *name == signature);
    Some(known.map_or_else(
        || format!("hypervisor {}", signature.escape_debug()),
        |(_, name)| (*name).to_owned(),
    ))
}

/// Whether the processor has virtualization that KVM can use, by CPUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessorSupport {
    /// VT-x.
    Vmx,
    /// SVM.
    Svm,
    /// Neither, or hidden by firmware or the hypervisor above.
    None,
}

impl ProcessorSupport {
    /// Support of this processor.
    #[must_use]
    pub fn detect() -> Self {
        if __cpuid(1).ecx & 1 << 5 != 0 {
            Self::Vmx
        } else if __cpuid(0x8000_0000).eax >= 0x8000_0001 && __cpuid(0x8000_0001).ecx & 1 << 2 != 0
        {
            Self::Svm
        } else {
            Self::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed() {
        assert_eq!(selected("always [madvise] never\n"), "madvise");
        assert_eq!(selected("nothing"), "");
    }
}
