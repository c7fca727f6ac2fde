//! What `/proc` shows of the rest of the library OS.

use super::files::Files;
use crate::clock;
use crate::errno::Errno;
use crate::host::Host;
use crate::kernel::Kernel;
use crate::memory::{AddressSpace, Label};
use crate::user;
use crate::vfs::proc::Node;
use crate::vfs::proc_text::{Memory, System, Times, contents};
use crate::vfs::types::Ino;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;
use rand_chacha::rand_core::Rng;

struct View<'a> {
    host: Host,
    memory: &'a AddressSpace,
    name: &'a [u8],
    arguments: Vec<u8>,
    environment: Vec<u8>,
    uuid: [u8; 16],
    family: [u32; 5],
    cpu_time: u64,
}

impl System for View<'_> {
    fn arguments(&self) -> Vec<u8> {
        self.arguments.clone()
    }

    fn environment(&self) -> Vec<u8> {
        self.environment.clone()
    }

    fn name(&self) -> Vec<u8> {
        let end = self.name.iter().position(|&byte| byte == 0);
        self.name[..end.unwrap_or(self.name.len())].to_vec()
    }

    fn maps(&self, out: &mut String) {
        for (start, vma) in self.memory.vmas().iter() {
            let flag = |on, letter| if on { letter } else { '-' };
            let (label, offset) = match &vma.label {
                Label::None => ("".into(), 0),
                Label::Heap => ("[heap]".into(), 0),
                Label::Stack => ("[stack]".into(), 0),
                Label::Trampoline => ("[vdso]".into(), 0),
                Label::File(file) => (String::from_utf8_lossy(&file.path), file.offset),
            };
            let head = alloc::format!(
                "{start:08x}-{:08x} {}{}{}{} {offset:08x} 00:00 0",
                vma.end,
                flag(vma.protection.has_read_bit(), 'r'),
                flag(vma.protection.writable(), 'w'),
                flag(vma.protection.executable(), 'x'),
                if vma.shared { 's' } else { 'p' },
            );
            // Writing to a string does not fail.
            let _ = match label.is_empty() {
                true => writeln!(out, "{head} "),
                false => writeln!(out, "{head:<72} {label}"),
            };
        }
    }

    fn memory(&self) -> Memory {
        let boot = self.host.boot();
        let used = self.memory.frames().lock().used();
        Memory {
            total: boot.ram_length,
            free: boot.ram_length.saturating_sub(used),
            mapped: self.memory.vmas().mapped(),
            resident: used,
            stack_limit: boot.stack_limit,
        }
    }

    fn times(&self) -> Times {
        let uptime = clock::since_boot();
        Times {
            uptime,
            cpu: self.cpu_time,
            boot: self.host.boot().realtime_ns,
        }
    }

    fn identity(&self) -> [&str; 3] {
        ["6.12.0-hartline", "#1 SMP", "hartline"]
    }

    fn family(&self) -> [u32; 5] {
        self.family
    }

    fn processors(&self) -> u32 {
        self.host.boot().cpus
    }

    fn random(&mut self, boot: bool) -> [u8; 16] {
        match boot {
            true => core::array::from_fn(|n| self.host.boot().seed[n]),
            false => self.uuid,
        }
    }
}

impl Kernel {
    /// Contents of a file of `/proc`.
    pub(super) fn proc_text(&mut self, ino: Ino) -> Result<Vec<u8>, Errno> {
        let node = Node::from_ino(ino).ok_or(Errno::EINVAL)?;
        let arguments = self.program_bytes(&self.process.arguments.clone());
        let environment = self.program_bytes(&self.process.environment.clone());
        let mut uuid = [0; 16];
        self.random.fill_bytes(&mut uuid);
        self.account_time();
        let mut view = View {
            host: self.host,
            memory: &self.memory,
            name: &self.task.name,
            arguments,
            environment,
            uuid,
            family: [
                self.process.parent,
                self.process.group,
                self.process.session,
                self.foreground,
                self.process.threads,
            ],
            cpu_time: self.process.cpu_time,
        };
        let Files { vfs, process, .. } = &self.files;
        contents(node, vfs, process, &mut view)
    }

    /// Memory of the program; nothing if it has unmapped it.
    fn program_bytes(&mut self, range: &Range<u64>) -> Vec<u8> {
        let length = range.end.saturating_sub(range.start);
        let bytes = user::slice(&mut self.memory, range.start, length);
        bytes.map(<[u8]>::to_vec).unwrap_or_default()
    }
}
