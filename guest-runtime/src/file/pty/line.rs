//! The line discipline (`N_TTY`): processing of typed bytes for the program, and of the program's
//! output for the screen.

mod edit;
mod screen;
#[cfg(test)]
mod tests;

use crate::convert::to_usize;
use crate::mm::UserSliceMut;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::ioctls::{
    TIOCPKT_DOSTOP, TIOCPKT_FLUSHREAD, TIOCPKT_FLUSHWRITE, TIOCPKT_NOSTOP, TIOCPKT_START,
    TIOCPKT_STOP,
};
use hartline_linux::signal::{SIGINT, SIGQUIT, SIGTSTP};
use hartline_linux::termbits::{
    ICANON, ICRNL, IEXTEN, IGNCR, INLCR, ISIG, ISTRIP, IUCLC, IXANY, IXON, NOFLSH, Termios, VINTR,
    VQUIT, VSTART, VSTOP, VSUSP,
};

/// Longest line that can be edited, without its end, bytes (`MAX_CANON`).
const MAX_LINE: usize = 4095;
/// Capacity of each direction, bytes; a writer to a full one must wait.
const CAPACITY: usize = 64 << 10;
/// Free space at which `poll` reports a side as writable, bytes.
const ROOM: usize = 256;
/// Distance of tabulator stops, columns.
const TAB: usize = 8;

const ALERT: u8 = 0x07;
const DELETE: u8 = 0x7f;

/// The queues and settings between the two sides of a terminal.
#[derive(Debug, Default)]
pub struct Line {
    /// Settings.
    pub termios: Termios,
    /// Typed bytes that the program can read.
    ready: VecDeque<u8>,
    /// Number of bytes that were ever removed from `ready`.
    taken: u64,
    /// Ends of lines, on the scale of `taken`: in canonical mode a read returns at most one line.
    ends: VecDeque<u64>,
    /// The line that is being edited.
    edited: Vec<u8>,
    /// Column where `edited` starts on the screen.
    start: usize,
    /// The next byte is literal (`VLNEXT`).
    literal: bool,
    /// Bytes for the screen.
    screen: VecDeque<u8>,
    /// Column of the cursor.
    column: usize,
    /// Output is stopped (`VSTOP`, `tcflow`).
    stopped: bool,
    /// Status bits for a master in packet mode that it has not read: a set of `TIOCPKT_*`.
    packet_status: u8,
}

impl Line {
    /// Processes typed bytes, as many as there is room for. Returns their number, and the signals
    /// for the foreground process group.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `ENOMEM`.
    pub fn type_bytes(&mut self, bytes: &[u8]) -> Result<(usize, Vec<u8>), Errno> {
        let mut signals = Vec::new();
        let mut done = 0;
        while done < bytes.len() && self.ready.len() + self.edited.len() < CAPACITY {
            // One byte adds at most one line.
            self.ready
                .try_reserve(MAX_LINE + 1)
                .and_then(|()| self.screen.try_reserve(4 * (MAX_LINE + 1)))
                .map_err(|_| Errno::ENOMEM)?;
            signals.extend(self.type_byte(bytes[done]));
            done += 1;
        }
        match done {
            0 if !bytes.is_empty() => Err(Errno::EAGAIN),
            _ => Ok((done, signals)),
        }
    }

    /// Whether there is room for typed bytes.
    pub fn takes_input(&self) -> bool {
        self.ready.len() + self.edited.len() + ROOM <= CAPACITY
    }

    fn type_byte(&mut self, byte: u8) -> Option<u8> {
        let settings = self.termios;
        let mut byte = byte;
        if settings.has_input(ISTRIP) {
            byte &= 0x7f;
        }
        if core::mem::take(&mut self.literal) {
            self.insert(byte);
            return None;
        }
        if settings.has_input(IUCLC) && settings.has_local(IEXTEN) {
            byte = byte.to_ascii_lowercase();
        }
        if settings.has_input(IXON) {
            if settings.is(byte, VSTART) {
                self.stop(false);
                return None;
            }
            if settings.is(byte, VSTOP) {
                self.stop(true);
                return None;
            }
        }
        let signal = self.signal_of(byte);
        if let Some(signal) = signal {
            self.stop(false);
            if !settings.has_local(NOFLSH) {
                self.flush_input();
                self.flush_output();
                self.set_packet_status(TIOCPKT_FLUSHREAD | TIOCPKT_FLUSHWRITE);
            }
            self.echo(byte);
            return Some(signal);
        }
        if settings.has_input(IXANY) {
            self.stop(false);
        }
        match byte {
            b'\r' if settings.has_input(IGNCR) => return None,
            b'\r' if settings.has_input(ICRNL) => byte = b'\n',
            b'\n' if settings.has_input(INLCR) => byte = b'\r',
            _ => {}
        }
        match settings.has_local(ICANON) {
            true => self.edit(byte),
            false => {
                self.echo(byte);
                self.ready.push_back(byte);
            }
        }
        None
    }

    fn signal_of(&self, byte: u8) -> Option<u8> {
        const MEANINGS: [(usize, u8); 3] = [(VINTR, SIGINT), (VQUIT, SIGQUIT), (VSUSP, SIGTSTP)];
        let mut meanings = MEANINGS.iter();
        let found = meanings.find(|(meaning, _)| self.termios.is(byte, *meaning))?;
        self.termios.has_local(ISIG).then_some(found.1)
    }

    /// The number of bytes that a read of `wanted` bytes returns now; none if the read must wait.
    /// With `at_once`, fewer bytes than `VMIN` are enough.
    pub fn available(&self, wanted: usize, at_once: bool) -> Option<usize> {
        if self.termios.has_local(ICANON) {
            let end = self.ends.front()?;
            let length = usize::try_from(end - self.taken).unwrap_or(usize::MAX);
            return Some(length.min(wanted));
        }
        let (least, time) = self.termios.raw_read();
        let length = self.ready.len().min(wanted);
        match (least, time) {
            _ if at_once => Some(length),
            (0, 0) => Some(length),
            (0, _) => (length > 0).then_some(length),
            (least, _) => (length >= least.min(wanted)).then_some(length),
        }
    }

    /// Whether `poll` reports that the program can read.
    pub fn is_readable(&self) -> bool {
        match self.termios.raw_read() {
            _ if self.termios.has_local(ICANON) => !self.ends.is_empty(),
            (least, 0) => self.ready.len() >= least.max(1),
            _ => !self.ready.is_empty(),
        }
    }

    /// Number of bytes that the program can read.
    pub fn input_length(&self) -> usize {
        match self.termios.has_local(ICANON) {
            true => self.ends.back().map_or(0, |end| to_usize(end - self.taken)),
            false => self.ready.len(),
        }
    }

    /// Removes bytes for the program; [`available`](Self::available) has returned their number.
    pub fn take_input<'a>(&mut self, to: impl Into<UserSliceMut<'a>>) -> usize {
        let count = take(&mut self.ready, to.into());
        self.taken += count as u64;
        if self.termios.has_local(ICANON) && self.ends.front() == Some(&self.taken) {
            self.ends.pop_front();
        }
        count
    }

    /// Changes the settings.
    pub fn set(&mut self, termios: Termios) {
        let canonical = |settings: &Termios| settings.has_local(ICANON);
        let (before, after) = (canonical(&self.termios), canonical(&termios));
        let stops = stops_as_usual(&termios);
        if stops != stops_as_usual(&self.termios) {
            // The one takes the place of the other.
            self.packet_status &= !(TIOCPKT_NOSTOP | TIOCPKT_DOSTOP);
            self.set_packet_status(if stops {
                TIOCPKT_DOSTOP
            } else {
                TIOCPKT_NOSTOP
            });
        }
        self.termios = termios;
        if !termios.has_input(IXON) {
            self.stop(false);
        }
        if before && !after {
            self.ready.extend(self.edited.drain(..));
            self.ends.clear();
            self.literal = false;
        } else if !before && after && !self.ready.is_empty() {
            // The bytes that were typed before become a line.
            self.end_line();
        }
    }

    /// Discards typed bytes that were not read.
    pub fn flush_input(&mut self) {
        self.taken += self.ready.len() as u64;
        self.ready.clear();
        self.ends.clear();
        self.edited.clear();
        self.literal = false;
    }

    /// Discards output that was not shown.
    pub fn flush_output(&mut self) {
        self.screen.clear();
    }

    /// Stops or restarts output.
    pub fn stop(&mut self, stopped: bool) {
        if core::mem::replace(&mut self.stopped, stopped) != stopped {
            self.packet_status &= !(TIOCPKT_STOP | TIOCPKT_START);
            self.set_packet_status(if stopped { TIOCPKT_STOP } else { TIOCPKT_START });
        }
    }

    /// Records status bits for a master in packet mode.
    pub fn set_packet_status(&mut self, status: u8) {
        self.packet_status |= status;
    }

    /// Whether there are unread status bits.
    pub fn has_packet_status(&self) -> bool {
        self.packet_status != 0
    }

    /// Takes the status bits.
    pub fn take_news(&mut self) -> u8 {
        core::mem::take(&mut self.packet_status)
    }

    /// Sends the character with this meaning to the other side (`tcflow`).
    pub fn send(&mut self, meaning: usize) {
        let byte = self.termios.c_cc[meaning];
        if byte != 0 {
            self.show_raw(&[byte]);
        }
    }
}

fn take(from: &mut VecDeque<u8>, mut to: UserSliceMut<'_>) -> usize {
    let (front, back) = from.as_slices();
    let first = to.copy_start(front);
    let count = first + to.split_at(first).1.copy_start(back);
    from.drain(..count);
    count
}

/// Whether ^S and ^Q stop and start output.
fn stops_as_usual(settings: &Termios) -> bool {
    const STOP: u8 = 0x13;
    const START: u8 = 0x11;
    settings.has_input(IXON) && settings.is(STOP, VSTOP) && settings.is(START, VSTART)
}
