//! `linux/elfcore.h` and the ELF format of core dumps (`linux/elf.h`), with the structures of riscv64.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

pub const ET_CORE: u16 = 4;
pub const EM_RISCV: u16 = 243;
pub const EF_RISCV_RVC: u32 = 1;
pub const EF_RISCV_FLOAT_ABI_DOUBLE: u32 = 4;
pub const PT_LOAD: u32 = 1;
pub const PT_NOTE: u32 = 4;
pub const PF_X: u32 = 1;
pub const PF_W: u32 = 2;
pub const PF_R: u32 = 4;
pub const NT_PRSTATUS: u32 = 1;
pub const NT_PRFPREG: u32 = 2;
pub const NT_PRPSINFO: u32 = 3;
pub const NT_AUXV: u32 = 6;
pub const NT_SIGINFO: u32 = 0x5349_4749;
pub const NT_FILE: u32 = 0x4649_4c45;
/// Largest number of program headers that a file has without an extension.
pub const PN_XNUM: u16 = 0xffff;

/// `Elf64_Ehdr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Elf64Ehdr {
    pub e_ident: [u8; 16],
    pub e_type: u16,
    pub e_machine: u16,
    pub e_version: u32,
    pub e_entry: u64,
    pub e_phoff: u64,
    pub e_shoff: u64,
    pub e_flags: u32,
    pub e_ehsize: u16,
    pub e_phentsize: u16,
    pub e_phnum: u16,
    pub e_shentsize: u16,
    pub e_shnum: u16,
    pub e_shstrndx: u16,
}

const _: () = assert!(size_of::<Elf64Ehdr>() == 64);

/// `Elf64_Phdr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Elf64Phdr {
    pub p_type: u32,
    pub p_flags: u32,
    pub p_offset: u64,
    pub p_vaddr: u64,
    pub p_paddr: u64,
    pub p_filesz: u64,
    pub p_memsz: u64,
    pub p_align: u64,
}

const _: () = assert!(size_of::<Elf64Phdr>() == 56);

/// `Elf64_Nhdr`. The name follows, then the contents, each padded to 4 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Elf64Nhdr {
    pub n_namesz: u32,
    pub n_descsz: u32,
    pub n_type: u32,
}

/// `struct elf_prstatus`. `pr_reg` are `pc`, then `x1`–`x31`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct ElfPrstatus {
    pub si_signo: i32,
    pub si_code: i32,
    pub si_errno: i32,
    pub pr_cursig: i16,
    pub pad: u16,
    pub pr_sigpend: u64,
    pub pr_sighold: u64,
    pub pr_pid: u32,
    pub pr_ppid: u32,
    pub pr_pgrp: u32,
    pub pr_sid: u32,
    /// User, system, children's user and children's system time: seconds and microseconds.
    pub pr_times: [[u64; 2]; 4],
    pub pr_reg: [u64; 32],
    pub pr_fpvalid: i32,
    pub pad2: u32,
}

const _: () = assert!(size_of::<ElfPrstatus>() == 376);

/// `struct elf_prpsinfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct ElfPrpsinfo {
    pub pr_state: u8,
    pub pr_sname: u8,
    pub pr_zomb: u8,
    pub pr_nice: i8,
    pub pad: u32,
    pub pr_flag: u64,
    pub pr_uid: u32,
    pub pr_gid: u32,
    pub pr_pid: u32,
    pub pr_ppid: u32,
    pub pr_pgrp: u32,
    pub pr_sid: u32,
    pub pr_fname: [u8; 16],
    pub pr_psargs: [u8; 80],
}

const _: () = assert!(size_of::<ElfPrpsinfo>() == 136);

/// `elf_fpregset_t`: `f0`–`f31`, then `fcsr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct ElfFpregset {
    pub f: [u64; 32],
    pub fcsr: u32,
    pub pad: u32,
}

const _: () = assert!(size_of::<ElfFpregset>() == 264);
