//! The connection of a debugger: bytes of the host, packets, and the end of the connection.

use super::files::Files;
use super::{Catches, Debugger, Features, Phase};
use crate::convert::to_usize;
use crate::debugger::packet::{self, Input, MAX_PACKET, Packets};
use crate::kernel::Kernel;
use crate::kernel::process::FIRST;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hartline_abi::call::CALL_DATA;
use hartline_abi::spawn::{debug, stream};
use hartline_linux::errno::Errno;

/// Most bytes that a debugger leaves in its connection. It gets no answers beyond that.
const MAX_OUTPUT: usize = 8 * MAX_PACKET;
/// Bytes that are read in a turn, between which the program runs.
const MAX_INPUT: usize = 4 * CALL_DATA;

/// The connection.
#[derive(Debug)]
pub(super) struct Link {
    /// The host's number.
    id: u64,
    packets: Packets,
    output: VecDeque<u8>,
    /// The last packet, in case it is lost.
    last: Vec<u8>,
    /// Packets are acknowledged.
    pub acknowledges: bool,
    /// The debugger's last packet, until it has acknowledged the answer. A debugger that has waited for
    /// some seconds sends it again.
    unanswered: Option<Vec<u8>>,
}

impl Kernel {
    /// Begins a debugger's connection. Result for the host.
    pub(in crate::kernel) fn begin_session(&mut self, id: u64, flags: u64) -> Result<(), Errno> {
        if self.debugger.is_some() {
            return Err(Errno::EBUSY);
        }
        let is_alive = |process: &&crate::kernel::process::Process| !process.is_zombie();
        if self.processes.get(FIRST).filter(is_alive).is_none() {
            return Err(Errno::ESRCH);
        }
        self.debugger = Some(Box::new(Debugger {
            link: Link {
                id,
                packets: Packets::default(),
                output: VecDeque::new(),
                last: Vec::new(),
                acknowledges: true,
                unanswered: None,
            },
            phase: Phase::Running,
            events: VecDeque::new(),
            told: None,
            owes_stop: false,
            features: Features::default(),
            thread: FIRST,
            listed: 0,
            passed: 0,
            catches: Catches::default(),
            files: Files::default(),
            stops_when_lost: flags & debug::STOPS_WHEN_LOST != 0,
            is_precise: false,
        }));
        self.begin_debugging(FIRST);
        Ok(())
    }

    /// Reads what the debugger has sent, as far as it is there.
    pub(in crate::kernel) fn continue_session(&mut self, id: u64) {
        let mut left = MAX_INPUT;
        while self.is_session(id) {
            self.flush_session();
            let Some(device) = &mut self.spawned.device else {
                return;
            };
            let mut bytes = Vec::new();
            let take = |part: &[u8]| {
                bytes.extend_from_slice(part);
                Ok(())
            };
            match device.read((id, stream::INPUT), CALL_DATA, take) {
                Ok(0) => return self.lose_session(id),
                Ok(count) => left = left.saturating_sub(count),
                Err(Errno::EAGAIN) => return,
                Err(_) => return self.lose_session(id),
            }
            for byte in bytes {
                let Some(debugger) = &mut self.debugger else {
                    return;
                };
                if let Some(input) = debugger.link.packets.take(byte) {
                    self.take_input(input);
                }
            }
            self.flush_session();
            if left == 0 {
                let device = self.spawned.device.as_ref();
                // It fails if the host has forgotten the connection.
                let _ = device.map(|device| device.await_stream(id, stream::INPUT));
                return;
            }
        }
    }

    pub(in crate::kernel) fn is_session(&self, id: u64) -> bool {
        let debugger = self.debugger.as_ref();
        debugger.is_some_and(|debugger| debugger.link.id == id)
    }

    fn take_input(&mut self, input: Input) {
        let Some(debugger) = &mut self.debugger else {
            return;
        };
        let link = &mut debugger.link;
        match input {
            Input::Packet(contents) => {
                if link.acknowledges {
                    link.acknowledge(b'+');
                    // A second answer would be taken for that of the next packet.
                    if link.unanswered.as_ref() == Some(&contents) {
                        return;
                    }
                    link.unanswered = Some(contents.clone());
                }
                self.command(&contents);
            }
            Input::Received => link.unanswered = None,
            Input::Damaged if link.acknowledges => link.acknowledge(b'-'),
            Input::Damaged => self.answer(b"E01"),
            Input::Interrupt => self.interrupt_debugged(),
            Input::Again => {
                let last = link.last.clone();
                link.put(&last);
            }
        }
    }

    /// Sends a packet.
    pub(super) fn answer(&mut self, contents: &[u8]) {
        if let Some(debugger) = &mut self.debugger {
            debugger.link.last = contents.to_vec();
            debugger.link.put(contents);
        }
        self.flush_session();
    }

    /// Passes packets on to the host, as far as it takes them.
    fn flush_session(&mut self) {
        let (Some(debugger), Some(device)) = (&mut self.debugger, &mut self.spawned.device) else {
            return;
        };
        let link = &mut debugger.link;
        while !link.output.is_empty() {
            let bytes = link.output.make_contiguous();
            let fill = |to: &mut [u8]| to.copy_from_slice(&bytes[..to.len()]);
            match device.write((link.id, stream::OUTPUT), bytes.len(), fill) {
                Ok(0) | Err(_) => return,
                Ok(count) => drop(link.output.drain(..count)),
            }
        }
    }

    /// The debugger's connection has broken: its breakpoints go, and the program goes on or stays
    /// stopped, as the debugger's side has chosen.
    pub(in crate::kernel) fn lose_session(&mut self, id: u64) {
        if !self.is_session(id) {
            return;
        }
        let stays = (self.debugger.as_ref()).is_some_and(|debugger| debugger.stops_when_lost);
        if stays {
            self.hold_debugged();
            self.sync_lost();
            self.end_session();
            if self.is_killed(FIRST) {
                self.release_hold(FIRST);
            }
        } else {
            self.detach_all();
            self.end_session();
        }
    }

    /// Stops debugging all processes.
    pub(super) fn detach_all(&mut self) {
        let processes = self.processes().filter(|process| process.debugged);
        let pids: Vec<u32> = processes.map(|process| process.pid).collect();
        for pid in pids {
            self.stop_debugging(pid);
        }
    }

    /// Ends the connection.
    pub(super) fn end_session(&mut self) {
        self.flush_session();
        let Some(debugger) = self.debugger.take() else {
            return;
        };
        debugger.files.close(&mut self.vfs);
        if let Some(device) = &self.spawned.device {
            device.report(debugger.link.id, Ok(0));
        }
        self.update_watches();
    }
}

impl Link {
    fn acknowledge(&mut self, mark: u8) {
        if self.output.len() < MAX_OUTPUT {
            self.output.push_back(mark);
        }
    }

    fn put(&mut self, contents: &[u8]) {
        let mut bytes = Vec::new();
        packet::put(&mut bytes, contents);
        if self.output.len() + bytes.len() <= MAX_OUTPUT {
            self.output.extend(bytes);
        }
    }
}

/// The part of `bytes` that `qXfer` reads: `l` or `m`, and the bytes from `offset` on.
pub(super) fn part(bytes: &[u8], offset: u64, length: u64) -> Vec<u8> {
    /// Escaping at most doubles the bytes.
    const MOST: u64 = MAX_PACKET as u64 / 2 - 1;
    let rest = bytes.get(to_usize(offset)..).unwrap_or_default();
    let count = to_usize(length.min(MOST)).min(rest.len());
    let mark = if count < rest.len() { b'm' } else { b'l' };
    [&[mark], &rest[..count]].concat()
}
