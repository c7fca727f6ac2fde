//! Objects that the debugger reads (`qXfer`).

use super::commands::{Answer, failed, wrong};
use super::memory;
use super::session::part;
use crate::debugger::target;
use crate::debugger::text::{pair, split};
use crate::kernel::Kernel;
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use hartline_abi::elf::kind;
use hartline_abi::layout::USER_END;
use hartline_linux::auxvec::{AT_PHDR, AT_PHNUM};
use hartline_linux::elfcore::Elf64Phdr;
use hartline_linux::errno::Errno;
use zerocopy::IntoBytes;

/// Most libraries that are listed.
const MAX_LIBRARIES: usize = 4096;
/// Longest path of a library, bytes.
const MAX_PATH: u64 = 4096;
/// Most entries of a table in memory that are looked at.
const MAX_ENTRIES: u64 = 256;

/// `d_tag` of the entry with the address of `struct r_debug` (`elf.h`).
const DT_DEBUG: u64 = 21;
/// Offset of `r_map` in `struct r_debug` (`link.h`).
const R_MAP: u64 = 8;

impl Kernel {
    /// Serves `OBJECT:read:ANNEX:OFFSET,LENGTH`.
    pub(super) fn transfer(&mut self, request: &[u8]) -> Answer {
        let Some((object, rest)) = split(request, b':') else {
            return wrong();
        };
        let Some(rest) = rest.strip_prefix(b"read:") else {
            return Some(Vec::new());
        };
        let Some((annex, range)) = split(rest, b':') else {
            return wrong();
        };
        let Some((offset, length)) = pair(range, b',') else {
            return wrong();
        };
        let bytes = match object {
            b"features" if annex == b"target.xml" => Ok(target::description().into_bytes()),
            b"memory-map" => Ok(target::memory_map(USER_END).into_bytes()),
            b"auxv" => self.auxiliary_vector(),
            b"exec-file" => self.executable_of(annex),
            b"libraries-svr4" => self.libraries(),
            b"siginfo" => self.signal_of_stop(),
            b"threads" => Ok(self.thread_list()),
            b"features" => Err(Errno::ENOENT),
            _ => return Some(Vec::new()),
        };
        match bytes {
            Ok(bytes) => Some(part(&bytes, offset, length)),
            Err(error) => failed(error),
        }
    }

    fn auxiliary_vector(&mut self) -> Result<Vec<u8>, Errno> {
        let space = self.chosen_space().ok_or(Errno::ESRCH)?;
        self.auxiliary_of(space).ok_or(Errno::ESRCH)
    }

    /// The auxiliary vector of the debugged process with an address space. The process can change it.
    fn auxiliary_of(&mut self, space: Handle<Space>) -> Option<Vec<u8>> {
        let mut processes = self.processes();
        let process = processes.find(|process| process.debugged && process.space == space);
        let range = process?.auxiliary.clone();
        drop(processes);
        let length = range.end.saturating_sub(range.start).min(16 * MAX_ENTRIES);
        Some(memory::read(&mut self.spaces[space], range.start, length))
    }

    /// An entry of the auxiliary vector of the debugged process with an address space.
    pub(super) fn auxiliary_entry(&mut self, space: Handle<Space>, wanted: u64) -> Option<u64> {
        let vector = self.auxiliary_of(space)?;
        let (entries, _) = vector.as_chunks::<16>();
        let mut entries = entries.iter().map(|entry| {
            [0, 8].map(|at| {
                let bytes = entry[at..].first_chunk().copied().unwrap_or_default();
                u64::from_le_bytes(bytes)
            })
        });
        entries
            .find(|entry| entry[0] == wanted)
            .map(|[_, value]| value)
    }

    fn executable_of(&self, annex: &[u8]) -> Result<Vec<u8>, Errno> {
        let pid = match annex {
            b"" => None,
            digits => Some(crate::debugger::text::number(digits).ok_or(Errno::EINVAL)?),
        };
        let chosen = match pid {
            Some(pid) => u32::try_from(pid).map_err(|_| Errno::ESRCH)?,
            None => {
                let tid = self.debugger.as_ref().map_or(0, |debugger| debugger.thread);
                self.tasks.get(tid).ok_or(Errno::ESRCH)?.pid
            }
        };
        let process = self.processes.get(chosen).ok_or(Errno::ESRCH)?;
        match process.debugged {
            true => Ok(process.executable.clone()),
            false => Err(Errno::EPERM),
        }
    }

    fn signal_of_stop(&self) -> Result<Vec<u8>, Errno> {
        let tid = self.debugger.as_ref().map_or(0, |debugger| debugger.thread);
        let task = self.program_task(tid).ok_or(Errno::ESRCH)?;
        let info = task.debug.info.as_ref().ok_or(Errno::EINVAL)?;
        Ok(info.as_bytes().to_vec())
    }

    fn thread_list(&self) -> Vec<u8> {
        let mut text = String::from("<?xml version=\"1.0\"?><threads>");
        let Some(debugger) = &self.debugger else {
            return Vec::new();
        };
        for tid in self.debugged() {
            let Some(task) = self.tasks.get(tid) else {
                continue;
            };
            let end = task.name.iter().position(|&byte| byte == 0);
            let name = &task.name[..end.unwrap_or(task.name.len())];
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "<thread id=\"{}\" name=\"",
                debugger.name(task.pid, tid)
            );
            target::escape(&mut text, &String::from_utf8_lossy(name));
            text.push_str("\"/>");
        }
        text.push_str("</threads>");
        text.into_bytes()
    }

    /// The list of the dynamic linker (`struct link_map`).
    fn libraries(&mut self) -> Result<Vec<u8>, Errno> {
        let handle = self.chosen_space().ok_or(Errno::ESRCH)?;
        let mut text = String::from("<library-list-svr4 version=\"1.0\"");
        let first = self.first_library(handle);
        if let Some(first) = first.filter(|&first| first != 0) {
            let _ = write!(text, " main-lm=\"{first:#x}\"");
        }
        text.push('>');
        let space = &mut self.spaces[handle];
        let mut at = first.unwrap_or(0);
        for number in 0..MAX_LIBRARIES {
            // l_addr, l_name, l_ld, l_next.
            let Some([address, name, dynamic, next]) = words(space, at).filter(|_| at != 0) else {
                break;
            };
            // The first one is the program.
            if number > 0 {
                let path = string(space, name);
                text.push_str("<library name=\"");
                target::escape(&mut text, &String::from_utf8_lossy(&path));
                let _ = write!(
                    text,
                    "\" lm=\"{at:#x}\" l_addr=\"{address:#x}\" l_ld=\"{dynamic:#x}\" \
                     lmid=\"0x0\"/>"
                );
            }
            at = next;
        }
        text.push_str("</library-list-svr4>");
        Ok(text.into_bytes())
    }

    /// Address of the first `struct link_map`, 0 or none if there is none yet.
    fn first_library(&mut self, handle: Handle<Space>) -> Option<u64> {
        let headers = self.auxiliary_entry(handle, AT_PHDR)?;
        let count = self.auxiliary_entry(handle, AT_PHNUM)?.min(MAX_ENTRIES);
        let space = &mut self.spaces[handle];
        let (mut bias, mut dynamic) = (0, None);
        for number in 0..count {
            let at = headers.wrapping_add(number * size_of::<Elf64Phdr>() as u64);
            // p_type and p_flags, p_offset, p_vaddr, p_paddr.
            let [word, _, address, _] = words(space, at)?;
            match crate::convert::low_u32(word) {
                kind::PHDR => bias = headers.wrapping_sub(address),
                kind::DYNAMIC => dynamic = Some(address),
                _ => {}
            }
        }
        let mut at = dynamic?.wrapping_add(bias);
        for _ in 0..MAX_ENTRIES {
            let [key, value] = words(space, at)?;
            match key {
                0 => return None,
                DT_DEBUG => {
                    let [first] = words(space, value.wrapping_add(R_MAP))?;
                    return Some(first);
                }
                _ => at = at.wrapping_add(16),
            }
        }
        None
    }
}

/// Words of memory.
fn words<const COUNT: usize>(space: &mut Space, address: u64) -> Option<[u64; COUNT]> {
    let bytes = memory::read(space, address, 8 * COUNT as u64);
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes))
        .collect();
    words.try_into().ok()
}

/// The bytes of a string before its NUL.
fn string(space: &mut Space, address: u64) -> Vec<u8> {
    let mut bytes = memory::read(space, address, MAX_PATH);
    if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
        bytes.truncate(end);
    }
    bytes
}
