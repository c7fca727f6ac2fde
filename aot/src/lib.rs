//! Ahead-of-time translation of RISC-V ELF files to x86-64 images.

pub mod cfg;
pub mod codegen;
pub mod elf;
pub mod explain;
pub mod lift;
pub mod link;
pub mod translate;
