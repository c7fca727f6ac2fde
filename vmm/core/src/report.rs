//! The report of a VM's end: an exit code, and lines for standard error. Everything in an exit
//! report comes from the guest and is checked before it is printed.

use crate::control::Stop;
use crate::locate::Located;
use crate::run::End;
use hartline_abi::hart::PINNED_X;
use hartline_abi::report::{Cause, ExitKind, ExitReport};
use object::{Object, ObjectSymbol};
use std::fmt::Write;

/// Exit code of Hartline's own failures, and of VMs that cannot continue.
pub const FAILURE: u8 = 125;
/// Exit code after `--timeout`, as of timeout(1).
pub const TIMED_OUT: u8 = 124;

/// Makes a panic of any thread end the process with `SIGABRT`, after its message. The commands call
/// this first: no thread goes on with what another one has left half done.
pub fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

/// Names of the integer registers (RISC-V psABI, "Integer Register Convention").
const REGISTERS: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4",
    "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
    "t5", "t6",
];

/// Describes the call stack of a report as lines, from the pc and the integer registers.
pub type DescribeStack<'a> = &'a dyn Fn(&ExitReport, u64, &[Option<u64>; 32]) -> Vec<String>;

/// The program's data for readable reports.
pub struct Program<'a> {
    /// Its name, for messages.
    pub name: &'a str,
    /// Its ELF file.
    pub elf: &'a [u8],
    /// Finds the guest's state at a fault in translated code. The report that it gets cannot be
    /// trusted.
    pub locate: &'a dyn Fn(&ExitReport) -> Option<Located>,
    /// Describes the call stack of a report with a page table. The report cannot be trusted.
    pub stack: DescribeStack<'a>,
}

/// The end as shown to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Exit code of the command.
    pub code: u8,
    /// Lines for standard error; empty if there is no message.
    pub message: String,
}

impl Verdict {
    /// The verdict with a line for each device that could not be started, before the lines of the
    /// end.
    pub(crate) fn with_device_errors(mut self, name: &str, errors: &[String]) -> Self {
        let lines = errors.iter().map(|error| format!("{name}: {error}"));
        let message = Some(self.message).filter(|message| !message.is_empty());
        let lines: Vec<_> = lines.chain(message).collect();
        self.message = lines.join("\n");
        self
    }
}

/// Makes the verdict for an end.
#[must_use]
pub fn judge(end: &End, program: &Program<'_>) -> Verdict {
    match end {
        End::Report(report) => judge_report(report, program),
        End::Failed(failure) => fail(
            FAILURE,
            format!("{}: the VM was ended: {failure}", program.name),
        ),
        End::Stopped(Stop::Timeout) => fail(
            TIMED_OUT,
            format!(
                "{}: ended: the time given with --timeout is over",
                program.name
            ),
        ),
        End::Stopped(Stop::Signal(signal)) => fail(
            signal_code(signal.unsigned_abs()),
            format!(
                "{}: ended by {} from outside",
                program.name,
                signal_name(signal.unsigned_abs())
            ),
        ),
        End::Stopped(Stop::Volumes) => fail(
            FAILURE,
            format!(
                "{}: the VM was ended: the thread that serves its volumes has ended",
                program.name
            ),
        ),
        End::Stopped(Stop::Gate(error)) => fail(
            FAILURE,
            format!("{}: the VM was ended: {error}", program.name),
        ),
        End::Stopped(Stop::Closed) => Verdict {
            code: 0,
            message: String::new(),
        },
        // The request's receiver knows the reason of a failure.
        End::Stopped(Stop::Snapshot { is_written }) => Verdict {
            code: if *is_written { 0 } else { FAILURE },
            message: String::new(),
        },
        End::Stopped(Stop::Device(broken)) => fail(
            FAILURE,
            format!("{}: the VM was ended: {broken}", program.name),
        ),
    }
}

fn fail(code: u8, message: String) -> Verdict {
    Verdict { code, message }
}

fn judge_report(report: &ExitReport, program: &Program<'_>) -> Verdict {
    const EXITED: u32 = ExitKind::Exited as u32;
    const SIGNALED: u32 = ExitKind::Signaled as u32;
    const FAULT: u32 = ExitKind::Fault as u32;
    const OUT_OF_MEMORY: u32 = ExitKind::OutOfMemory as u32;
    const RUNTIME_ERROR: u32 = ExitKind::RuntimeError as u32;
    const NOT_LOADED: u32 = ExitKind::NotLoaded as u32;
    let name = program.name;
    match report.kind {
        // As in Linux, the low byte of the argument of exit_group(2).
        EXITED => Verdict {
            code: report.code.to_le_bytes()[0],
            message: String::new(),
        },
        // As a shell would say it, and for SIGPIPE not at all. Errors of the program have a stack.
        SIGNALED => Verdict {
            code: signal_code(report.code),
            message: match report.page_table {
                0 => String::new(),
                _ => signal(report, program),
            },
        },
        FAULT => fail(signal_code(report.code), fault(report, program)),
        OUT_OF_MEMORY => fail(
            FAILURE,
            format!(
                "{name}: out of memory: {}; give more with --mem",
                message(report)
            ),
        ),
        RUNTIME_ERROR => fail(
            FAILURE,
            format!(
                "{name}: the guest runtime cannot go on: {}",
                message(report)
            ),
        ),
        NOT_LOADED => fail(FAILURE, format!("{name}: {}", message(report))),
        kind => fail(
            FAILURE,
            format!("{name}: the guest reported an unknown end ({kind})"),
        ),
    }
}

/// 128 + n for the 64 signals that exist.
fn signal_code(signal: u32) -> u8 {
    u8::try_from(signal)
        .ok()
        .filter(|n| (1..=64).contains(n))
        .map_or(FAILURE, |n| 128 + n)
}

fn signal_name(signal: u32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        31 => "SIGSYS",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        other => return format!("signal {other}"),
    };
    name.into()
}

fn cause_text(report: &ExitReport) -> String {
    const FETCH: u32 = Cause::InstructionPageFault as u32;
    const ILLEGAL: u32 = Cause::IllegalInstruction as u32;
    const BREAKPOINT: u32 = Cause::Breakpoint as u32;
    const LOAD_MISALIGNED: u32 = Cause::LoadMisaligned as u32;
    const STORE_MISALIGNED: u32 = Cause::StoreMisaligned as u32;
    const LOAD: u32 = Cause::LoadPageFault as u32;
    const STORE: u32 = Cause::StorePageFault as u32;
    let address = report.address;
    match report.cause {
        FETCH => format!("instruction page fault at {address:#x}"),
        ILLEGAL => "illegal instruction".into(),
        BREAKPOINT => "breakpoint".into(),
        LOAD_MISALIGNED => format!("misaligned load-reserved at {address:#x}"),
        STORE_MISALIGNED => format!("misaligned atomic store at {address:#x}"),
        LOAD => format!("load page fault at {address:#x}"),
        STORE => format!("store page fault at {address:#x}"),
        other => format!("unknown cause {other} at {address:#x}"),
    }
}

/// The report of a signal that is an error of the program: one line, then the call stack.
fn signal(report: &ExitReport, program: &Program<'_>) -> String {
    let pc = report.pc;
    let mut text = format!(
        "{}: {}, at pc {pc:#x}",
        program.name,
        signal_name(report.code)
    );
    for line in (program.stack)(report, pc, &report.x.map(Some)) {
        text.push('\n');
        text.push_str(&line);
    }
    text
}

/// The fault report: one line, then the registers and the call stack.
fn fault(report: &ExitReport, program: &Program<'_>) -> String {
    let exact = report.pc_exact == 1;
    let located = if exact {
        None
    } else {
        (program.locate)(report)
    };
    let relation = if exact || located.is_some() {
        "at pc"
    } else {
        "in the function at pc"
    };
    let (pc, bias) = located.as_ref().map_or((report.pc, 0), |l| (l.pc, l.bias));
    let mut text = format!(
        "{}: {}: {}, {relation} {pc:#x}{}",
        program.name,
        signal_name(report.code),
        cause_text(report),
        symbol(program.elf, pc.wrapping_sub(bias)),
    );
    let x = match &located {
        Some(located) => located.x,
        None => std::array::from_fn(|number| register(report, number)),
    };
    for (row, names) in REGISTERS.chunks(4).enumerate() {
        text.push('\n');
        for (column, name) in names.iter().enumerate() {
            let value = x[row * 4 + column];
            // A dash: translated code did not keep the register.
            let value = value.map_or("-".into(), |value| format!("{value:016x}"));
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "{}{name:>4} {value:>16}",
                if column == 0 { "" } else { "  " }
            );
        }
    }
    if report.page_table != 0 {
        for line in (program.stack)(report, pc, &x) {
            text.push('\n');
            text.push_str(&line);
        }
    }
    text
}

/// A register's value; `None` if translated code held it in a host register whose meaning at the
/// fault is not known.
fn register(report: &ExitReport, number: usize) -> Option<u64> {
    let pinned = PINNED_X.iter().any(|&n| usize::from(n) == number);
    (report.pc_exact == 1 || !pinned).then_some(report.x[number])
}

/// ` <name+offset>` of the function at a guest address, if the ELF file has symbols. The file may
/// contain anything: unreadable parts have no symbols.
fn symbol(elf: &[u8], pc: u64) -> String {
    const LONGEST: usize = 200;
    let Ok(file) = object::File::parse(elf) else {
        return String::new();
    };
    let covering = |symbol: &object::Symbol<'_, '_>| {
        // A mapping symbol names the kind of code (RISC-V ELF psABI).
        if symbol
            .name_bytes()
            .is_ok_and(|name| name.is_empty() || name.starts_with(b"$"))
            || symbol.kind() == object::SymbolKind::File
        {
            return None;
        }
        pc.checked_sub(symbol.address())
            .filter(|&offset| offset < symbol.size().max(1))
    };
    let best = file
        .symbols()
        .filter_map(|s| Some((covering(&s)?, s)))
        .min_by_key(|&(at, _)| at);
    match best {
        Some((offset, symbol)) => {
            let name = symbol.name_bytes().unwrap_or_default();
            let name = &name[..name.len().min(LONGEST)];
            format!(" <{}+{offset:#x}>", name.escape_ascii())
        }
        None => String::new(),
    }
}

/// The runtime's message as one line of printable characters.
fn message(report: &ExitReport) -> String {
    let length = (report.message_length as usize).min(report.message.len());
    let text = String::from_utf8_lossy(&report.message[..length]);
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Plain;
    use std::convert::Infallible;

    fn report(kind: u32, code: u32) -> Box<ExitReport> {
        let zeros = |bytes: &mut [u8]| -> Result<(), Infallible> {
            bytes.fill(0);
            Ok(())
        };
        let mut report: Box<ExitReport> = Box::new(Plain::read(zeros).unwrap());
        (report.kind, report.code) = (kind, code);
        report
    }

    fn judged(report: Box<ExitReport>) -> Verdict {
        let program = Program {
            name: "prog",
            elf: &[],
            locate: &|_| None,
            stack: &|_, pc, x| vec![format!("#0 {pc:#x} {:x?}", x[10])],
        };
        judge(&End::Report(report), &program)
    }

    #[test]
    fn exit_codes() {
        let code = |kind: ExitKind, code| judged(report(kind as u32, code)).code;
        assert_eq!(code(ExitKind::Exited, 3), 3);
        assert_eq!(code(ExitKind::Signaled, 15), 143);
        assert_eq!(code(ExitKind::Fault, 11), 139);
        assert_eq!(code(ExitKind::Fault, 1000), FAILURE);
        assert_eq!(code(ExitKind::Signaled, 0), FAILURE);
        assert_eq!(judged(report(77, 0)).code, FAILURE);
    }

    #[test]
    fn devices_that_cannot_start_are_named() {
        let errors = ["virtio-net: no".to_owned(), "virtio-rng: no".to_owned()];
        let verdict = |kind| judged(report(kind, 7)).with_device_errors("prog", &errors);
        let ended = verdict(ExitKind::Exited as u32);
        assert_eq!(ended.code, 7);
        assert_eq!(ended.message, "prog: virtio-net: no\nprog: virtio-rng: no");
        let unknown = verdict(77).message;
        assert!(unknown.starts_with("prog: virtio-net: no\nprog: virtio-rng: no\nprog: the guest"));
        let none = judged(report(ExitKind::Exited as u32, 7)).with_device_errors("prog", &[]);
        assert_eq!(none.message, "");
    }

    #[test]
    fn fault_names_cause_and_registers() {
        let mut fault = report(ExitKind::Fault as u32, 11);
        (fault.cause, fault.pc_exact, fault.pc, fault.address) = (13, 1, 0x10500, 0x8);
        fault.x[10] = 0xdead_beef;
        let text = judged(fault.clone()).message;
        assert!(
            text.starts_with("prog: SIGSEGV: load page fault at 0x8, at pc 0x10500\n"),
            "{text}"
        );
        assert!(text.contains("  a0 00000000deadbeef"), "{text}");
        assert_eq!(text.lines().count(), 9);
        fault.pc_exact = 0;
        let text = judged(fault).message;
        assert!(text.contains("in the function at pc 0x10500"), "{text}");
        assert!(text.contains("  a0                -"), "{text}");
    }

    #[test]
    fn located_faults_tell_what_was_found() {
        let mut fault = report(ExitKind::Fault as u32, 11);
        (fault.cause, fault.pc, fault.host_pc) = (15, 0x10500, 0x300_0000_2000);
        let locate = |report: &ExitReport| {
            assert_eq!(report.host_pc, 0x300_0000_2000);
            let mut x = [None; 32];
            x[10] = Some(0x77);
            Some(Located {
                pc: 0x10504,
                bias: 0,
                x,
            })
        };
        let program = Program {
            name: "prog",
            elf: &[],
            locate: &locate,
            stack: &|_, _, _| Vec::new(),
        };
        let text = judge(&End::Report(fault), &program).message;
        assert!(text.contains("at pc 0x10504"), "{text}");
        assert!(text.contains("  a0 0000000000000077"), "{text}");
        assert!(text.contains("  a1                -"), "{text}");
    }

    #[test]
    fn errors_of_the_program_have_a_stack() {
        let mut abort = report(ExitKind::Signaled as u32, 6);
        assert_eq!(judged(abort.clone()).message, "");
        (abort.page_table, abort.pc, abort.x[10]) = (0x1000, 0x10500, 7);
        let text = judged(abort).message;
        assert_eq!(text, "prog: SIGABRT, at pc 0x10500\n#0 0x10500 Some(7)");
        let mut fault = report(ExitKind::Fault as u32, 11);
        (fault.page_table, fault.pc, fault.pc_exact) = (0x1000, 0x10500, 0);
        let text = judged(fault).message;
        assert!(text.ends_with("\n#0 0x10500 None"), "{text}");
    }

    #[test]
    fn hostile_messages_stay_on_one_line() {
        let mut bad = report(ExitKind::RuntimeError as u32, 0);
        bad.message[..8].copy_from_slice(b"a\nb\x1b[1m\xff");
        bad.message_length = u32::MAX;
        let text = judged(bad).message;
        assert!(!text.contains(['\n', '\x1b']), "{text:?}");
    }
}
