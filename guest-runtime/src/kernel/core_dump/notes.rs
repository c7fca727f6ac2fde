//! The notes of a core dump: registers of threads, the process, the signal, and the mapped files.

use super::Thread;
use crate::convert::{low_u32, to_usize};
use crate::kernel::Kernel;
use crate::kernel::process::Process;
use crate::kernel::signals::SigInfo;
use crate::mm::Label;
use alloc::vec::Vec;
use hartline_abi::layout::PAGE_SIZE;
use hartline_linux::elfcore::{
    Elf64Nhdr, ElfFpregset, ElfPrpsinfo, ElfPrstatus, NT_AUXV, NT_FILE, NT_PRFPREG, NT_PRPSINFO,
    NT_PRSTATUS, NT_SIGINFO,
};
use zerocopy::IntoBytes;

/// The notes, in the order in which Linux writes them.
pub(super) fn notes(kernel: &Kernel, info: &SigInfo, threads: &[Thread]) -> Vec<u8> {
    let mut notes = Vec::new();
    let process = kernel.process();
    for (number, thread) in threads.iter().enumerate() {
        let status = status(process, info, thread);
        put(&mut notes, NT_PRSTATUS, status.as_bytes());
        if number == 0 {
            put(&mut notes, NT_PRPSINFO, program(kernel).as_bytes());
            put(&mut notes, NT_SIGINFO, info.as_bytes());
            put(&mut notes, NT_AUXV, &auxiliary(kernel));
            put(&mut notes, NT_FILE, &files(kernel));
        }
        let floats = ElfFpregset {
            f: thread.registers.f,
            fcsr: thread.registers.fcsr,
            pad: 0,
        };
        put(&mut notes, NT_PRFPREG, floats.as_bytes());
    }
    notes
}

fn put(notes: &mut Vec<u8>, kind: u32, contents: &[u8]) {
    const NAME: &[u8; 8] = b"CORE\0\0\0\0";
    let header = Elf64Nhdr {
        n_namesz: 5,
        n_descsz: low_u32(contents.len() as u64),
        n_type: kind,
    };
    notes.extend_from_slice(header.as_bytes());
    notes.extend_from_slice(NAME);
    notes.extend_from_slice(contents);
    notes.resize(notes.len().next_multiple_of(4), 0);
}

fn status(process: &Process, info: &SigInfo, thread: &Thread) -> ElfPrstatus {
    let Process {
        parent,
        group,
        session,
        cpu_time,
        children_time,
        ..
    } = *process;
    let time = |ns: u64| [ns / 1_000_000_000, ns / 1000 % 1_000_000];
    let mut registers = thread.registers.x;
    registers[0] = thread.registers.pc;
    ElfPrstatus {
        si_signo: info.signal().into(),
        si_code: info.code(),
        si_errno: 0,
        pr_cursig: info.signal().into(),
        pad: 0,
        pr_sigpend: thread.signals[0],
        pr_sighold: thread.signals[1],
        pr_pid: thread.tid,
        pr_ppid: parent,
        pr_pgrp: group,
        pr_sid: session,
        pr_times: [time(cpu_time), time(0), time(children_time), time(0)],
        pr_reg: registers,
        pr_fpvalid: 1,
        pad2: 0,
    }
}

fn program(kernel: &Kernel) -> ElfPrpsinfo {
    let process = kernel.process();
    let credentials = process.credentials();
    let mut arguments = [0; 80];
    let range = process.arguments.clone();
    let bytes = kernel.memory().peek(range);
    // The last byte stays zero.
    for (to, from) in arguments[..79].iter_mut().zip(bytes) {
        *to = if from == 0 { b' ' } else { from };
    }
    ElfPrpsinfo {
        pr_state: 0,
        pr_sname: b'R',
        pr_zomb: 0,
        pr_nice: process.nice,
        pad: 0,
        pr_flag: 0,
        pr_uid: credentials.user.real,
        pr_gid: credentials.group.real,
        pr_pid: process.pid,
        pr_ppid: process.parent,
        pr_pgrp: process.group,
        pr_sid: process.session,
        pr_fname: kernel.task().name,
        pr_psargs: arguments,
    }
}

/// The auxiliary vector, with its end.
fn auxiliary(kernel: &Kernel) -> Vec<u8> {
    let range = kernel.process().auxiliary.clone();
    let mut bytes = kernel.memory().peek(range.clone());
    bytes.resize(to_usize(range.end - range.start), 0);
    bytes
}

/// The mapped files: their number and the unit of offsets, then start, end and offset of each, then
/// the names.
fn files(kernel: &Kernel) -> Vec<u8> {
    let mut words = Vec::from([0, PAGE_SIZE]);
    let mut names = Vec::new();
    for (start, vma) in kernel.memory().vmas().iter() {
        if let Label::File(file) = &vma.label {
            words[0] += 1;
            words.extend([start, vma.end, file.offset / PAGE_SIZE]);
            names.extend_from_slice(&file.path);
            names.push(0);
        }
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.append(&mut names);
    bytes
}
