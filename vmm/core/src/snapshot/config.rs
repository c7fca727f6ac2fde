//! The description of a snapshot, `config.json`.

use crate::layout::{MAX_RAM, MIN_RAM};
use crate::machine::RUNTIME;
use crate::supervisor;
use crate::tree;
use hartline_abi::ABI_VERSION;
use hartline_abi::image::variant;
use hartline_abi::layout::{FILE_BASE, FILE_GPA, FILE_GPA_END, HUGE_PAGE_SIZE, PAGE_SIZE};
use hartline_abi::layout::{STACK_SIZE, USER_END};
use hartline_abi::limits::MAX_CPUS;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// Version of the format. A snapshot of another version is refused.
pub const VERSION: u32 = 3;
/// Longest description, bytes.
pub(super) const MAX_LENGTH: u64 = 64 << 20;
/// Longest name of a program, bytes.
const MAX_NAME: usize = 4096;

/// The reason why a description is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The description is not JSON of the expected form.
    #[error("not the description of a snapshot: {0}")]
    Json(#[from] serde_json::Error),
    /// The description is too long.
    #[error("{0} bytes long, more than {MAX_LENGTH}")]
    Long(u64),
    /// The snapshot has another version.
    #[error("format version {0}: this program reads version {VERSION}")]
    Version(u64),
    /// The snapshot was written by another build.
    #[error("written by another version of hartline: write the snapshot again")]
    Runtime,
    /// A number is not one that a snapshot can have.
    #[error("{field}: {value} is not allowed")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// A SHA-256 checksum, hexadecimal in JSON.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Digest(pub [u8; 32]);

impl Digest {
    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from(*self))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WRONG: &str = "a checksum must have 64 hexadecimal digits";
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(WRONG);
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
            let digits = std::str::from_utf8(digits).map_err(|_| WRONG)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| WRONG)?;
        }
        Ok(Self(bytes))
    }
}

/// The version alone, which is read before the rest.
#[derive(Deserialize)]
struct Version {
    version: u64,
}

/// The description.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// [`VERSION`].
    pub version: u32,
    /// [`ABI_VERSION`].
    pub abi: u32,
    /// [`runtime_digest`].
    pub runtime: Digest,
    /// The VM.
    pub machine: Machine,
    /// The parts of RAM that are not zero, in order.
    pub memory: Vec<Part>,
    /// The root file system tree.
    pub tree: Option<Tree>,
}

/// The VM of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    /// Name of the program, for messages.
    pub program: String,
    /// The program's inode in the tree; 0: it is not in the tree.
    pub inode: u32,
    /// User and group of the program.
    pub user: (u32, u32),
    /// Number of vCPUs.
    pub cpus: u32,
    /// Length of RAM, bytes.
    pub ram: u64,
    /// Offset in RAM of the first byte that the VMM left to the guest.
    pub ram_free: u64,
    /// Offset in RAM of the host stacks.
    pub stack_block: u64,
    /// Whether the root file system is read-only.
    pub read_only: bool,
    /// [Variant](variant) of translations at the start.
    pub variant: u32,
    /// Time of `CLOCK_MONOTONIC`, ns.
    pub monotonic_ns: u64,
    /// Bit n: standard stream n is a terminal.
    pub terminals: u32,
    /// Whether the VM has a network interface.
    pub network: bool,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// Offset, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub length: u64,
    /// Checksum of its bytes.
    pub sha256: Digest,
}

/// The root file system tree of a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tree {
    /// Length, bytes.
    pub length: u64,
    /// Checksum of the file; none: the file is not in the snapshot, because the daemon keeps it.
    pub sha256: Option<Digest>,
    /// Guest-physical address of the slot with the file; none: the guest has it in RAM.
    pub gpa: Option<u64>,
    /// The file that parts of it are shown from.
    pub base: Option<Base>,
}

/// The base of a tree ([`tree::Base`]).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Base {
    /// Length, bytes.
    pub length: u64,
    /// Checksum of the file.
    pub sha256: Digest,
    /// Guest-physical address of the slot with the file; none: no part of it is shown.
    pub gpa: Option<u64>,
    /// Parts that are shown: offset in the tree, offset in the base, length.
    pub extents: Vec<(u64, u64, u64)>,
}

/// The checksum of everything that the VMM puts into a VM and a snapshot relies on: the runtime, and
/// the tables and stubs of CPL 0.
pub(super) fn runtime_digest() -> Digest {
    let mut hash = Sha256::new();
    hash.update(RUNTIME);
    hash.update(supervisor::slot());
    Digest(hash.finalize().into())
}

fn check(field: &'static str, value: u64, is_valid: bool) -> Result<(), ConfigError> {
    match is_valid {
        true => Ok(()),
        false => Err(ConfigError::Field { field, value }),
    }
}

fn is_page(value: u64) -> bool {
    value.is_multiple_of(PAGE_SIZE)
}

impl Config {
    /// Reads and checks a description.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        // A newer version may have other fields.
        let Version { version } = serde_json::from_slice(json)?;
        if version != u64::from(VERSION) {
            return Err(ConfigError::Version(version));
        }
        let config: Self = serde_json::from_slice(json)?;
        if config.abi != ABI_VERSION || config.runtime != runtime_digest() {
            return Err(ConfigError::Runtime);
        }
        config.check()?;
        Ok(config)
    }

    /// As [`parse`](Self::parse), whatever build wrote it.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn parse_of_any_build(json: &[u8]) -> Result<Self, ConfigError> {
        let config: Self = serde_json::from_slice(json)?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.machine.check()?;
        check_memory(&self.memory, self.machine.ram)?;
        self.tree.as_ref().map_or(Ok(()), Tree::check)
    }
}

impl Machine {
    /// Checks that a VM can go on so.
    ///
    /// # Errors
    /// [`ConfigError::Field`].
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let length = self.program.len();
        check("machine.program", length as u64, length <= MAX_NAME)?;
        let is_ram =
            (MIN_RAM..=MAX_RAM).contains(&self.ram) && self.ram.is_multiple_of(HUGE_PAGE_SIZE);
        check("machine.ram", self.ram, is_ram)?;
        let (free, stack) = (self.ram_free, self.stack_block);
        check("machine.ram_free", free, is_page(free) && free < self.ram)?;
        let cpus = u64::from(self.cpus);
        let is_number = (1..=MAX_CPUS as u64).contains(&cpus);
        check("machine.cpus", cpus, is_number)?;
        let end = stack.checked_add(cpus * STACK_SIZE);
        let is_inside = is_page(stack) && end.is_some_and(|end| end <= free);
        check("machine.stack_block", stack, is_inside)?;
        let is_known = variant::ALL.contains(&self.variant);
        check("machine.variant", self.variant.into(), is_known)?;
        // A century: later times would overflow when the guest adds its time limits.
        const MOST: u64 = 100 * 366 * 86_400 * 1_000_000_000;
        let now = self.monotonic_ns;
        check("machine.monotonic_ns", now, now <= MOST)?;
        check(
            "machine.terminals",
            self.terminals.into(),
            self.terminals < 8,
        )
    }
}

/// Checks that parts are whole pages of a file of `length` bytes, in order, without overlap, and in
/// one block of 2 MiB each.
fn check_memory(parts: &[Part], length: u64) -> Result<(), ConfigError> {
    let mut free = 0;
    for part in parts {
        let start = part.offset;
        check(
            "memory.offset",
            start,
            is_page(start) && (free..length).contains(&start),
        )?;
        let left = (start / HUGE_PAGE_SIZE + 1) * HUGE_PAGE_SIZE - start;
        let is_inside = is_page(part.length) && (1..=left).contains(&part.length);
        check("memory.length", part.length, is_inside)?;
        free = start + part.length;
    }
    Ok(())
}

/// Checks the address and length of a slot for a file.
fn check_slot(field: &'static str, gpa: Option<u64>, length: u64) -> Result<(), ConfigError> {
    let Some(gpa) = gpa else { return Ok(()) };
    let end = gpa.checked_add(length);
    let fits = gpa >= FILE_GPA && end.is_some_and(|end| end <= FILE_GPA_END);
    check(field, gpa, fits && gpa.is_multiple_of(HUGE_PAGE_SIZE))
}

impl Tree {
    fn check(&self) -> Result<(), ConfigError> {
        // Shorter than the room for files in the guest's address space.
        const MOST: u64 = USER_END;
        let is_length = |length: u64| length != 0 && length < MOST;
        check("tree.length", self.length, is_length(self.length))?;
        check_slot("tree.gpa", self.gpa, self.length)?;
        let Some(base) = &self.base else {
            return Ok(());
        };
        check("tree.base.length", base.length, is_length(base.length))?;
        check_slot("tree.base.gpa", base.gpa, base.length)?;
        if let (Some(tree), Some(gpa)) = (self.gpa, base.gpa) {
            let is_after = gpa >= tree + self.length.next_multiple_of(HUGE_PAGE_SIZE);
            check("tree.base.gpa", gpa, is_after)?;
        }
        let ends = [
            self.length.next_multiple_of(PAGE_SIZE),
            base.length.next_multiple_of(PAGE_SIZE),
        ];
        let mut free = 0;
        for &(offset, source, length) in &base.extents {
            let is_inside = is_page(offset) && (free..ends[0]).contains(&offset);
            check("tree.base.extents.offset", offset, is_inside)?;
            let is_inside = is_page(source) && source < ends[1];
            check("tree.base.extents.source", source, is_inside)?;
            let most = (ends[0] - offset).min(ends[1] - source);
            let is_inside = is_page(length) && (1..=most).contains(&length);
            check("tree.base.extents.length", length, is_inside)?;
            free = offset + length;
        }
        Ok(())
    }

    /// The address of the tree in the guest: it is the first file.
    pub const ADDRESS: u64 = FILE_BASE;
}

impl Base {
    /// The extents of the base.
    pub fn extents(&self) -> Vec<tree::Extent> {
        let extents = self.extents.iter();
        extents
            .map(|&(offset, source, length)| tree::Extent {
                offset,
                source,
                length,
            })
            .collect()
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
