//! Signals, flags and constants as strace(1) prints them.

use crate::convert::low_u32;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use hartline_linux::names::{Names, SIGNAL};

/// The name of a signal.
pub(super) fn signal(number: u64) -> String {
    match number {
        1..=31 => choose(SIGNAL, number),
        32 => "SIGRTMIN".into(),
        33..=64 => format!("SIGRT_{}", number - 32),
        _ => format!("{}", low_u32(number).cast_signed()),
    }
}

/// Names the flags in `value`; bits without a name follow as a number.
pub(super) fn show(names: Names, value: u64) -> String {
    let value = value & u64::from(u32::MAX);
    let mut left = value;
    let mut shown: Vec<String> = Vec::new();
    // A name for 0 is shown if no bit is set, or for an access mode such as O_RDONLY.
    if let Some((_, zero)) = names.iter().find(|(bits, _)| *bits == 0)
        && (value == 0 || zero.starts_with("O_") && value & 3 == 0)
    {
        shown.push((*zero).into());
    }
    for (bits, name) in names {
        if *bits != 0 && left & bits == *bits {
            shown.push((*name).into());
            left &= !bits;
        }
    }
    if left != 0 || shown.is_empty() {
        shown.push(if left == 0 {
            "0".into()
        } else {
            format!("{left:#x}")
        });
    }
    shown.join("|")
}

/// Names the constant that equals `value`.
pub(super) fn choose(names: Names, value: u64) -> String {
    let value = value & u64::from(u32::MAX);
    match names.iter().find(|(constant, _)| *constant == value) {
        Some((_, name)) => (*name).into(),
        None => format!("{value:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_linux::names::{AT, MAPPING, OPEN, PROTECTION, SEEK};

    #[test]
    fn flags_have_names() {
        assert_eq!(show(OPEN, 0), "O_RDONLY");
        assert_eq!(
            show(OPEN, 0o2_001_101),
            "O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC"
        );
        assert_eq!(show(PROTECTION, 0), "PROT_NONE");
        assert_eq!(show(PROTECTION, 3), "PROT_READ|PROT_WRITE");
        assert_eq!(show(MAPPING, 0x8_0022), "MAP_PRIVATE|MAP_ANONYMOUS|0x80000");
        assert_eq!(show(AT, 0), "0");
        assert_eq!(choose(SEEK, 9), "0x9");
        assert_eq!(
            [signal(9), signal(34), signal(99)],
            ["SIGKILL", "SIGRT_2", "99"]
        );
    }
}
