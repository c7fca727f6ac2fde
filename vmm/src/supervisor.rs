//! The supervisor slot: GDT, IDT, TSS and the CPL 0 stubs. It belongs to the VMM
//! and is read-only for the guest whatever its page tables say.
//!
//! ```text
//! SUPERVISOR_BASE + 0x0000  GDT (accessed bits set, so the processor never writes it)
//!                 + 0x1000  IDT
//!                 + 0x2000  stubs
//!                 + 0x3000  TSS with the I/O bitmap, for each vCPU
//!                 + 0x10000 CPL 0 stack for each vCPU: one page of RAM, not of the slot,
//!                           that CPL 3 may read; both neighbours are unmapped
//! ```
//!
//! An exception at CPL 3 enters a stub, which completes an
//! [`hartline_abi::hart::ExceptionFrame`] on the CPL 0 stack and goes on at CPL 3 at
//! [`hartline_abi::hart::Hart::exception_entry`]. Vectors that no stub serves (NMI,
//! double fault, machine check, everything from 32) are not present: they end in a
//! triple fault, which comes out to the VMM. So does a guest that broke the stubs'
//! way, for instance by a wild GS base: the faults repeat until the CPL 0 stack
//! is used up.

use hartline_abi::boot::MAX_CPUS;
use hartline_abi::hart::{ExceptionFrame, offset};
use hartline_abi::layout::{
    CPL0_STRIDE, KERNEL_CS, KERNEL_SS, PAGE_SIZE, SUPERVISOR_BASE, USER_CS, USER_SS,
};
use hartline_abi::port;
use std::mem::size_of;

/// Length of the slot, bytes.
pub const SLOT_LENGTH: u64 = TSS + MAX_CPUS as u64 * TSS_STRIDE;

const GDT: u64 = 0;
const IDT: u64 = PAGE_SIZE;
const STUBS: u64 = 2 * PAGE_SIZE;
const TSS: u64 = 3 * PAGE_SIZE;
/// Distance between the TSSs of vCPUs: none crosses a page.
const TSS_STRIDE: u64 = 512;

/// Address of the CPL 0 stack page of vCPU 0; those of the others follow, [`CPL0_STRIDE`]
/// from one another.
pub const STACK_PAGE: u64 = SUPERVISOR_BASE + 0x1_0000;
/// Address of the exception frame that stubs fill on vCPU 0: the top of that page.
pub const EXCEPTION_FRAME: u64 = STACK_PAGE + PAGE_SIZE - size_of::<ExceptionFrame>() as u64;

/// Selector of the TSS.
const TSS_SELECTOR: u16 = 0x40;
/// Entries of the GDT, 8 bytes each; the TSS descriptor takes two.
const GDT_ENTRIES: usize = 10;
/// Entries of the IDT.
const IDT_ENTRIES: usize = 32;
/// Length of a 64-bit TSS before its I/O bitmap.
const TSS_LENGTH: usize = 104;
/// Bytes of I/O bitmap up to [`port::LAST`], and the byte of ones that ends it.
const IO_BITMAP_LENGTH: usize = port::LAST as usize / 8 + 2;

/// Vector of the gate that loads a page table (`int3`).
const PAGE_TABLE_VECTOR: usize = 3;
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
    (SUPERVISOR_BASE + GDT, GDT_ENTRIES as u16 * 8 - 1)
}

/// IDT: address and limit.
#[must_use]
pub fn idt() -> (u64, u16) {
    (SUPERVISOR_BASE + IDT, IDT_ENTRIES as u16 * 16 - 1)
}

/// TSS of vCPU `cpu`, less than [`MAX_CPUS`]: selector, address and limit.
#[must_use]
pub fn tss(cpu: u64) -> (u16, u64, u32) {
    (
        TSS_SELECTOR,
        SUPERVISOR_BASE + TSS + cpu * TSS_STRIDE,
        (TSS_LENGTH + IO_BITMAP_LENGTH - 1) as u32,
    )
}

/// The contents of the slot, [`SLOT_LENGTH`] bytes.
#[must_use]
pub fn slot() -> Vec<u8> {
    let (stubs, entries) = assemble_stubs();
    let mut slot = vec![0; SLOT_LENGTH as usize];
    let mut put = |at: u64, bytes: &[u8]| {
        slot[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    };
    put(GDT, &build_gdt());
    put(IDT, &build_idt(&entries));
    put(STUBS, &stubs);
    for cpu in 0..MAX_CPUS as u64 {
        put(TSS + cpu * TSS_STRIDE, &build_tss(cpu));
    }
    slot
}

fn build_gdt() -> Vec<u8> {
    // Intel SDM volume 3, 3.4.5: present, DPL, S, type with the accessed bit; L for code.
    const CODE: u64 = 0x00af_9b00_0000_ffff;
    const DATA: u64 = 0x00cf_9300_0000_ffff;
    const DPL3: u64 = 3 << 45;
    let mut entries = [0u64; GDT_ENTRIES];
    entries[usize::from(KERNEL_CS / 8)] = CODE;
    entries[usize::from(KERNEL_SS / 8)] = DATA;
    entries[usize::from(USER_SS / 8)] = DATA | DPL3;
    entries[usize::from(USER_CS / 8)] = CODE | DPL3;
    let (selector, base, limit) = tss(0);
    // A busy 64-bit TSS: the task register is loaded by the VMM, for each vCPU with its own.
    let low = u64::from(limit) | (base & 0xff_ffff) << 16 | 0x8b << 40 | (base >> 24 & 0xff) << 56;
    entries[usize::from(selector / 8)] = low;
    entries[usize::from(selector / 8) + 1] = base >> 32;
    entries.iter().flat_map(|e| e.to_le_bytes()).collect()
}

/// `entries[vector]` is the address of the vector's stub.
fn build_idt(entries: &[Option<u64>; IDT_ENTRIES]) -> Vec<u8> {
    let gate = |(vector, entry): (usize, &Option<u64>)| match *entry {
        None => [0; 16],
        Some(target) => {
            let dpl = if vector == PAGE_TABLE_VECTOR { 3 } else { 0 };
            // Present 64-bit interrupt gate.
            let kind = 0x8e00u64 | dpl << 13;
            let low = target & 0xffff
                | u64::from(KERNEL_CS) << 16
                | kind << 32
                | (target >> 16 & 0xffff) << 48;
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&low.to_le_bytes());
            bytes[8..].copy_from_slice(&(target >> 32).to_le_bytes());
            bytes
        }
    };
    entries.iter().enumerate().flat_map(gate).collect()
}

fn build_tss(cpu: u64) -> Vec<u8> {
    let mut tss = vec![0; TSS_LENGTH];
    // RSP0, and the offset of the I/O bitmap (Intel SDM volume 3, figure 8-11).
    let stack = STACK_PAGE + cpu * CPL0_STRIDE + PAGE_SIZE;
    tss[4..12].copy_from_slice(&stack.to_le_bytes());
    tss[102..104].copy_from_slice(&(TSS_LENGTH as u16).to_le_bytes());
    let mut bitmap = [0xff; IO_BITMAP_LENGTH];
    for allowed in port::FIRST..=port::LAST {
        bitmap[usize::from(allowed / 8)] &= !(1 << (allowed % 8));
    }
    tss.extend_from_slice(&bitmap);
    tss
}

/// Machine code, and the address of each vector's stub.
fn assemble_stubs() -> (Vec<u8>, [Option<u64>; IDT_ENTRIES]) {
    let mut code = page_table_stub();
    let mut entries = [None; IDT_ENTRIES];
    entries[PAGE_TABLE_VECTOR] = Some(SUPERVISOR_BASE + STUBS);
    let common = code.len();
    code.extend(common_tail());
    for (vector, has_error_code) in EXCEPTIONS {
        entries[usize::from(vector)] = Some(SUPERVISOR_BASE + STUBS + code.len() as u64);
        if !has_error_code {
            code.extend([0x6a, 0x00]); // push 0
        }
        code.extend([0x6a, vector]); // push vector
        code.push(0xe9); // jmp common
        let distance = common as i32 - (code.len() as i32 + 4);
        code.extend(distance.to_le_bytes());
    }
    (code, entries)
}

/// `int3`: loads the top-level page table at the guest-physical address in rax, which
/// also forgets the TLB, and goes back.
fn page_table_stub() -> Vec<u8> {
    vec![
        0x0f, 0x22, 0xd8, // mov cr3, rax
        0x48, 0xcf, // iretq
    ]
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
        USER_SS as u8, // push USER_SS
    ];
    code.extend(push_gs(offset::EXCEPTION_STACK));
    code.extend([0x6a, 0x02]); // push flags
    code.extend([0x6a, USER_CS as u8]); // push USER_CS
    code.extend(push_gs(offset::EXCEPTION_ENTRY));
    code.extend([0x48, 0xcf]); // iretq
    code
}

/// `push qword gs:[displacement]`
fn push_gs(displacement: u64) -> Vec<u8> {
    let mut code = vec![0x65, 0xff, 0x34, 0x25];
    code.extend((displacement as u32).to_le_bytes());
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_fits_and_only_our_ports_are_open() {
        assert_eq!(slot().len() as u64, SLOT_LENGTH);
        let (stubs, _) = assemble_stubs();
        assert!(stubs.len() <= PAGE_SIZE as usize);
        let tss = build_tss(1);
        assert!(tss.len() as u64 <= TSS_STRIDE);
        const { assert!(SUPERVISOR_BASE + SLOT_LENGTH < STACK_PAGE) };
        let open = |p: u16| tss[TSS_LENGTH + usize::from(p / 8)] & 1 << (p % 8) == 0;
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
        for vector in 0..IDT_ENTRIES {
            let gate = &idt[vector * 16..][..16];
            let served = vector == PAGE_TABLE_VECTOR
                || EXCEPTIONS.iter().any(|&(v, _)| usize::from(v) == vector);
            assert_eq!(gate[5] & 0x80 != 0, served, "vector {vector}");
            if !served {
                continue;
            }
            let low = u64::from(u16::from_le_bytes([gate[0], gate[1]]));
            let middle = u64::from(u16::from_le_bytes([gate[6], gate[7]]));
            let high = u64::from(u32::from_le_bytes([gate[8], gate[9], gate[10], gate[11]]));
            let target = low | middle << 16 | high << 32;
            let start = SUPERVISOR_BASE + STUBS;
            assert!((start..start + stubs.len() as u64).contains(&target));
            assert_eq!(
                gate[5] >> 5 & 3,
                if vector == PAGE_TABLE_VECTOR { 3 } else { 0 }
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
