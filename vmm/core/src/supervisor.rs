//! The supervisor slot: GDT, IDT, TSS and the CPL 0 stubs. It belongs to the VMM and is read-only
//! for the guest, regardless of the guest's page tables.
//!
//! ```text
//! SUPERVISOR_BASE + 0x0000  GDT (accessed bits set, so the processor never writes it)
//!                 + 0x1000  IDT
//!                 + 0x2000  stubs
//!                 + 0x3000  entry points of devices' interrupts
//!                 + 0x4000  TSS with the I/O bitmap, for each vCPU
//!                 + 0x10000 CPL 0 stack for each vCPU: one page of RAM, not of the slot,
//!                           that CPL 3 may read; both neighbours are unmapped
//! ```
//!
//! An exception at CPL 3 enters a stub, which completes an [`hartline_abi::hart::ExceptionFrame`]
//! on the CPL 0 stack and continues at CPL 3 at [`hartline_abi::hart::Hart::exception_entry`].
//! Unassigned vectors (NMI, double fault, machine check, vectors without a device) are marked
//! not-present: they raise #NP, whose stub reports them to the VMM. A guest that breaks the stubs'
//! path, for instance by a wild GS base, faults until the CPL 0 stack is used up, and ends in a
//! triple fault.
//!
//! The entry point of a device's interrupt does what the VMM does to harts in safepoint mode
//! ([`crate::kick`]). It has a separate stack, because the frame of an exception may be in
//! use.

use crate::idt;
use hartline_abi::boot::Shared;
use hartline_abi::hart::{ExceptionFrame, offset};
use hartline_abi::interrupt::{self, Gate, MAX_DEVICES, STUB_STRIDE, TABLE_LENGTH};
use hartline_abi::layout::{
    CPL0_STRIDE, INTERRUPT_STUBS, KERNEL_CS, KERNEL_SS, PAGE_SIZE, SHARED_BASE, SUPERVISOR_BASE,
    SUPERVISOR_GPA, USER_CS, USER_SS,
};
use hartline_abi::limits::MAX_CPUS;
use hartline_abi::port;
use std::mem::{offset_of, size_of};

/// Length of the slot, bytes.
pub const SLOT_LENGTH: u64 = LENGTH as u64;
/// Offset of the interrupt descriptor table.
pub const IDT: u64 = TABLE as u64;

const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == PAGE_SIZE);
// Offsets in the slot, and its length.
const GDT: usize = 0;
const TABLE: usize = PAGE;
const STUBS: usize = 2 * PAGE;
const INTERRUPTS: usize = 3 * PAGE;
const TSS: usize = 4 * PAGE;
const LENGTH: usize = TSS + MAX_CPUS * TSS_STRIDE;
/// Distance between the entry points of devices.
const STRIDE: usize = PAGE / MAX_DEVICES as usize;
/// Distance between the TSSs of vCPUs; no TSS crosses a page.
const TSS_STRIDE: usize = 512;
const _: () = assert!(SUPERVISOR_BASE + INTERRUPTS as u64 == INTERRUPT_STUBS);
const _: () = assert!(STRIDE as u64 == STUB_STRIDE);

/// Address of the CPL 0 stack page of vCPU 0; the pages of the others follow at a distance of
/// [`CPL0_STRIDE`].
pub const STACK_PAGE: u64 = SUPERVISOR_BASE + 0x1_0000;
/// Address of the exception frame that stubs fill on vCPU 0: the top of that page.
pub const EXCEPTION_FRAME: u64 = STACK_PAGE + PAGE_SIZE - size_of::<ExceptionFrame>() as u64;

/// Selector of the TSS.
const TSS_SELECTOR: u16 = 0x40;
/// Entries of the GDT, 8 bytes each; the TSS descriptor takes two.
const GDT_ENTRIES: u16 = 10;
/// Length of the interrupt descriptor table.
const IDT_LENGTH: u16 = 4096;
const _: () = assert!(IDT_LENGTH as usize == TABLE_LENGTH);
/// Vectors of exceptions.
const EXCEPTION_VECTORS: usize = 32;
/// Length of a 64-bit TSS before its I/O bitmap.
const TSS_LENGTH: u16 = 104;
/// Bytes of I/O bitmap up to [`port::LAST`], and the byte of ones that ends it.
const IO_BITMAP_LENGTH: u16 = port::LAST / 8 + 2;

/// RFLAGS of the exception handler: interrupts are enabled, because CPL 3 cannot enable them.
const HANDLER_FLAGS: u32 = 0x202;
/// x2APIC MSR that ends an interrupt (Intel SDM volume 3, table 10-6).
const MSR_X2APIC_EOI: u32 = 0x80b;
/// #NP.
const NOT_PRESENT: u8 = 11;

/// Vector of the gate that loads a page table (`int3`).
const PAGE_TABLE_VECTOR: u8 = 3;
/// Vectors of exceptions that code at CPL 3 can cause, and whether the processor
/// pushes an error code (Intel SDM volume 3, table 6-1).
const EXCEPTIONS: [(u8, bool); 13] = [
    (0, false),  // #DE
    (1, false),  // #DB
    (5, false),  // #BR
    (6, false),  // #UD
    (7, false),  // #NM
    (10, true),  // #TS
    (11, true),  // #NP
    (12, true),  // #SS
    (13, true),  // #GP
    (14, true),  // #PF
    (16, false), // #MF
    (17, true),  // #AC
    (19, false), // #XM
];

/// GDT: address and limit.
#[must_use]
pub fn gdt() -> (u64, u16) {
    (SUPERVISOR_BASE + GDT as u64, GDT_ENTRIES * 8 - 1)
}

/// IDT: address and limit.
#[must_use]
pub fn idt() -> (u64, u16) {
    (SUPERVISOR_BASE + IDT, IDT_LENGTH - 1)
}

/// TSS of vCPU `cpu`, less than [`MAX_CPUS`]: selector, address and limit.
#[must_use]
pub fn tss(cpu: u64) -> (u16, u64, u32) {
    (
        TSS_SELECTOR,
        SUPERVISOR_BASE + TSS as u64 + cpu * TSS_STRIDE as u64,
        u32::from(TSS_LENGTH + IO_BITMAP_LENGTH - 1),
    )
}

/// The contents of the slot, [`SLOT_LENGTH`] bytes.
#[must_use]
pub fn slot() -> Vec<u8> {
    let (stubs, entries) = assemble_stubs();
    let mut slot = vec![0; LENGTH];
    let mut put = |at: usize, bytes: &[u8]| {
        slot[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(GDT, &build_gdt());
    put(TABLE, &build_idt(&entries));
    put(STUBS, &stubs);
    for device in 0..MAX_DEVICES {
        let at = INTERRUPTS + usize::from(device) * STRIDE;
        put(at, &interrupt_stub(device));
    }
    for (cpu, number) in (0..MAX_CPUS).zip(0..) {
        put(TSS + cpu * TSS_STRIDE, &build_tss(number));
    }
    slot
}

fn build_gdt() -> Vec<u8> {
    // Intel SDM volume 3, 3.4.5: present, DPL, S, type with the accessed bit; L for code.
    const CODE: u64 = 0x00af_9b00_0000_ffff;
    const DATA: u64 = 0x00cf_9300_0000_ffff;
    const DPL3: u64 = 3 << 45;
    let mut entries = [0u64; GDT_ENTRIES as usize];
    entries[usize::from(KERNEL_CS / 8)] = CODE;
    entries[usize::from(KERNEL_SS / 8)] = DATA;
    entries[usize::from(USER_SS / 8)] = DATA | DPL3;
    entries[usize::from(USER_CS / 8)] = CODE | DPL3;
    let (selector, base, limit) = tss(0);
    // A busy 64-bit TSS: the VMM loads the task register of each vCPU with its own TSS.
    let low = u64::from(limit) | (base & 0xff_ffff) << 16 | 0x8b << 40 | (base >> 24 & 0xff) << 56;
    entries[usize::from(selector / 8)] = low;
    entries[usize::from(selector / 8) + 1] = base >> 32;
    entries.iter().flat_map(|e| e.to_le_bytes()).collect()
}

/// `entries[vector]` is the address of the stub of an exception.
fn build_idt(entries: &[Option<u64>; EXCEPTION_VECTORS]) -> Vec<u8> {
    let gate = |(vector, entry): (u8, &Option<u64>)| {
        let privilege = if vector == PAGE_TABLE_VECTOR { 3 } else { 0 };
        Some((vector, Gate::interrupt((*entry)?, privilege, 0)))
    };
    let gates: Vec<_> = (0..).zip(entries).filter_map(gate).collect();
    idt::encode(&gates)
}

fn build_tss(cpu: u64) -> Vec<u8> {
    let mut tss = vec![0; TSS_LENGTH.into()];
    // RSP0, and the offset of the I/O bitmap (Intel SDM volume 3, figure 8-11).
    let stack = STACK_PAGE + cpu * CPL0_STRIDE + PAGE_SIZE;
    tss[4..12].copy_from_slice(&stack.to_le_bytes());
    // The first entry of the interrupt stack table: the lower half of the page.
    const { assert!(interrupt::STACK == 1) };
    tss[36..44].copy_from_slice(&(stack - PAGE_SIZE / 2).to_le_bytes());
    tss[102..104].copy_from_slice(&TSS_LENGTH.to_le_bytes());
    let mut bitmap = [0xff; IO_BITMAP_LENGTH as usize];
    for allowed in port::FIRST..=port::LAST {
        bitmap[usize::from(allowed / 8)] &= !(1 << (allowed % 8));
    }
    tss.extend_from_slice(&bitmap);
    tss
}

/// Machine code, and the address of each vector's stub.
fn assemble_stubs() -> (Vec<u8>, [Option<u64>; EXCEPTION_VECTORS]) {
    let mut code = page_table_stub();
    let mut entries = [None; EXCEPTION_VECTORS];
    let stubs = SUPERVISOR_BASE + STUBS as u64;
    entries[usize::from(PAGE_TABLE_VECTOR)] = Some(stubs);
    let common = code.len();
    code.extend(common_tail());
    for (vector, has_error_code) in EXCEPTIONS {
        entries[usize::from(vector)] = Some(stubs + code.len() as u64);
        if vector == NOT_PRESENT {
            code.extend(nobody_stub());
        }
        if !has_error_code {
            code.extend([0x6a, 0x00]); // push 0
        }
        code.extend([0x6a, vector]); // push vector
        code.push(0xe9); // jmp common
        let distance = code.len() + 4 - common;
        let distance = i32::try_from(distance).expect("the stubs fit in a page");
        code.extend((-distance).to_le_bytes());
    }
    (code, entries)
}

/// The stub of `int3`: loads the top-level page table at the guest-physical address in rax, which
/// also flushes the TLB, and returns.
fn page_table_stub() -> Vec<u8> {
    vec![
        0x0f, 0x22, 0xd8, // mov cr3, rax
        0x48, 0xcf, // iretq
    ]
}

/// The beginning of the stub of #NP: if a gate caused it, the stub reports it to the VMM.
fn nobody_stub() -> Vec<u8> {
    let mut code = vec![
        0xf6, 0x04, 0x24, 0x02, // test byte ptr [rsp], 2: the error code's IDT bit
        0x74, 0x0b, // jz past the stub
        0x8b, 0x04, 0x24, // mov eax, [rsp]
        0xba, // mov edx, port
    ];
    code.extend(u32::from(port::NOBODY).to_le_bytes());
    code.extend([
        0xef, // out dx, eax
        0xeb, 0xfd, // jmp to the out: the VMM does not come back
    ]);
    code
}

/// The entry point of a device's interrupt. Each instruction costs 0.65 µs on paravirtual KVM.
fn interrupt_stub(device: u8) -> Vec<u8> {
    let word = SHARED_BASE + offset_of!(Shared, interrupts) as u64;
    let gs = |opcode: &[u8], displacement: u32| [opcode, &displacement.to_le_bytes()].concat();
    let mut code = vec![0x50, 0x48, 0xb8]; // push rax; mov rax, the word
    code.extend(word.to_le_bytes());
    code.extend([0xf0, 0x0f, 0xba, 0x28, device]); // lock bts dword ptr [rax], device
    // lock or qword ptr gs:[pending], bit
    code.extend(gs(
        &[0xf0, 0x65, 0x48, 0x83, 0x0c, 0x25],
        const { low(offset::PENDING) },
    ));
    const { assert!(interrupt::PENDING < 1 << 7) };
    code.extend(&interrupt::PENDING.to_le_bytes()[..1]);
    // mov qword ptr gs:[poll_limit], -1
    code.extend(gs(
        &[0x65, 0x48, 0xc7, 0x04, 0x25],
        const { low(offset::POLL_LIMIT) },
    ));
    code.extend(u32::MAX.to_le_bytes());
    // inc qword ptr gs:[interrupts]
    code.extend(gs(
        &[0x65, 0x48, 0xff, 0x04, 0x25],
        const { low(offset::INTERRUPTS) },
    ));
    code.extend([0x51, 0x52]); // push rcx; push rdx
    code.push(0xb9); // mov ecx, the EOI register
    code.extend(MSR_X2APIC_EOI.to_le_bytes());
    code.extend([
        0x31, 0xc0, // xor eax, eax
        0x31, 0xd2, // xor edx, edx
        0x0f, 0x30, // wrmsr
        0x5a, 0x59, 0x58, // pop rdx; pop rcx; pop rax
        0x48, 0xcf, // iretq
    ]);
    code
}

/// The name of the part at a guest-physical address, if the address is in the slot.
#[must_use]
pub fn part_at(gpa: u64) -> Option<&'static str> {
    let offset = gpa.checked_sub(SUPERVISOR_GPA)?;
    match usize::try_from(offset).ok()? {
        LENGTH.. => None,
        TSS.. => Some("a task state segment"),
        STUBS.. => Some("the CPL 0 stubs"),
        TABLE.. => Some("the interrupt descriptor table"),
        GDT.. => Some("the global descriptor table"),
    }
}

/// Completes the exception frame and enters the runtime's handler.
fn common_tail() -> Vec<u8> {
    let mut code = vec![
        0x50, // push rax
        0x0f,
        0x20,
        0xd0, // mov rax, cr2
        0x50, // push rax
        0x6a,
        const { byte(USER_SS) }, // push USER_SS
    ];
    code.extend(push_gs(const { low(offset::EXCEPTION_STACK) }));
    code.push(0x68); // push flags
    code.extend(HANDLER_FLAGS.to_le_bytes());
    code.extend([0x6a, const { byte(USER_CS) }]); // push USER_CS
    code.extend(push_gs(const { low(offset::EXCEPTION_ENTRY) }));
    code.extend([0x48, 0xcf]); // iretq
    code
}

/// `push qword gs:[displacement]`
fn push_gs(displacement: u32) -> Vec<u8> {
    let mut code = vec![0x65, 0xff, 0x34, 0x25];
    code.extend(displacement.to_le_bytes());
    code
}

/// An offset as a displacement. An offset of more than 32 bits is an error of the compiler.
const fn low(offset: u64) -> u32 {
    match offset.to_le_bytes() {
        [a, b, c, d, 0, 0, 0, 0] => u32::from_le_bytes([a, b, c, d]),
        _ => panic!("the offset has more than 32 bits"),
    }
}

/// A selector as an operand of one byte. A larger selector is an error of the compiler.
const fn byte(selector: u16) -> u8 {
    match selector.to_le_bytes() {
        [byte, 0] => byte,
        _ => panic!("the selector has more than 8 bits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_fits_and_only_our_ports_are_open() {
        assert_eq!(slot().len(), LENGTH);
        let (stubs, _) = assemble_stubs();
        assert!(stubs.len() <= PAGE);
        assert!(interrupt_stub(MAX_DEVICES - 1).len() <= STRIDE);
        let tss = build_tss(1);
        assert!(tss.len() <= TSS_STRIDE);
        const { assert!(SUPERVISOR_BASE + SLOT_LENGTH < STACK_PAGE) };
        let open = |p: u16| tss[usize::from(TSS_LENGTH + p / 8)] & 1 << (p % 8) == 0;
        for p in 0..=port::LAST {
            assert_eq!(
                open(p),
                (port::FIRST..=port::LAST).contains(&p),
                "port {p:#x}"
            );
        }
        assert_eq!(tss.last(), Some(&0xff));
    }

    #[test]
    fn gates_point_at_stubs() {
        let (stubs, entries) = assemble_stubs();
        let idt = build_idt(&entries);
        assert_eq!(idt.len(), TABLE_LENGTH);
        for vector in 0..interrupt::VECTORS {
            let gate = &idt[vector * 16..][..16];
            let served = vector == usize::from(PAGE_TABLE_VECTOR)
                || EXCEPTIONS.iter().any(|&(v, _)| usize::from(v) == vector);
            assert_eq!(gate[5] & 0x80 != 0, served, "vector {vector}");
            if !served {
                assert_eq!(gate[5], 0x0e, "#NP, not #GP");
                continue;
            }
            let low = u64::from(u16::from_le_bytes([gate[0], gate[1]]));
            let middle = u64::from(u16::from_le_bytes([gate[6], gate[7]]));
            let high = u64::from(u32::from_le_bytes([gate[8], gate[9], gate[10], gate[11]]));
            let target = low | middle << 16 | high << 32;
            let start = SUPERVISOR_BASE + STUBS as u64;
            assert!((start..start + stubs.len() as u64).contains(&target));
            assert_eq!(
                gate[5] >> 5 & 3,
                if vector == usize::from(PAGE_TABLE_VECTOR) {
                    3
                } else {
                    0
                }
            );
        }
    }

    #[test]
    fn descriptors_are_accessed_and_have_their_privilege() {
        let gdt = build_gdt();
        for (selector, dpl) in [(KERNEL_CS, 0), (KERNEL_SS, 0), (USER_CS, 3), (USER_SS, 3)] {
            let access = gdt[usize::from(selector & !7) + 5];
            assert_eq!(access & 1, 1, "accessed");
            assert_eq!(access >> 5 & 3, dpl);
            assert_eq!(selector & 3, u16::from(dpl), "requested privilege level");
        }
    }
}
