//! Translation of RISC-V ELF files to x86-64 images.

pub mod analysis;
pub mod baseline;
pub mod cache;
pub mod cfg;
pub mod code_object;
pub mod codegen;
mod disasm;
pub mod elf;
pub mod explain;
pub mod function_store;
pub mod image;
pub mod jit;
pub mod key;
mod layout;
pub mod lift;
pub mod link;
pub mod order;
pub mod origin;
pub mod pieces;
mod table;
pub mod technique;
pub mod translate;
pub mod translator;
pub mod unwind;
