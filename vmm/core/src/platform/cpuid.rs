//! The guest's `cpuid`: of the bits that KVM offers, those in the lists here and no others.
//!
//! KVM gives a guest the registers, MSRs and instructions that its CPUID announces. So a bit that
//! is missing here is code of KVM that no guest reaches: nested virtualisation (VMX, SVM), the PMU,
//! MPX, SGX, Processor Trace, protection keys, the paravirtual interfaces. The guest itself does
//! not read CPUID: translated code uses the features that the [probe](crate::probe) found.
//!
//! Names of bits are from the Intel SDM volume 2, `CPUID`, and the AMD APM volume 3, appendix E.

use super::Error;
use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};
use std::io;

/// XCR0 components that the guest may use if the processor has them: x87, SSE, AVX, and the three
/// of AVX-512.
pub(super) const XCR0_WANTED: u64 = XCR0_LOW as u64;
/// The low half of [`XCR0_WANTED`]; the high one is 0.
const XCR0_LOW: u32 = 0b1110_0111;

/// The last leaf of the basic and of the extended range.
const LAST_BASIC: u32 = 0xd;
const LAST_EXTENDED: u32 = 0x8000_0008;
/// Leaf with the components of the XSAVE area, and the offset of the first of them, bytes.
const XSAVE_LEAF: u32 = 0xd;
const XSAVE_LEGACY: u32 = 576;

/// Bits with these numbers.
const fn bits(numbers: &[u32]) -> u32 {
    let mut mask = 0;
    let mut at = 0;
    while at < numbers.len() {
        mask |= 1 << numbers[at];
        at += 1;
    }
    mask
}

/// Leaf 1, ECX: SSE3, PCLMULQDQ, SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, x2APIC, MOVBE, POPCNT,
/// XSAVE, AVX, F16C.
const LEAF_1_ECX: u32 = bits(&[0, 1, 9, 12, 13, 19, 20, 21, 22, 23, 26, 28, 29]);
/// Leaf 1, EDX, with the bits that AMD repeats in leaf 0x8000_0001: FPU, PSE, TSC, MSR, PAE, CX8,
/// APIC, CMOV, MMX, FXSR; only in leaf 1: CLFSH, SSE, SSE2.
const REPEATED_EDX: u32 = bits(&[0, 3, 4, 5, 6, 8, 9, 15, 23, 24]);
const LEAF_1_EDX: u32 = REPEATED_EDX | bits(&[19, 25, 26]);
/// Leaf 1, EBX: the length of a cache line for CLFLUSH.
const LEAF_1_EBX: u32 = 0xff00;
/// Leaf 7, EBX: FSGSBASE, BMI1, AVX2, BMI2, ERMS, AVX512F, AVX512DQ, ADX, AVX512CD, AVX512BW,
/// AVX512VL.
const LEAF_7_EBX: u32 = bits(&[0, 3, 5, 8, 9, 16, 17, 19, 28, 30, 31]);
/// Leaf 0x8000_0001, ECX: LAHF, LZCNT.
const LEAF_8000_0001_ECX: u32 = bits(&[0, 5]);
/// Leaf 0x8000_0001, EDX: SYSCALL, NX, long mode.
const LEAF_8000_0001_EDX: u32 = REPEATED_EDX | bits(&[11, 20, 29]);
/// Leaf 0x8000_0008, EAX: bits of physical and of linear addresses.
const LEAF_8000_0008_EAX: u32 = 0xffff;

/// The visible part of a leaf: masks of EAX, EBX, ECX and EDX. `None`: nothing.
const fn mask(function: u32, index: u32) -> Option<[u32; 4]> {
    Some(match (function, index) {
        // Vendor, by which KVM itself makes decisions.
        (0 | 0x8000_0000, _) => [u32::MAX; 4],
        (1, _) => [u32::MAX, LEAF_1_EBX, LEAF_1_ECX, LEAF_1_EDX],
        (7, 0) => [0, LEAF_7_EBX, 0, 0],
        (XSAVE_LEAF, 0) => [XCR0_LOW, u32::MAX, u32::MAX, 0],
        // Length and offset of a component.
        (XSAVE_LEAF, 2..32) if XCR0_WANTED & 1 << index != 0 => [u32::MAX, u32::MAX, 0, 0],
        (0x8000_0001, _) => [0, 0, LEAF_8000_0001_ECX, LEAF_8000_0001_EDX],
        (0x8000_0008, _) => [LEAF_8000_0008_EAX, 0, 0, 0],
        _ => return None,
    })
}

/// The CPUID of vCPU `id`, if KVM offers `supported`. Each vCPU is a package of one core with one
/// thread, regardless of the number of vCPUs.
///
/// # Errors
/// [`Error::Request`] if there are too many leaves, or no APIC has that number.
pub(super) fn allowed(supported: &CpuId, id: u64) -> Result<CpuId, Error> {
    let error = |code| Error::Request {
        request: "KVM_SET_CPUID2",
        source: io::Error::from_raw_os_error(code),
    };
    let apic_id = u8::try_from(id).map_err(|_| error(libc::EINVAL))?;
    let mut entries: Vec<_> = supported.as_slice().iter().filter_map(masked).collect();
    // The XSAVE area ends where the last of its components does.
    let components = entries.iter();
    let components = components.filter(|e| e.function == XSAVE_LEAF && e.index >= 2);
    let end = components.map(|e| e.ebx.saturating_add(e.eax)).max();
    let end = end.unwrap_or(XSAVE_LEGACY).max(XSAVE_LEGACY);
    for entry in &mut entries {
        match (entry.function, entry.index) {
            (0, _) => entry.eax = entry.eax.min(LAST_BASIC),
            (0x8000_0000, _) => entry.eax = entry.eax.min(LAST_EXTENDED),
            // One logical processor.
            (1, _) => entry.ebx |= 1 << 16 | u32::from(apic_id) << 24,
            (XSAVE_LEAF, 0) => (entry.ebx, entry.ecx) = (entry.ebx.min(end), end),
            _ => {}
        }
    }
    entries.extend(topology(apic_id));
    CpuId::from_entries(&entries).map_err(|_| error(libc::E2BIG))
}

fn masked(entry: &kvm_cpuid_entry2) -> Option<kvm_cpuid_entry2> {
    let [eax, ebx, ecx, edx] = mask(entry.function, entry.index)?;
    Some(kvm_cpuid_entry2 {
        eax: entry.eax & eax,
        ebx: entry.ebx & ebx,
        ecx: entry.ecx & ecx,
        edx: entry.edx & edx,
        ..*entry
    })
}

/// Leaf 0xb: a level of threads and a level of cores, with one each, and the end.
fn topology(apic_id: u8) -> [kvm_cpuid_entry2; 3] {
    const THREADS: u32 = 1;
    const CORES: u32 = 2;
    let level = |index, count, kind: u32| kvm_cpuid_entry2 {
        function: 0xb,
        index,
        flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        ebx: count,
        ecx: index | kind << 8,
        edx: apic_id.into(),
        ..Default::default()
    };
    [level(0, 1, THREADS), level(1, 1, CORES), level(2, 0, 0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor with every feature: all ones in each possible leaf.
    fn everything() -> CpuId {
        let ranges = [0..0x20, 0x4000_0000..0x4000_0010, 0x8000_0000..0x8000_0026];
        let entry = |function: u32, index: u32| kvm_cpuid_entry2 {
            function,
            index,
            flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
            eax: u32::MAX,
            ebx: u32::MAX,
            ecx: u32::MAX,
            edx: u32::MAX,
            ..Default::default()
        };
        let mut entries: Vec<_> = ranges.into_iter().flatten().map(|f| entry(f, 0)).collect();
        entries.extend((1..64).map(|index| entry(XSAVE_LEAF, index)));
        entries.extend((1..4).map(|index| entry(7, index)));
        CpuId::from_entries(&entries).unwrap()
    }

    fn leaf(cpuid: &CpuId, function: u32, index: u32) -> kvm_cpuid_entry2 {
        let mut entries = cpuid.as_slice().iter();
        let found = entries.find(|e| (e.function, e.index) == (function, index));
        found.copied().unwrap_or_default()
    }

    #[test]
    fn nothing_of_what_no_guest_uses() {
        let cpuid = allowed(&everything(), 3).unwrap();
        let (one, seven, extended) = (
            leaf(&cpuid, 1, 0),
            leaf(&cpuid, 7, 0),
            leaf(&cpuid, 0x8000_0001, 0),
        );
        // VMX, SMX, PDCM, PCID, TSC deadline, hypervisor; SVM, LWP, and AMD's counters.
        assert_eq!(one.ecx & bits(&[5, 6, 15, 17, 24, 31]), 0);
        assert_eq!(extended.ecx & bits(&[2, 15, 23, 24, 28]), 0);
        // SGX, HLE, MPX, RTM, PT; PKU, LA57, WAITPKG, shadow stacks; speculation control.
        assert_eq!(seven.ebx & bits(&[2, 4, 11, 14, 25]), 0);
        assert_eq!((seven.ecx, seven.edx), (0, 0));
        let functions: Vec<_> = cpuid.as_slice().iter().map(|e| e.function).collect();
        for function in [4, 5, 6, 0xa, 0xf, 0x10, 0x12, 0x14, 0x15, 0x19, 0x1d] {
            assert!(!functions.contains(&function), "leaf {function:#x}");
        }
        assert!(
            functions
                .iter()
                .all(|f| !(0x4000_0000..0x4000_0100).contains(f))
        );
        assert!(functions.iter().all(|&f| f <= LAST_EXTENDED));
        assert_eq!(leaf(&cpuid, 0, 0).eax, LAST_BASIC);
        assert_eq!(leaf(&cpuid, 0x8000_0000, 0).eax, LAST_EXTENDED);
        // Supervisor states, protection keys and tiles.
        let index = |e: &&kvm_cpuid_entry2| e.function == XSAVE_LEAF;
        let indices: Vec<_> = cpuid
            .as_slice()
            .iter()
            .filter(index)
            .map(|e| e.index)
            .collect();
        assert_eq!(indices, [0, 2, 5, 6, 7]);
    }

    #[test]
    fn each_processor_is_one() {
        let cpuid = allowed(&everything(), 7).unwrap();
        let ebx = leaf(&cpuid, 1, 0).ebx;
        assert_eq!((ebx >> 24, ebx >> 16 & 0xff), (7, 1));
        assert_eq!(leaf(&cpuid, 1, 0).edx & bits(&[28]), 0, "no threads");
        let levels = [0, 1, 2].map(|index| leaf(&cpuid, 0xb, index));
        assert_eq!(levels.map(|level| level.edx), [7; 3]);
        assert_eq!(levels.map(|level| level.ebx), [1, 1, 0]);
        assert!(allowed(&everything(), 256).is_err());
    }

    #[test]
    fn the_area_has_room_for_what_is_left() {
        let mut entries: Vec<_> = everything().as_slice().to_vec();
        for entry in &mut entries {
            if entry.function == XSAVE_LEAF && entry.index >= 2 {
                // Each component follows the last one.
                (entry.eax, entry.ebx) = (64, XSAVE_LEGACY + 64 * entry.index);
            }
        }
        let cpuid = allowed(&CpuId::from_entries(&entries).unwrap(), 0).unwrap();
        assert_eq!(leaf(&cpuid, XSAVE_LEAF, 0).ecx, XSAVE_LEGACY + 64 * 8);
    }
}
