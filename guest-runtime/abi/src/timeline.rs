//! Records of the runtime for the time line of a run (`hartline run --trace`). They leave the VM as the
//! stream of traces, one behind the other.

/// The events of a record.
pub mod kind {
    /// A system call begins: its number and its six arguments are in `words`.
    pub const CALL: u32 = 1;
    /// The system call of the task returns: its result, or a negated error number, is `words[0]`.
    pub const RETURN: u32 = 2;
    /// The vCPU runs the task from now on; task 0 is none.
    pub const SWITCH: u32 = 3;
    /// A signal is delivered to the task: its number is `words[0]`.
    pub const SIGNAL: u32 = 4;
    /// The process ends, and with it all its tasks.
    pub const END: u32 = 5;
}

/// One event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// One of [`kind`].
    pub kind: u32,
    /// Number of the vCPU.
    pub cpu: u32,
    /// Number of the task.
    pub task: u32,
    /// Number of its process.
    pub process: u32,
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
    /// Name of the task, padded with zeros.
    pub name: [u8; 16],
    /// Further values, by kind.
    pub words: [u64; 7],
}

impl Record {
    /// Length, bytes.
    pub const LENGTH: usize = 96;

    /// Encodes the record.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let numbers = [self.kind, self.cpu, self.task, self.process];
        let (head, rest) = bytes.split_at_mut(16);
        for (to, number) in head.chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        let (time, rest) = rest.split_at_mut(8);
        time.copy_from_slice(&self.time.to_le_bytes());
        let (name, words) = rest.split_at_mut(16);
        name.copy_from_slice(&self.name);
        for (to, word) in words.chunks_exact_mut(8).zip(self.words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a record.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let number = |at: usize| {
            let (words, _) = bytes[at..].as_chunks::<4>();
            u32::from_le_bytes(words[0])
        };
        let word = |at: usize| {
            let (words, _) = bytes[at..].as_chunks::<8>();
            u64::from_le_bytes(words[0])
        };
        let mut name = [0; 16];
        name.copy_from_slice(&bytes[24..40]);
        Self {
            kind: number(0),
            cpu: number(4),
            task: number(8),
            process: number(12),
            time: word(16),
            name,
            words: core::array::from_fn(|index| word(40 + 8 * index)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_the_same_after_its_way() {
        let record = Record {
            kind: 1,
            cpu: 2,
            task: 3,
            process: 4,
            time: 5 << 40,
            name: *b"0123456789abcdef",
            words: [6, 7, 8, 9, 10, 11, u64::MAX],
        };
        assert_eq!(Record::from_bytes(&record.to_bytes()), record);
    }
}
