//! `linux/sysinfo.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// Fraction bits of a load average.
pub const SI_LOAD_SHIFT: u32 = 16;

/// `struct sysinfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
pub struct Sysinfo {
    pub uptime: u64,
    pub loads: [u64; 3],
    pub totalram: u64,
    pub freeram: u64,
    pub sharedram: u64,
    pub bufferram: u64,
    pub totalswap: u64,
    pub freeswap: u64,
    pub procs: u16,
    pub pad: u16,
    pub pad2: u32,
    pub totalhigh: u64,
    pub freehigh: u64,
    pub mem_unit: u32,
    pub pad3: u32,
}

const _: () = assert!(size_of::<Sysinfo>() == 112);
