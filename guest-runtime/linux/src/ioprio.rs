//! `linux/ioprio.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// The place of the class in a priority, and the mask of the level.
pub const IOPRIO_CLASS_SHIFT: u32 = 13;
pub const IOPRIO_LEVEL_MASK: u32 = 7;
// Classes.
pub const IOPRIO_CLASS_NONE: u32 = 0;
pub const IOPRIO_CLASS_RT: u32 = 1;
pub const IOPRIO_CLASS_BE: u32 = 2;
pub const IOPRIO_CLASS_IDLE: u32 = 3;
// Subjects.
pub const IOPRIO_WHO_PROCESS: u64 = 1;
pub const IOPRIO_WHO_PGRP: u64 = 2;
pub const IOPRIO_WHO_USER: u64 = 3;
