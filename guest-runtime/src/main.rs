//! The runtime's ELF image.
#![no_std]
#![no_main]
