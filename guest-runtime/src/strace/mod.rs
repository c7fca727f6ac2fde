//! `hartline run --strace`: formats system calls, signals and exits as strace(1) does. The kernel
//! writes the lines.
//!
//! A line is written when its call returns. Input arguments are decoded when the call begins,
//! output arguments when it returns. [`hartline_linux::syscall`] lists the arguments of each call.

mod flags;

use crate::convert::low_u32;
use crate::mm::{AddressSpace, user};
use crate::net::address::{Address, Family};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::AT_FDCWD;
use hartline_linux::names;
use hartline_linux::signal::_NSIG;
use hartline_linux::socket::{AF_INET, AF_INET6, AF_UNIX, AF_VSOCK};
use hartline_linux::syscall::{Argument, Outcome, find};

/// The maximum number of bytes shown of a string (strace's `-s`).
const SHOWN: usize = 32;
/// The maximum number of elements shown of an array.
const ELEMENTS: u64 = 32;

/// The argument kinds of a call that Linux does not have.
const UNKNOWN: &[Argument] = &[Argument::Hex; 6];

fn arguments_of(number: u64) -> &'static [Argument] {
    find(number).map_or(UNKNOWN, |call| call.arguments)
}

fn outcome_of(number: u64) -> Outcome {
    find(number).map_or(Outcome::Number, |call| call.outcome)
}

/// A call that has not returned.
#[derive(Debug)]
pub struct Pending {
    number: u64,
    arguments: [u64; 6],
    /// Arguments decoded so far; `None` for output arguments.
    texts: Vec<Option<String>>,
}

/// Records the start of a call.
pub(crate) fn begin(memory: &mut AddressSpace, number: u64, arguments: &[u64; 6]) -> Pending {
    let kinds = arguments_of(number).iter().enumerate();
    let texts = kinds.map(|(n, kind)| match kind.comes_out() {
        true => None,
        false => Some(show_argument(memory, *kind, arguments, n, 0)),
    });
    Pending {
        number,
        arguments: *arguments,
        texts: texts.collect(),
    }
}

impl Pending {
    /// Whether the call never returns.
    pub(crate) fn is_last(&self) -> bool {
        matches!(outcome_of(self.number), Outcome::Never)
    }

    /// The line of the call, which returns `result`, or never.
    pub(crate) fn line(
        &self,
        memory: &mut AddressSpace,
        result: Option<Result<u64, Errno>>,
    ) -> String {
        let Pending {
            number,
            arguments,
            texts,
        } = self;
        let mut line = match find(*number) {
            Some(call) => format!("{}(", call.name),
            None => format!("syscall_{number:#x}("),
        };
        let kinds = arguments_of(*number);
        for (n, (kind, text)) in kinds.iter().zip(texts).enumerate() {
            if matches!(kind, Argument::OpenMode) && arguments[n - 1] & names::CREATES == 0 {
                continue;
            }
            if n > 0 {
                line.push_str(", ");
            }
            match (text, result) {
                (Some(text), _) => line.push_str(text),
                (None, Some(Ok(result))) => {
                    line.push_str(&show_argument(memory, *kind, arguments, n, result));
                }
                (None, _) => line.push_str(&pointer(arguments[n])),
            }
        }
        // strace aligns results in a column.
        let _ = write!(line, "){:1$} = ", "", 38_usize.saturating_sub(line.len()));
        match (result, outcome_of(*number)) {
            (None, _) => line.push('?'),
            (Some(Ok(value)), Outcome::Address) => line.push_str(&format!("{value:#x}")),
            (Some(Ok(value)), _) => line.push_str(&format!("{}", value.cast_signed())),
            (Some(Err(error)), _) => {
                let name = error.name().unwrap_or("EUNKNOWN");
                let _ = write!(line, "-1 {name} ({})", error.description());
            }
        }
        line
    }
}

/// The line of a signal that is delivered; `details` describes its `siginfo_t`.
pub(crate) fn signal(signal: u8, details: &str) -> String {
    let name = flags::signal(u64::from(signal));
    format!("--- {name} {{si_signo={name}, {details}}} ---")
}

/// The line of a process's exit with a status.
pub(crate) fn exited(status: u8) -> String {
    format!("+++ exited with {status} +++")
}

/// The line of a process's end by a signal.
pub(crate) fn killed(signal: u8, has_core: bool) -> String {
    let core = if has_core { " (core dumped)" } else { "" };
    format!(
        "+++ killed by {}{core} +++",
        flags::signal(u64::from(signal))
    )
}

/// Formats argument `n`, which is of this kind.
fn show_argument(
    memory: &mut AddressSpace,
    kind: Argument,
    a: &[u64; 6],
    n: usize,
    result: u64,
) -> String {
    let value = a[n];
    match kind {
        Argument::Int | Argument::Fd => format!("{}", low_u32(value).cast_signed()),
        Argument::Long => format!("{}", value.cast_signed()),
        Argument::Size => format!("{value}"),
        Argument::Octal => format!("0{:o}", low_u32(value)),
        Argument::Pointer => pointer(value),
        Argument::Hex => format!("{value:#x}"),
        Argument::DirFd => match low_u32(value).cast_signed() {
            AT_FDCWD => "AT_FDCWD".into(),
            fd => format!("{fd}"),
        },
        Argument::Path => show_path(memory, value),
        Argument::Strings => show_strings(memory, value),
        Argument::Count => show_count(memory, value),
        Argument::Bytes => show_bytes(memory, value, a[n + 1]),
        Argument::OutBytes => show_bytes(memory, value, result.min(a[n + 1])),
        Argument::OutInts => show_ints(memory, value),
        Argument::Time | Argument::OutTime => show_time(memory, value),
        Argument::Signal => flags::signal(value),
        Argument::SignalSet => show_set(memory, value),
        Argument::Address => show_address(memory, value, a[n + 1]),
        Argument::OutStatus => show_status(memory, value, result),
        Argument::OpenMode => format!("0{:o}", low_u32(value)),
        Argument::Flags(names) => flags::show(names, value),
        Argument::Choice(names) => flags::choose(names, value),
    }
}

fn show_path(memory: &mut AddressSpace, address: u64) -> String {
    match user::path(memory, address) {
        Ok(path) => quoted(&path, path.len()),
        Err(_) => pointer(address),
    }
}

fn show_bytes(memory: &mut AddressSpace, address: u64, length: u64) -> String {
    let shown = length.min(SHOWN as u64);
    match user::slice(memory, address, shown) {
        Ok(bytes) if shown == length => quoted(&bytes.to_vec(), SHOWN),
        Ok(bytes) => format!("{}...", quoted(&bytes.to_vec(), SHOWN)),
        Err(_) => pointer(address),
    }
}

/// Reads the pointers of a null-terminated vector; the flag says whether the terminator was
/// found.
fn pointers(memory: &mut AddressSpace, address: u64, most: u64) -> Option<(Vec<u64>, bool)> {
    let mut pointers = Vec::new();
    for n in 0..most {
        match user::read(memory, address.wrapping_add(8 * n)).ok()? {
            0 => return Some((pointers, true)),
            pointer => pointers.push(pointer),
        }
    }
    Some((pointers, false))
}

fn show_strings(memory: &mut AddressSpace, address: u64) -> String {
    let Some((pointers, complete)) = pointers(memory, address, ELEMENTS) else {
        return pointer(address);
    };
    let strings: Vec<String> = pointers
        .into_iter()
        .map(|at| show_path(memory, at))
        .collect();
    let rest = if complete { "" } else { ", ..." };
    format!("[{}{rest}]", strings.join(", "))
}

/// Shows the number of strings, as strace does for the environment.
fn show_count(memory: &mut AddressSpace, address: u64) -> String {
    match pointers(memory, address, 1 << 16) {
        Some((pointers, _)) => format!("{address:#x} /* {} vars */", pointers.len()),
        None => pointer(address),
    }
}

fn show_ints(memory: &mut AddressSpace, address: u64) -> String {
    match user::read::<[i32; 2]>(memory, address) {
        Ok([first, second]) => format!("[{first}, {second}]"),
        Err(_) => pointer(address),
    }
}

fn show_address(memory: &mut AddressSpace, address: u64, length: u64) -> String {
    let Ok(bytes) = user::sockaddr(memory, address, length) else {
        return pointer(address);
    };
    let family = match Address::family_of(&bytes) {
        Ok(AF_UNIX) => Family::Unix,
        Ok(AF_INET) => Family::Inet,
        Ok(AF_INET6) => Family::Inet6,
        Ok(AF_VSOCK) => Family::Vsock,
        _ => return pointer(address),
    };
    let name = flags::choose(names::FAMILY, u64::from(family.number()));
    let rest = match Address::parse(&bytes, family) {
        Ok(Address::Path(path)) => format!("sun_path={}", quoted(&path, path.len())),
        Ok(Address::Abstract(name)) => format!("sun_path=@{}", quoted(&name, name.len())),
        Ok(Address::Inet(to)) if family == Family::Inet => {
            let (port, ip) = (to.port(), to.ip());
            format!("sin_port=htons({port}), sin_addr=inet_addr(\"{ip}\")")
        }
        Ok(Address::Inet(to)) => {
            let (port, ip) = (to.port(), to.ip());
            format!("sin6_port=htons({port}), sin6_addr=\"{ip}\"")
        }
        Ok(Address::Vsock(cid, port)) => format!("svm_cid={cid:#x}, svm_port={port:#x}"),
        _ => return format!("{{sa_family={name}}}"),
    };
    format!("{{sa_family={name}, {rest}}}")
}

/// Shows the status that `wait4` stores, if it stores one.
fn show_status(memory: &mut AddressSpace, address: u64, result: u64) -> String {
    let status = match user::read::<u32>(memory, address) {
        Ok(status) if result != 0 => status,
        _ => return pointer(address),
    };
    let (signal, code) = (u64::from(status & 0x7f), status >> 8 & 0xff);
    match (status, signal) {
        (0xffff, _) => "[{WIFCONTINUED(s)}]".into(),
        (_, 0) => format!("[{{WIFEXITED(s) && WEXITSTATUS(s) == {code}}}]"),
        (_, 0x7f) => {
            let name = flags::signal(u64::from(code));
            format!("[{{WIFSTOPPED(s) && WSTOPSIG(s) == {name}}}]")
        }
        _ => format!(
            "[{{WIFSIGNALED(s) && WTERMSIG(s) == {}}}]",
            flags::signal(signal)
        ),
    }
}

fn show_time(memory: &mut AddressSpace, address: u64) -> String {
    match user::read::<[i64; 2]>(memory, address) {
        Ok([seconds, rest]) if address != 0 => {
            format!("{{tv_sec={seconds}, tv_nsec={rest}}}")
        }
        _ => pointer(address),
    }
}

fn show_set(memory: &mut AddressSpace, address: u64) -> String {
    let Ok(set) = user::read::<u64>(memory, address) else {
        return pointer(address);
    };
    // A set of most signals is shown by the signals that are missing from it.
    let (mark, set) = match set.count_ones() > 32 {
        true => ("~", !set),
        false => ("", set),
    };
    let names: Vec<String> = (1..=u64::from(_NSIG))
        .filter(|signal| set & 1 << (signal - 1) != 0)
        .map(|signal| flags::signal(signal).replace("SIG", ""))
        .collect();
    format!("{mark}[{}]", names.join(" "))
}

fn pointer(address: u64) -> String {
    match address {
        0 => "NULL".into(),
        address => format!("{address:#x}"),
    }
}

/// Formats bytes as a C string literal.
fn quoted(bytes: &[u8], most: usize) -> String {
    let mut text = String::from("\"");
    let shown = &bytes[..bytes.len().min(most)];
    for (n, &byte) in shown.iter().enumerate() {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'"' | b'\\' => text.extend(['\\', byte as char]),
            b' '..=b'~' => text.push(byte as char),
            // An octal escape needs three digits if a digit follows.
            _ if shown.get(n + 1).is_some_and(u8::is_ascii_digit) => {
                let _ = write!(text, "\\{byte:03o}");
            }
            _ => {
                let _ = write!(text, "\\{byte:o}");
            }
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_in_c() {
        assert_eq!(
            quoted(b"a\"b\\\n\t\x01\x019\xff", 32),
            r#""a\"b\\\n\t\1\0019\377""#
        );
        assert_eq!(quoted(b"abcdef", 3), "\"abc\"");
    }
}
