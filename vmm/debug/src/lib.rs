//! Source lines and call stacks of riscv64 programs, from the debug information (DWARF) and the
//! unwind tables of their ELF files.
//!
//! The files, the memory and the registers come from a program that is not trusted. Every step has a
//! limit: [`budget::Budget`] limits the time, the sizes of sections limit the memory, and
//! [`unwind::MAX_DEPTH`] limits the depth.

pub mod budget;
pub mod dwarf;
pub mod elf;
pub mod find;
pub mod frames;
mod lines;
pub mod module;
mod names;
mod prologue;
mod rows;
mod symbols;
pub mod unwind;

/// Reader of the sections.
type Reader = gimli::EndianArcSlice<gimli::LittleEndian>;
