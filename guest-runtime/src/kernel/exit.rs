//! The end of the program: the report for the VMM.

use crate::arch::clock;
use crate::arch::host::yield_processor;
use crate::convert::low_u32;
use crate::exec::images::Location;
use crate::kernel::Kernel;
use crate::kernel::process::Status;
use crate::mm::Label;
use alloc::boxed::Box;
use hartline_abi::port;
pub use hartline_abi::report::Cause;
use hartline_abi::report::{ExitKind, ExitReport, FileMapping};
use hartline_linux::signal::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSYS, SIGTRAP};

/// A fault of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Signal of the fault.
    pub signal: u8,
    /// `si_code` of the signal.
    pub code: i32,
    /// Cause of the fault.
    pub cause: Cause,
    /// The faulting address.
    pub address: u64,
    /// Set if the fault was in translated code.
    pub host: Option<Box<HostFault>>,
}

/// Location of a fault in translated code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFault {
    /// rip.
    pub pc: u64,
    /// The location of `pc` in its image; `None` if the image is not in use any more.
    pub location: Option<Location>,
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8–r15.
    pub registers: [u64; 16],
    /// The integer registers in the hart.
    pub hart: [u64; 32],
}

/// How the program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// `exit_group` with this status, 0–255.
    Exited(u8),
    /// Killed by a signal.
    Signaled(u8),
    /// Killed by the signal of a fault.
    Fault(Fault),
    /// RAM is used up.
    OutOfMemory,
}

impl End {
    /// The status for the parent of the process.
    #[must_use]
    pub fn status(&self, has_core: bool) -> Status {
        let signal = match self {
            Self::Exited(code) => return Status::Exited(*code),
            Self::Signaled(signal) => *signal,
            Self::Fault(fault) => fault.signal,
            Self::OutOfMemory => SIGKILL,
        };
        Status::Signaled { signal, has_core }
    }
}

/// Longest wait for other hosts at the end, and for the address of one that gets a datagram, ns.
const PATIENCE: [u64; 2] = [10_000_000_000, 1_000_000_000];

/// An empty report.
const NO_REPORT: ExitReport = ExitReport {
    kind: 0,
    code: 0,
    cause: 0,
    pc_exact: 0,
    pc: 0,
    address: 0,
    host_pc: 0,
    page_table: 0,
    trampoline: 0,
    image_offset: 0,
    image: 0,
    x: [0; 32],
    host_registers: [0; 16],
    message_length: 0,
    reserved: 0,
    message: [0; 256],
    syscalls: 0,
    peak_memory: 0,
    interpreter_entries: 0,
    interpreted: 0,
    compared: 0,
    not_compared: 0,
    schedule: 0,
    missing_syscalls: [[0; 2]; 8],
};

/// Creates the report of an end, with the kernel's counters.
#[must_use]
pub fn report(kernel: &mut Kernel, end: &End) -> ExitReport {
    kernel.flush_terminal();
    let mut report = NO_REPORT;
    match end {
        End::Exited(status) => {
            report.kind = ExitKind::Exited as u32;
            report.code = u32::from(*status);
        }
        End::Signaled(signal) => {
            report.kind = ExitKind::Signaled as u32;
            report.code = u32::from(*signal);
            if is_error(*signal) {
                fill_location(&mut report, kernel);
            }
        }
        End::Fault(fault) => fill_fault(&mut report, kernel, fault),
        End::OutOfMemory => {
            report.kind = ExitKind::OutOfMemory as u32;
            let ram = kernel.memory().frames().lock().ram().length();
            let own = kernel.memory().all_resident();
            set_message(
                &mut report,
                format_args!(
                    "all {} MiB of the VM's memory are used, {} MiB by the first process",
                    ram >> 20,
                    own >> 20
                ),
            );
        }
    }
    report.syscalls = kernel.syscalls;
    report.peak_memory = kernel.memory().frames().lock().peak();
    report.interpreter_entries = kernel.interpreter_entries;
    report.interpreted = kernel.interpreted();
    report.schedule = kernel.chaos.schedule();
    if let Some(shadow) = &kernel.shadow {
        (report.compared, report.not_compared) = shadow.counts();
    }
    for (slot, missing) in report.missing_syscalls.iter_mut().zip(&kernel.missing) {
        *slot = *missing;
    }
    report
}

fn fill_fault(report: &mut ExitReport, kernel: &mut Kernel, fault: &Fault) {
    report.kind = ExitKind::Fault as u32;
    report.code = u32::from(fault.signal);
    report.cause = fault.cause as u32;
    report.address = fault.address;
    fill_location(report, kernel);
    match &fault.host {
        None => {}
        Some(host) => {
            (report.pc, report.pc_exact) = (0, 0);
            report.host_pc = host.pc;
            if let Some(location) = &host.location {
                report.pc = location.function;
                report.image_offset = location.image_offset;
                report.image = location.origin.gpa;
            }
            report.host_registers = host.registers;
            report.x = host.hart;
        }
    }
}

/// Whether the default action of a signal is for errors of the program: Linux writes a core dump.
fn is_error(signal: u8) -> bool {
    matches!(
        signal,
        SIGILL | SIGTRAP | SIGABRT | SIGBUS | SIGFPE | SIGSEGV | SIGSYS
    )
}

/// Fills in where the running task is, and what the VMM needs to find its callers.
fn fill_location(report: &mut ExitReport, kernel: &mut Kernel) {
    report.pc = kernel.hart().pc.get();
    report.pc_exact = 1;
    report.x = kernel.hart().x.get();
    report.page_table = kernel.memory().table_address();
    report.trampoline = kernel.process().signals.trampoline;
    report_code(kernel);
}

/// Writes the code that the running process has mapped, for the VMM.
pub(super) fn report_code(kernel: &Kernel) {
    let code = kernel.memory().vmas().iter().filter_map(|(start, vma)| {
        let Label::File(file) = &vma.label else {
            return None;
        };
        vma.protection.executable().then_some(FileMapping {
            start,
            end: vma.end,
            offset: file.offset,
            inode: file.inode?.into(),
        })
    });
    kernel.host.report_mappings(code);
}

/// Sets the message of a report, truncated to its buffer.
fn set_message(report: &mut ExitReport, message: core::fmt::Arguments<'_>) {
    let mut writer = MessageWriter { report };
    // The writer never fails.
    let _ = core::fmt::write(&mut writer, message);
}

struct MessageWriter<'a> {
    report: &'a mut ExitReport,
}

impl core::fmt::Write for MessageWriter<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for character in text.chars() {
            // The message is one line, whatever it is made of.
            let character = if character.is_control() {
                ' '
            } else {
                character
            };
            let used = self.report.message_length as usize;
            let Some(room) = self.report.message.get_mut(used..) else {
                break;
            };
            if character.len_utf8() > room.len() {
                break;
            }
            let length = character.encode_utf8(room).len();
            self.report.message_length += low_u32(length as u64);
        }
        Ok(())
    }
}

/// Creates the report of a runtime that cannot continue.
#[must_use]
pub fn error_report(kind: ExitKind, message: core::fmt::Arguments<'_>) -> ExitReport {
    let mut report = NO_REPORT;
    report.kind = kind as u32;
    set_message(&mut report, message);
    report
}

/// Ends the program; the VMM does not continue the vCPU.
pub fn end(kernel: &mut Kernel, end: &End) -> ! {
    kernel.vfs.fs.write_back_volumes();
    let report = report(kernel, end);
    let host = kernel.host;
    host.report(&report);
    if *end != End::OutOfMemory {
        deliver(kernel);
    }
    loop {
        host.ring(port::EXIT);
    }
}

/// Closes all sockets, and waits until other hosts have what the programs have sent. On Linux, the kernel goes on
/// with this after the end of a program. A signal from outside ends the wait.
fn deliver(kernel: &mut Kernel) {
    if !kernel.net.has_device() {
        return;
    }
    kernel.net.close_all();
    let begin = clock::monotonic();
    loop {
        kernel.poll_network();
        let time = clock::monotonic() - begin;
        let is_delivered = kernel.net.is_delivered(time < PATIENCE[1]);
        if is_delivered || kernel.has_signals() || time >= PATIENCE[0] {
            return;
        }
        yield_processor();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line_and_cut() {
        let report = error_report(
            ExitKind::RuntimeError,
            format_args!("a\nb{}", "é".repeat(300)),
        );
        let text = core::str::from_utf8(&report.message[..report.message_length as usize]);
        let text = text.unwrap();
        assert!(text.starts_with("a béé"));
        assert!(text.len() >= 255);
    }
}
