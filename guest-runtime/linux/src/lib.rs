//! The user-space interface of Linux/riscv64 (asm-generic) as of Linux 6.12, under Linux's own
//! names: a module per header.
//!
//! [`syscall`] is the one table of system calls: numbers, names, kinds of arguments, restarts after
//! signals, and what Hartline supports.
//!
//! A constant has the type in which the library OS uses it: the type of the structure's field, or
//! of the register in which a system call takes it.
#![no_std]
#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

pub mod aio_abi;
pub mod audit;
pub mod auxvec;
pub mod cacheflush;
pub mod capability;
pub mod close_range;
pub mod elfcore;
pub mod errno;
pub mod errqueue;
pub mod eventfd;
pub mod eventpoll;
pub mod fadvise;
pub mod falloc;
pub mod fcntl;
pub mod filter;
pub mod fs;
pub mod futex;
pub mod hwprobe;
pub mod icmp;
pub mod if_;
pub mod if_addr;
pub mod if_link;
pub mod in6;
pub mod in_;
pub mod inotify;
pub mod ioctls;
pub mod ioprio;
pub mod ipc;
pub mod kcmp;
pub mod limits;
pub mod magic;
pub mod membarrier;
pub mod memfd;
pub mod mempolicy;
pub mod mman;
pub mod mount;
pub mod mqueue;
pub mod msg;
pub mod names;
pub mod netlink;
pub mod openat2;
pub mod poll;
pub mod prctl;
pub mod ptrace;
pub mod random;
pub mod resource;
pub mod rseq;
pub mod rtnetlink;
pub mod sched;
pub mod seccomp;
pub mod securebits;
pub mod sem;
pub mod shm;
pub mod siginfo;
pub mod signal;
pub mod signalfd;
pub mod socket;
pub mod sockios;
pub mod stat;
pub mod statfs;
pub mod syscall;
pub mod sysinfo;
pub mod tcp;
pub mod termbits;
pub mod time;
pub mod timerfd;
pub mod timex;
pub mod ucontext;
pub mod uio;
pub mod un;
pub mod userfaultfd;
pub mod vm_sockets;
pub mod wait;
pub mod xattr;
