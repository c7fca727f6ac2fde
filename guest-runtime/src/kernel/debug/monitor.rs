//! Commands of the user for the server (`monitor` in gdb).

use super::commands::{Answer, wrong};
use crate::debugger::text::{hex, unhex};
use crate::kernel::Kernel;
use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use hartline_abi::image::variant;

const HELP: &str = "\
exits         exits of the VM that the runtime has made
stats         counters of the run
translations  the translated code that the process uses
precise on    registers are exact at each fault, in slower code
precise off   code runs at full speed; not all registers are known at a fault (the default)
help          this list
";

impl Kernel {
    /// Serves `qRcmd`.
    pub(super) fn monitor(&mut self, digits: &[u8]) -> Answer {
        let Some(command) = unhex(digits) else {
            return wrong();
        };
        let text = match command.trim_ascii() {
            b"help" | b"" => HELP.into(),
            b"exits" => format!("{} exits\n", crate::arch::host::exits()),
            b"stats" => self.statistics(),
            b"translations" => self.translation_list(),
            b"precise on" => self.set_precise(true),
            b"precise off" => self.set_precise(false),
            other => {
                let name = String::from_utf8_lossy(other);
                format!("{name:?} is no command; the commands are:\n{HELP}")
            }
        };
        Some(hex(text.as_bytes()))
    }

    fn statistics(&mut self) -> String {
        let peak = self.memory().frames().lock().peak() >> 10;
        format!(
            "{} system calls\n{} instructions interpreted\n{} entries of the interpreter\n\
             at most {peak} KiB of memory used\n",
            self.syscalls,
            self.interpreted(),
            self.interpreter_entries,
        )
    }

    fn translation_list(&mut self) -> String {
        let Some(handle) = self.chosen_space() else {
            return "no process is debugged\n".into();
        };
        let space = &self.spaces[handle];
        let mut text = String::new();
        for (text_range, kind, functions) in space.images.list() {
            let what = match variant::is_baseline(kind) {
                true => "baseline",
                false => "optimised",
            };
            let place = space.memory.vmas().find(text_range.start);
            let path = place.and_then(|(_, vma)| match &vma.label {
                crate::mm::Label::File(file) => Some(String::from_utf8_lossy(&file.path)),
                _ => None,
            });
            let path = path.unwrap_or("made by the program".into());
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{:#x}-{:#x} {what} code, variant {kind}, {functions} entries, {}",
                text_range.start,
                text_range.end,
                path.escape_debug()
            );
        }
        match text.is_empty() {
            true => "none: the program is interpreted\n".into(),
            false => text,
        }
    }

    fn set_precise(&mut self, is_precise: bool) -> String {
        if let Some(debugger) = &mut self.debugger {
            debugger.is_precise = is_precise;
        }
        let Some(space) = self.chosen_space() else {
            return "no process is debugged\n".into();
        };
        if is_precise {
            self.follow_precision(space);
            "registers are exact at each fault\n".into()
        } else if self.use_fast_code(space) {
            "code runs at full speed; not all registers are known at a fault\n".into()
        } else {
            "registers stay exact at each fault: the program or --precise needs that\n".into()
        }
    }
}
