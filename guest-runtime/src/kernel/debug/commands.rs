//! The packets of the debugger ("Packets", "General Query Packets").

use super::{Catches, Event, Phase, Reason};
use crate::debugger::packet::MAX_PACKET;
use crate::debugger::resume::{Action, actions, from_gdb};
use crate::debugger::target::{REGISTERS, length};
use crate::debugger::text::{Threads, hex, number, pair, split, threads, unhex};
use crate::kernel::Kernel;
use crate::kernel::signals::{SigInfo, bit};
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::kernel::task::Registers;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::siginfo::SI_USER;
use hartline_linux::signal::SIGKILL;

/// An answer to a packet; `None`: the answer follows later.
pub(super) type Answer = Option<Vec<u8>>;

fn ok() -> Answer {
    Some(b"OK".to_vec())
}

/// The packet is not known.
fn unknown() -> Answer {
    Some(Vec::new())
}

pub(super) fn failed(error: Errno) -> Answer {
    // The protocol does not say what its numbers mean; those of two digits are Linux's.
    let number = error.number() & 0xff;
    Some(format!("E{number:02x}").into_bytes())
}

/// The answer to a packet with wrong contents.
pub(super) fn wrong() -> Answer {
    failed(Errno::EINVAL)
}

fn answer_to(done: Result<(), Errno>) -> Answer {
    match done {
        Ok(()) => ok(),
        Err(error) => failed(error),
    }
}

impl Kernel {
    /// Serves a packet.
    pub(super) fn command(&mut self, packet: &[u8]) {
        if let Some(answer) = self.serve_command(packet) {
            self.answer(&answer);
        }
    }

    fn serve_command(&mut self, packet: &[u8]) -> Answer {
        let (&kind, rest) = match packet.split_first() {
            Some(split) => split,
            None => return unknown(),
        };
        let is_stopped =
            (self.debugger.as_ref()).is_some_and(|debugger| debugger.phase == Phase::Stopped);
        match kind {
            b'?' => return self.tell_again(),
            b'!' => return ok(),
            b'q' => return self.query(rest),
            b'Q' => return self.set(rest),
            b'H' => return self.choose_thread(rest),
            b'T' => return self.is_thread_alive(rest),
            b'D' => return self.detach(rest),
            b'k' => return self.kill_all(),
            b'v' if !rest.starts_with(b"Cont;") => return self.verbose(rest),
            _ if !is_stopped => return failed(Errno::EBUSY),
            _ => {}
        }
        match kind {
            b'g' => self.all_registers(),
            b'G' => self.set_all_registers(rest),
            b'p' => self.one_register(rest),
            b'P' => self.set_one_register(rest),
            b'm' => self.read_memory(rest),
            b'M' => self.write_memory(rest, unhex),
            b'X' => self.write_memory(rest, |bytes| Some(bytes.to_vec())),
            b'Z' => self.breakpoint(rest, true),
            b'z' => self.breakpoint(rest, false),
            b'c' | b's' => {
                let step = (kind == b's').then_some(0..0);
                self.resume_with(&[Action {
                    threads: Threads::All,
                    signal: 0,
                    step,
                }])
            }
            b'v' => self.verbose(rest),
            _ => unknown(),
        }
    }

    /// `?`: why the threads stand still, now or as soon as they do.
    fn tell_again(&mut self) -> Answer {
        let debugger = self.debugger.as_mut()?;
        if let (Phase::Stopped, Some(told)) = (debugger.phase, debugger.told.clone()) {
            // Another process may have killed the stopped one.
            let is_end =
                |event: &Event| event.pid == told.pid && matches!(event.reason, Reason::Ended(_));
            if !debugger.events.iter().any(is_end) {
                return Some(debugger.stop_reply(&told).into_bytes());
            }
            debugger.owes_stop = true;
            self.tell_stop();
            return None;
        }
        debugger.owes_stop = true;
        self.interrupt_debugged();
        None
    }

    /// Stops the debugged threads because the debugger asks for it.
    pub(super) fn interrupt_debugged(&mut self) {
        /// The signal of an interruption by the user.
        const SIGINT: u8 = 2;
        let Some(debugger) = &self.debugger else {
            return;
        };
        let signal = if debugger.told.is_some() { SIGINT } else { 0 };
        // One stop at a time, however often the debugger asks.
        if !debugger.events.is_empty() {
            return self.tell_stop();
        }
        if debugger.phase == Phase::Stopped && !debugger.owes_stop {
            return;
        }
        let chosen = self.chosen_thread();
        if let Some(tid) = chosen.or_else(|| self.debugged().first().copied())
            && let Some(pid) = self.tasks.get(tid).map(|task| task.pid)
        {
            self.debug_event((pid, tid), Reason::Signal(signal));
            self.tell_stop();
        }
    }

    /// Begins to debug a process: its threads are held.
    pub(super) fn begin_debugging(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(pid) else {
            return;
        };
        process.debugged = true;
        let space = process.space;
        self.hold_debugged();
        self.follow_precision(space);
        self.update_watches();
        if self.task().pid == pid {
            self.kick_self();
        }
    }

    fn resume_with(&mut self, actions: &[Action]) -> Answer {
        self.debug_resume(actions);
        None
    }

    /// `vNAME…`.
    fn verbose(&mut self, rest: &[u8]) -> Answer {
        if let Some(request) = rest.strip_prefix(b"File:") {
            return Some(self.file_request(request));
        }
        if rest == b"Cont?" {
            return Some(b"vCont;c;C;s;S;r".to_vec());
        }
        if let Some(list) = rest.strip_prefix(b"Cont") {
            return match actions(list) {
                Some(actions) if !actions.is_empty() => self.resume_with(&actions),
                _ => wrong(),
            };
        }
        if let Some(pid) = rest.strip_prefix(b"Kill;") {
            let pid = number(pid).and_then(|pid| u32::try_from(pid).ok());
            return match pid.filter(|&pid| self.processes.get(pid).is_some()) {
                Some(pid) => self.kill(pid),
                None => failed(Errno::ESRCH),
            };
        }
        if let Some(pid) = rest.strip_prefix(b"Attach;") {
            return self.attach(pid);
        }
        unknown()
    }

    /// `vAttach`: debugs another process too.
    fn attach(&mut self, pid: &[u8]) -> Answer {
        let pid = number(pid).and_then(|pid| u32::try_from(pid).ok());
        let process = pid.and_then(|pid| self.processes.get(pid));
        let Some(process) = process.filter(|process| !process.is_zombie() && process.pid != 0)
        else {
            return failed(Errno::ESRCH);
        };
        let pid = process.pid;
        if process.debugged {
            return failed(Errno::EPERM);
        }
        let debugger = self.debugger.as_mut()?;
        debugger.owes_stop = true;
        debugger.phase = Phase::Stopping;
        debugger.events.push_back(Event {
            pid,
            tid: pid,
            reason: Reason::Signal(0),
        });
        self.begin_debugging(pid);
        None
    }

    /// `D` and `D;PID`: the process goes on without the debugger.
    fn detach(&mut self, rest: &[u8]) -> Answer {
        let pid = match rest.strip_prefix(b";") {
            None => None,
            Some(pid) => match number(pid).and_then(|pid| u32::try_from(pid).ok()) {
                Some(pid) => Some(pid),
                None => return wrong(),
            },
        };
        match pid {
            Some(pid)
                if self
                    .processes
                    .get(pid)
                    .is_some_and(|process| process.debugged) =>
            {
                self.stop_debugging(pid);
            }
            Some(_) => return failed(Errno::ESRCH),
            None => self.detach_all(),
        }
        ok()
    }

    fn kill(&mut self, pid: u32) -> Answer {
        self.answer(b"OK");
        self.stop_debugging(pid);
        self.signal_process(pid, SigInfo::sent(SIGKILL, SI_USER, 0, 0));
        None
    }

    /// `k`: ends all debugged processes.
    fn kill_all(&mut self) -> Answer {
        let debugged = self.processes().filter(|process| process.debugged);
        let pids: Vec<u32> = debugged.map(|process| process.pid).collect();
        for pid in pids {
            self.stop_debugging(pid);
            self.signal_process(pid, SigInfo::sent(SIGKILL, SI_USER, 0, 0));
        }
        None
    }

    /// `Hg` and `Hc`.
    fn choose_thread(&mut self, rest: &[u8]) -> Answer {
        let Some((&operation, name)) = rest.split_first() else {
            return wrong();
        };
        let Some(wanted) = threads(name) else {
            return wrong();
        };
        if operation == b'c' {
            // `vCont` names its threads.
            return ok();
        }
        let all = self.debugged();
        let chosen = all.into_iter().find(|&tid| {
            let pid = self.tasks.get(tid).map_or(0, |task| task.pid);
            wanted.include(pid, tid)
        });
        match chosen {
            None => failed(Errno::ESRCH),
            Some(_) if wanted == Threads::All && self.chosen_thread().is_some() => ok(),
            Some(tid) => {
                self.debugger.as_mut()?.thread = tid;
                ok()
            }
        }
    }

    fn is_thread_alive(&mut self, name: &[u8]) -> Answer {
        match threads(name) {
            Some(Threads::One(tid)) if self.is_debugged(tid) => ok(),
            _ => failed(Errno::ESRCH),
        }
    }

    fn chosen_thread(&self) -> Option<u32> {
        let thread = self.debugger.as_ref()?.thread;
        self.is_debugged(thread).then_some(thread)
    }

    /// The address space of the chosen thread.
    pub(super) fn chosen_space(&self) -> Option<Handle<Space>> {
        let task = self.tasks.get(self.chosen_thread()?)?;
        Some(self.processes[task.process].space)
    }

    fn all_registers(&mut self) -> Answer {
        let mut all = Vec::new();
        for number in 0..REGISTERS {
            match self.shown_register(number) {
                Some(digits) => all.extend_from_slice(&digits),
                None => return failed(Errno::ESRCH),
            }
        }
        Some(all)
    }

    /// The digits of a register of the chosen thread: `x` if its value is not known. `None`: there is no thread, or
    /// no register with this number.
    #[inline(never)]
    fn shown_register(&self, number: usize) -> Option<Vec<u8>> {
        let tid = self.chosen_thread()?;
        let bytes = super::registers::get(&self.stopped_registers(tid)?, number)?;
        Some(match self.is_known(tid, number) {
            true => hex(&bytes),
            false => alloc::vec![b'x'; 2 * bytes.len()],
        })
    }

    fn set_all_registers(&mut self, digits: &[u8]) -> Answer {
        let Some(bytes) = unhex(digits) else {
            return wrong();
        };
        self.change_registers(&mut |registers| {
            let mut rest = bytes.as_slice();
            for number in 0..REGISTERS {
                let Some((own, others)) = rest.split_at_checked(length(number)) else {
                    break;
                };
                super::registers::set(registers, number, own)?;
                rest = others;
            }
            Some(())
        })
    }

    /// Changes the registers of the chosen thread. `None` of `change`: the packet is wrong.
    fn change_registers(&mut self, change: &mut dyn FnMut(&mut Registers) -> Option<()>) -> Answer {
        let Some(tid) = self.chosen_thread() else {
            return failed(Errno::ESRCH);
        };
        let Some(mut registers) = self.stopped_registers(tid) else {
            return failed(Errno::ESRCH);
        };
        match change(&mut registers) {
            Some(()) => answer_to(self.set_stopped_registers(tid, registers)),
            None => wrong(),
        }
    }

    fn one_register(&mut self, digits: &[u8]) -> Answer {
        let number = number(digits).and_then(|number| usize::try_from(number).ok());
        match number.and_then(|number| self.shown_register(number)) {
            Some(digits) => Some(digits),
            None => wrong(),
        }
    }

    fn set_one_register(&mut self, rest: &[u8]) -> Answer {
        self.change_registers(&mut |registers| {
            let (name, value) = split(rest, b'=')?;
            let number = usize::try_from(number(name)?).ok()?;
            super::registers::set(registers, number, &unhex(value)?)
        })
    }

    fn read_memory(&mut self, rest: &[u8]) -> Answer {
        const MOST: u64 = MAX_PACKET as u64 / 2;
        let Some((address, length)) = pair(rest, b',') else {
            return wrong();
        };
        let Some(space) = self.chosen_space() else {
            return failed(Errno::ESRCH);
        };
        let bytes = super::memory::read(&mut self.spaces[space], address, length.min(MOST));
        match bytes.is_empty() && length > 0 {
            true => failed(Errno::EFAULT),
            false => Some(hex(&bytes)),
        }
    }

    fn write_memory(&mut self, rest: &[u8], decode: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Answer {
        let parsed = split(rest, b':').and_then(|(place, data)| {
            let (address, length) = pair(place, b',')?;
            let bytes = decode(data)?;
            (bytes.len() as u64 == length).then_some((address, bytes))
        });
        let Some((address, bytes)) = parsed else {
            return wrong();
        };
        match self.chosen_space() {
            Some(space) => answer_to(self.write_memory_of(space, address, &bytes)),
            None => failed(Errno::ESRCH),
        }
    }

    /// `ZTYPE,ADDRESS,KIND` and `zTYPE,ADDRESS,KIND`.
    fn breakpoint(&mut self, rest: &[u8], adds: bool) -> Answer {
        // Conditions and commands are evaluated by the debugger.
        let plain = split(rest, b';').map_or(rest, |(plain, _)| plain);
        let parsed = split(plain, b',').and_then(|(kind, place)| {
            let (address, length) = pair(place, b',')?;
            Some((number(kind)?, address, length))
        });
        let Some((kind, address, length)) = parsed else {
            return wrong();
        };
        let Some(space) = self.chosen_space() else {
            return failed(Errno::ESRCH);
        };
        match kind {
            0 | 1 if adds => answer_to(self.add_breakpoint(space, address, length, kind == 1)),
            0 | 1 => {
                self.remove_breakpoint(space, address);
                ok()
            }
            2..=4 if adds => answer_to(self.add_watch(space, kind, address, length)),
            2..=4 => {
                self.remove_watch(space, kind, address, length);
                ok()
            }
            _ => unknown(),
        }
    }

    /// `qNAME…`.
    fn query(&mut self, rest: &[u8]) -> Answer {
        let (name, arguments) = match rest.iter().position(|&byte| matches!(byte, b':' | b',')) {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, &rest[rest.len()..]),
        };
        match name {
            b"Supported" => self.supported(arguments),
            b"C" => {
                let debugger = self.debugger.as_ref()?;
                let tid = debugger.thread;
                let pid = self.tasks.get(tid).map_or(tid, |task| task.pid);
                Some(format!("QC{}", debugger.name(pid, tid)).into_bytes())
            }
            b"fThreadInfo" => self.list_threads(0),
            b"sThreadInfo" => self.list_threads(self.debugger.as_ref()?.listed),
            b"ThreadExtraInfo" => self.thread_name(arguments),
            b"Attached" => {
                let waits = self.host.boot().debug != 0;
                Some(if waits { b"0".to_vec() } else { b"1".to_vec() })
            }
            b"Symbol" => ok(),
            b"Xfer" => self.transfer(arguments),
            b"Rcmd" => self.monitor(arguments),
            _ => unknown(),
        }
    }

    /// The threads with numbers above `last`, as many as fit into a packet; `l`: there are none.
    fn list_threads(&mut self, last: u32) -> Answer {
        let mut threads = self.debugged();
        threads.retain(|&tid| tid > last);
        threads.sort_unstable();
        let debugger = self.debugger.as_mut()?;
        let mut answer = Vec::new();
        for tid in threads {
            let pid = self.tasks.get(tid).map_or(tid, |task| task.pid);
            let name = debugger.name(pid, tid);
            if answer.len() + 1 + name.len() > MAX_PACKET {
                break;
            }
            answer.push(if answer.is_empty() { b'm' } else { b',' });
            answer.extend_from_slice(name.as_bytes());
            debugger.listed = tid;
        }
        Some(if answer.is_empty() {
            b"l".to_vec()
        } else {
            answer
        })
    }

    fn supported(&mut self, features: &[u8]) -> Answer {
        let debugger = self.debugger.as_mut()?;
        let has = |name: &[u8]| {
            features
                .split(|&byte| byte == b';')
                .any(|feature| feature == name)
        };
        debugger.features = super::Features {
            multiprocess: has(b"multiprocess+"),
            swbreak: has(b"swbreak+"),
            hwbreak: has(b"hwbreak+"),
            fork_events: has(b"fork-events+"),
            vfork_events: has(b"vfork-events+"),
            exec_events: has(b"exec-events+"),
        };
        let answer = format!(
            "PacketSize={MAX_PACKET:x};QStartNoAckMode+;multiprocess+;swbreak+;hwbreak+;\
             fork-events+;vfork-events+;exec-events+;vContSupported+;QPassSignals+;\
             QProgramSignals+;QCatchSyscalls+;qXfer:features:read+;qXfer:auxv:read+;\
             qXfer:exec-file:read+;qXfer:libraries-svr4:read+;qXfer:memory-map:read+;\
             qXfer:siginfo:read+;qXfer:threads:read+"
        );
        Some(answer.into_bytes())
    }

    fn thread_name(&mut self, name: &[u8]) -> Answer {
        let Some(Threads::One(tid)) = threads(name) else {
            return wrong();
        };
        match self.program_task(tid) {
            Some(task) if self.is_debugged(tid) => {
                let end = task.name.iter().position(|&byte| byte == 0);
                Some(hex(&task.name[..end.unwrap_or(task.name.len())]))
            }
            _ => failed(Errno::ESRCH),
        }
    }

    /// `QNAME…`.
    fn set(&mut self, rest: &[u8]) -> Answer {
        let (name, value) = split(rest, b':').unwrap_or((rest, b""));
        let debugger = self.debugger.as_mut()?;
        match name {
            b"StartNoAckMode" => {
                debugger.link.acknowledges = false;
                ok()
            }
            b"NonStop" if value == b"0" => ok(),
            b"PassSignals" => match signals(value) {
                Some(set) => {
                    debugger.passed = set;
                    ok()
                }
                None => wrong(),
            },
            // The debugger says itself with which signals threads continue.
            b"ProgramSignals" => ok(),
            b"CatchSyscalls" => match catches(value) {
                Some(catches) => {
                    debugger.catches = catches;
                    // Calls that have begun are caught anew if the debugger wants that later.
                    if matches!(debugger.catches, Catches::None) {
                        self.forget_calls();
                    }
                    self.update_watches();
                    ok()
                }
                None => wrong(),
            },
            _ => unknown(),
        }
    }
}

/// A set of signals in the debugger's numbers, as Linux's. Those that Linux does not have are left out.
fn signals(text: &[u8]) -> Option<u64> {
    let parts = text
        .split(|&byte| byte == b';')
        .filter(|part| !part.is_empty());
    parts
        .map(number)
        .try_fold(0, |set, number| match from_gdb(number?) {
            None | Some(0) => Some(set),
            Some(signal) => Some(set | bit(signal)),
        })
}

/// `0`, `1`, or `1` with the numbers of system calls.
fn catches(text: &[u8]) -> Option<Catches> {
    match split(text, b';') {
        None if text == b"0" => Some(Catches::None),
        None if text == b"1" => Some(Catches::All),
        Some((b"1", numbers)) => {
            let numbers = numbers.split(|&byte| byte == b';').map(number);
            let numbers: Option<BTreeSet<u64>> = numbers.collect();
            numbers.map(Catches::Some)
        }
        _ => None,
    }
}
