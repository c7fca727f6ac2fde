//! Helpers of the whole-system tests: they build guest programs, run them under Hartline and under
//! the reference (`qemu-riscv64`), and compare.
//!
//! The tests need the packages that `make test-setup` installs. Tests that run a VM are listed as
//! skipped on a machine without `/dev/kvm`; with `HARTLINE_REQUIRE_KVM=1` they fail instead.

pub mod browser;
pub mod compare;
pub mod compile;
pub mod daemon;
pub mod dynamic;
pub mod elf;
pub mod hartline;
pub mod network;
pub mod operations;
pub mod packages;
pub mod paths;
pub mod pipelines;
pub mod process;
pub mod protobuf;
pub mod python;
pub mod random;
pub mod reference;
pub mod screen;
pub mod sequence;
pub mod suite;
pub mod tar;
pub mod tree;

/// Result of a step of a test.
pub type Result<T> = std::result::Result<T, libtest_mimic::Failed>;
