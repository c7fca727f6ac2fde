//! Ahead-of-time translation of RISC-V ELF files to x86-64 images.

pub mod cfg;
