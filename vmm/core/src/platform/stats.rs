//! KVM's own counters, read through `KVM_GET_STATS_FD`
//! (Documentation/virt/kvm/api.rst, section 4.133).

use super::{Error, Vcpu, Vm};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use vmm_sys_util::ioctl::ioctl;
use vmm_sys_util::ioctl_io_nr;

ioctl_io_nr!(KVM_GET_STATS_FD, kvm_bindings::KVMIO, 0xce);

/// Length of the file's header.
const HEADER: usize = 24;
/// Length of a descriptor without its name.
const DESCRIPTOR: usize = 16;
/// Larger than any kernel's number; a broken file must not exhaust memory.
const MAX_DESCRIPTORS: usize = 4096;

/// Prefix of the names of files with the counters of a vCPU. No file of a file system has such a
/// name: a link to it is an absolute path.
const VCPU_FILE: &[u8] = b"anon_inode:kvm-vcpu-stats";

/// An open file of KVM's counters of a vCPU, which can be read while the vCPU runs.
#[derive(Debug)]
pub struct CounterFile(File);

impl CounterFile {
    /// Opens the counters of a vCPU that does not run yet: opening blocks while it runs.
    ///
    /// # Errors
    /// [`Error::Request`] if the kernel has no such interface.
    pub fn of_vcpu(vcpu: &Vcpu) -> Result<Self, Error> {
        Ok(Self(open(vcpu.as_raw_fd()).map_err(failed)?))
    }

    /// The file that a descriptor is open on.
    ///
    /// # Errors
    /// The file is not KVM's counters of a vCPU, or its link cannot be read.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let name = fs::read_link(link)?;
        match name.as_os_str().as_bytes().starts_with(VCPU_FILE) {
            true => Ok(Self(descriptor.into())),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The counters now.
    ///
    /// # Errors
    /// [`Error::Request`] if the file is malformed.
    pub fn read(&self) -> Result<Counters, Error> {
        Counters::parse(&self.0).map_err(failed)
    }
}

impl AsFd for CounterFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn failed(source: io::Error) -> Error {
    Error::Request {
        request: "KVM_GET_STATS_FD",
        source,
    }
}

fn open(owner: RawFd) -> io::Result<File> {
    // SAFETY: the ioctl takes no argument, so the kernel accesses no memory of this process.
    let fd = unsafe { ioctl(&owner, KVM_GET_STATS_FD()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the ioctl has made the descriptor, which has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Named counters: single values only, no histograms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// The counters of a vCPU.
    ///
    /// # Errors
    /// [`Error::Request`] if the kernel has no such interface or its file is malformed.
    pub fn of_vcpu(vcpu: &Vcpu) -> Result<Self, Error> {
        Self::read(vcpu.as_raw_fd())
    }

    /// The counters of a VM.
    ///
    /// # Errors
    /// As [`Counters::of_vcpu`].
    pub fn of_vm(vm: &Vm) -> Result<Self, Error> {
        Self::read(vm.fd.as_raw_fd())
    }

    /// The sum of each counter over vCPUs.
    #[must_use]
    pub fn sum(each: Vec<Self>) -> Self {
        let mut sum = BTreeMap::new();
        for (name, value) in each.into_iter().flat_map(|one| one.0) {
            let total: &mut u64 = sum.entry(name).or_default();
            *total = total.saturating_add(value);
        }
        Self(sum)
    }

    /// The value of a counter; 0 if this kernel does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// All counters by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, &value)| (name.as_str(), value))
    }

    fn read(owner: RawFd) -> Result<Self, Error> {
        open(owner)
            .and_then(|file| Self::parse(&file))
            .map_err(failed)
    }

    fn parse(file: &File) -> io::Result<Self> {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)?;
        let [name_size, count] = [4, 8].map(|at| word(&header, at) as usize);
        let [descriptors, data] = [16, 20].map(|at| u64::from(word(&header, at)));
        if count > MAX_DESCRIPTORS || name_size > 4096 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut table = vec![0; count * (DESCRIPTOR + name_size)];
        file.read_exact_at(&mut table, descriptors)?;
        let mut counters = BTreeMap::new();
        for descriptor in table.chunks_exact(DESCRIPTOR + name_size) {
            let values = u16::from_le_bytes([descriptor[6], descriptor[7]]);
            if values != 1 {
                continue;
            }
            let mut value = [0; 8];
            file.read_exact_at(&mut value, data + u64::from(word(descriptor, 8)))?;
            let name = descriptor[DESCRIPTOR..]
                .split(|&b| b == 0)
                .next()
                .unwrap_or_default();
            counters.insert(
                String::from_utf8_lossy(name).into_owned(),
                u64::from_le_bytes(value),
            );
        }
        Ok(Self(counters))
    }
}

/// The 32-bit word at `at`, which must be inside `bytes`.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::memory_file;

    fn stats_file(descriptors: &[(&str, u16, u32)], values: &[u64]) -> File {
        let mut bytes = Vec::new();
        let data = HEADER + descriptors.len() * (DESCRIPTOR + 16);
        for word in [0, 16, descriptors.len(), 0, HEADER, data] {
            bytes.extend_from_slice(&u32::try_from(word).unwrap().to_le_bytes());
        }
        for (name, size, offset) in descriptors {
            bytes.extend_from_slice(&[0; 6]);
            bytes.extend_from_slice(&size.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            let mut field = [0; 16];
            field[..name.len()].copy_from_slice(name.as_bytes());
            bytes.extend_from_slice(&field);
        }
        for value in values {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        memory_file(c"stats", &bytes).unwrap()
    }

    #[test]
    fn parses_values_and_skips_histograms() {
        let file = stats_file(
            &[("exits", 1, 0), ("histogram", 2, 8), ("io_exits", 1, 24)],
            &[7, 1, 2, 9],
        );
        let counters = Counters::parse(&file).unwrap();
        assert_eq!(counters.get("exits"), 7);
        assert_eq!(counters.get("io_exits"), 9);
        assert_eq!(counters.iter().count(), 2);
        assert_eq!(counters.get("missing"), 0);
    }

    #[test]
    fn other_files_are_no_counters() {
        let file = stats_file(&[("exits", 1, 0)], &[7]);
        assert!(CounterFile::from_descriptor(file.into()).is_err());
    }

    #[test]
    fn malformed_files_are_refused() {
        assert!(Counters::parse(&memory_file(c"stats", &[0; 10]).unwrap()).is_err());
        assert!(Counters::parse(&memory_file(c"stats", &[0xff; 24]).unwrap()).is_err());
        let truncated = stats_file(&[("exits", 1, 800)], &[7]);
        assert!(Counters::parse(&truncated).is_err());
    }
}
