//! The contents of `/proc/config.gz`: which options of Linux stand for what Hartline supports.

/// The options, as in the `.config` of a Linux kernel.
const TEXT: &[u8] = include_bytes!("kernel.config");

/// The options as a `gzip` file (RFC 1952): one block of RFC 1951, stored without compression.
pub(super) const FILE: &[u8] = &file();

const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
/// The type of the block, its length, and the complement of the length.
const BLOCK: usize = 5;
/// Checksum and length of the text.
const TRAILER: usize = 8;
const FILE_LENGTH: usize = HEADER.len() + BLOCK + TEXT.len() + TRAILER;

const fn file() -> [u8; FILE_LENGTH] {
    assert!(TEXT.len() <= u16::MAX as usize, "a stored block is shorter");
    let [low, high, rest @ ..] = TEXT.len().to_le_bytes();
    let checksum = crc32(TEXT).to_le_bytes();
    let block = [1, low, high, !low, !high];
    let trailer = [
        checksum[0],
        checksum[1],
        checksum[2],
        checksum[3],
        low,
        high,
        rest[0],
        rest[1],
    ];
    let mut file = [0; FILE_LENGTH];
    let parts: [&[u8]; 4] = [&HEADER, &block, TEXT, &trailer];
    let mut rest = file.as_mut_slice();
    let mut part = 0;
    while part < parts.len() {
        let (place, after) = rest.split_at_mut(parts[part].len());
        place.copy_from_slice(parts[part]);
        rest = after;
        part += 1;
    }
    file
}

/// The checksum of RFC 1952, 8.
const fn crc32(bytes: &[u8]) -> u32 {
    /// The polynomial, with the lowest power in the highest bit.
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut sum = u32::MAX;
    let mut at = 0;
    while at < bytes.len() {
        sum ^= bytes[at] as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ (POLYNOMIAL * (sum & 1));
            bit += 1;
        }
        at += 1;
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::{TEXT, crc32};
    use hartline_linux::syscall::{CALLS, Support};

    #[test]
    fn checksum_of_the_specification_of_crcs() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    /// An option is set if, and only if, its system call is supported.
    #[test]
    fn options_say_which_calls_there_are() {
        let calls = [
            ("SYSVIPC", "shmget"),
            ("POSIX_MQUEUE", "mq_open"),
            ("CROSS_MEMORY_ATTACH", "process_vm_readv"),
            ("FUTEX", "futex"),
            ("EPOLL", "epoll_create1"),
            ("SIGNALFD", "signalfd4"),
            ("TIMERFD", "timerfd_create"),
            ("EVENTFD", "eventfd2"),
            ("AIO", "io_setup"),
            ("IO_URING", "io_uring_setup"),
            ("ADVISE_SYSCALLS", "madvise"),
            ("MEMBARRIER", "membarrier"),
            ("RSEQ", "rseq"),
            ("KCMP", "kcmp"),
            ("USERFAULTFD", "userfaultfd"),
            ("SECRETMEM", "memfd_secret"),
            ("SECCOMP", "seccomp"),
            ("BPF_SYSCALL", "bpf"),
            ("PERF_EVENTS", "perf_event_open"),
            ("KEYS", "keyctl"),
            ("SECURITY_LANDLOCK", "landlock_create_ruleset"),
            ("BSD_PROCESS_ACCT", "acct"),
            ("FHANDLE", "name_to_handle_at"),
            ("INOTIFY_USER", "inotify_init1"),
            ("FANOTIFY", "fanotify_init"),
            ("QUOTA", "quotactl"),
            ("SWAP", "swapon"),
            ("MODULES", "init_module"),
            ("KEXEC", "kexec_load"),
        ];
        let text = core::str::from_utf8(TEXT).unwrap();
        for (option, name) in calls {
            let call = CALLS.iter().find(|call| call.name == name).unwrap();
            let line = match call.support {
                Support::Missing => format!("# CONFIG_{option} is not set"),
                _ => format!("CONFIG_{option}=y"),
            };
            assert!(text.lines().any(|found| found == line), "{line}");
        }
    }
}
