//! The memory that the process of a VM uses.

use std::fs;

/// The memory of a VMM.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Private memory, and the proportional share of shared memory, KiB.
    pub own_kib: u64,
    /// Guest RAM that was touched, KiB.
    pub guest_kib: u64,
}

impl Memory {
    /// Reads the memory of a process.
    ///
    /// # Errors
    /// The process has ended.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let smaps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
        Ok(Self::parse(&smaps))
    }

    /// Parses proc(5) `smaps`. Guest RAM is the memory with `MADV_HUGEPAGE` (`hg`).
    fn parse(smaps: &str) -> Self {
        let (mut memory, mut share) = (Self::default(), 0);
        for line in smaps.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("Pss:") => {
                    let number = words.next().and_then(|word| word.parse().ok());
                    share = number.unwrap_or(0);
                }
                // `VmFlags` is the last line of each mapping.
                Some("VmFlags:") => match words.any(|word| word == "hg") {
                    true => memory.guest_kib += share,
                    false => memory.own_kib += share,
                },
                _ => {}
            }
        }
        memory
    }
}

/// Private memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Private {
    kib: u64,
}

impl Private {
    /// Reads that of this process.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn of_this_process() -> anyhow::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/self/smaps_rollup")?))
    }

    fn parse(rollup: &str) -> Self {
        let values = rollup.lines().filter(|line| line.starts_with("Private_"));
        let values = values.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        Self { kib: values.sum() }
    }

    /// What is more than before, MiB.
    pub fn mib_since(self, before: Self) -> f64 {
        self.kib.saturating_sub(before.kib) as f64 / 1024.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_a_sum() {
        let rollup = "00400000-7f ---p 0 00:00 0 [rollup]\nRss: 9 kB\nPrivate_Clean: 100 kB\n\
            Private_Dirty: 2048 kB\nPrivate_Hugetlb: 0 kB\n";
        let (before, now) = (Private { kib: 100 }, Private::parse(rollup));
        assert_eq!(now.kib, 2148);
        assert_eq!(now.mib_since(before), 2.0);
    }

    #[test]
    fn memory_is_told_apart() {
        let smaps = "00400000-00800000 r-xp 0 00:01 7 /program\n\
            Size: 4096 kB\nPss: 100 kB\nVmFlags: rd ex mr\n\
            7f0000000000-7f0004000000 rw-p 0 00:00 0\n\
            Size: 65536 kB\nPss: 2048 kB\nVmFlags: rd wr mr hg\n";
        let memory = Memory::parse(smaps);
        let expected = Memory {
            own_kib: 100,
            guest_kib: 2048,
        };
        assert_eq!(memory, expected);
    }
}
