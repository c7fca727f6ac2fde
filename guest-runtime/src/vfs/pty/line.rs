//! The line discipline (`N_TTY`): what becomes of typed bytes on their way to the program,
//! and of the program's on their way to the screen.

use super::termios::{Termios, character, input, local, output};
use crate::errno::Errno;
use crate::signals::number::{SIGINT, SIGQUIT, SIGTSTP};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Longest line that can be edited, bytes, its end not counted (`MAX_CANON`).
const MAX_LINE: usize = 4095;
/// Bytes that wait in either direction before who writes them has to.
const CAPACITY: usize = 64 << 10;
/// Room that makes a side writable for `poll`, bytes.
const ROOM: usize = 256;
/// Distance of tabulator stops, columns.
const TAB: usize = 8;

const ALERT: u8 = 0x07;
const DELETE: u8 = 0x7f;

/// The bytes between the two sides of a terminal.
#[derive(Debug, Default)]
pub struct Line {
    /// Settings.
    pub termios: Termios,
    /// Typed, and for the program to read.
    ready: VecDeque<u8>,
    /// Bytes that were ever taken out of `ready`.
    taken: u64,
    /// Where lines end, counted as `taken` is: in canonical mode a read gives no more than
    /// one.
    ends: VecDeque<u64>,
    /// The line that is being typed.
    edited: Vec<u8>,
    /// Column where `edited` starts on the screen.
    start: usize,
    /// The next byte has no meaning (`VLNEXT`).
    literal: bool,
    /// For the screen.
    screen: VecDeque<u8>,
    /// Column of the cursor.
    column: usize,
    /// Output waits (`VSTOP`, `tcflow`).
    stopped: bool,
}

impl Line {
    /// Takes typed bytes, as many as there is room for; the result is how many, and the
    /// signals that they mean for the foreground process group.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `ENOMEM`.
    pub fn type_bytes(&mut self, bytes: &[u8]) -> Result<(usize, Vec<u8>), Errno> {
        let mut signals = Vec::new();
        let mut done = 0;
        while done < bytes.len() && self.ready.len() + self.edited.len() < CAPACITY {
            // One byte gives at most a line.
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

    /// Whether bytes can be typed.
    pub fn takes_input(&self) -> bool {
        self.ready.len() + self.edited.len() + ROOM <= CAPACITY
    }

    fn type_byte(&mut self, byte: u8) -> Option<u8> {
        let settings = self.termios;
        let mut byte = byte;
        if settings.has_input(input::ISTRIP) {
            byte &= 0x7f;
        }
        if core::mem::take(&mut self.literal) {
            self.insert(byte);
            return None;
        }
        if settings.has_input(input::IUCLC) && settings.has_local(local::IEXTEN) {
            byte = byte.to_ascii_lowercase();
        }
        if settings.has_input(input::IXON) {
            if settings.is(byte, character::VSTART) {
                self.stopped = false;
                return None;
            }
            if settings.is(byte, character::VSTOP) {
                self.stopped = true;
                return None;
            }
        }
        let signal = self.signal_of(byte);
        if let Some(signal) = signal {
            self.stopped = false;
            if !settings.has_local(local::NOFLSH) {
                self.flush_input();
                self.screen.clear();
            }
            self.echo(byte);
            return Some(signal);
        }
        if settings.has_input(input::IXANY) {
            self.stopped = false;
        }
        match byte {
            b'\r' if settings.has_input(input::IGNCR) => return None,
            b'\r' if settings.has_input(input::ICRNL) => byte = b'\n',
            b'\n' if settings.has_input(input::INLCR) => byte = b'\r',
            _ => {}
        }
        match settings.has_local(local::ICANON) {
            true => self.edit(byte),
            false => {
                self.echo(byte);
                self.ready.push_back(byte);
            }
        }
        None
    }

    fn signal_of(&self, byte: u8) -> Option<u8> {
        const MEANINGS: [(usize, u8); 3] = [
            (character::VINTR, SIGINT),
            (character::VQUIT, SIGQUIT),
            (character::VSUSP, SIGTSTP),
        ];
        let mut meanings = MEANINGS.iter();
        let found = meanings.find(|(meaning, _)| self.termios.is(byte, *meaning))?;
        self.termios.has_local(local::ISIG).then_some(found.1)
    }

    /// A byte in canonical mode.
    fn edit(&mut self, byte: u8) {
        let settings = self.termios;
        if settings.is(byte, character::VERASE) {
            return self.erase(byte, |_| false);
        }
        if settings.is_extended(byte, character::VWERASE) {
            // What is not part of a word, then the word.
            let mut in_word = false;
            return self.erase(byte, |before| {
                let is_part = before.is_ascii_alphanumeric() || before == b'_' || before >= 0x80;
                in_word |= is_part;
                is_part || !in_word
            });
        }
        if settings.is(byte, character::VKILL) {
            return self.kill(byte);
        }
        if settings.is_extended(byte, character::VLNEXT) {
            self.literal = true;
            if settings.has_local(local::ECHO) && settings.has_local(local::ECHOCTL) {
                self.show_raw(b"^\x08");
            }
            return;
        }
        if settings.is_extended(byte, character::VREPRINT) && settings.has_local(local::ECHO) {
            self.echo(byte);
            self.show(b'\n');
            self.start = self.column;
            for index in 0..self.edited.len() {
                self.echo(self.edited[index]);
            }
            return;
        }
        if settings.is(byte, character::VEOF) {
            return self.end_line();
        }
        let ends = byte == b'\n'
            || settings.is(byte, character::VEOL)
            || settings.is_extended(byte, character::VEOL2);
        if !ends {
            return self.insert(byte);
        }
        if byte == b'\n' && settings.has_local(local::ECHONL) && !settings.has_local(local::ECHO) {
            self.show(byte);
        }
        self.echo(byte);
        self.edited.push(byte);
        self.end_line();
    }

    /// A byte without a meaning.
    fn insert(&mut self, byte: u8) {
        if !self.termios.has_local(local::ICANON) {
            self.echo(byte);
            self.ready.push_back(byte);
        } else if self.edited.len() < MAX_LINE {
            if self.edited.is_empty() {
                self.start = self.column;
            }
            self.edited.push(byte);
            self.echo(byte);
        } else if self.termios.has_input(input::IMAXBEL) {
            self.show_raw(&[ALERT]);
        }
    }

    /// What was typed becomes a line, which may be empty.
    fn end_line(&mut self) {
        self.ready.extend(self.edited.drain(..));
        self.ends.push_back(self.taken + self.ready.len() as u64);
    }

    /// Takes the last character away, and those before it as long as `more` says so of
    /// each.
    fn erase(&mut self, typed: u8, mut more: impl FnMut(u8) -> bool) {
        let echoes = self.termios.has_local(local::ECHO);
        let shows = echoes && self.termios.has_local(local::ECHOE);
        let mut first = true;
        while let Some(&last) = self.edited.last() {
            if core::mem::take(&mut first) {
                // The first is taken whatever it is; `more` has to see it.
                more(last);
            } else if !more(last) {
                break;
            }
            self.drop_character(shows);
        }
        if echoes && !shows && !first {
            self.echo(typed);
        }
    }

    /// Takes away all that was typed of the line.
    fn kill(&mut self, typed: u8) {
        let echoes = |bit| self.termios.has_local(local::ECHO) && self.termios.has_local(bit);
        let shows = echoes(local::ECHOE) && echoes(local::ECHOK) && echoes(local::ECHOKE);
        let (echo, newline) = (self.termios.has_local(local::ECHO), echoes(local::ECHOK));
        if shows {
            while !self.edited.is_empty() {
                self.drop_character(true);
            }
            return;
        }
        self.edited.clear();
        if echo {
            self.echo(typed);
        }
        if newline {
            self.show(b'\n');
        }
    }

    /// Takes the last character of the line away, from the screen too if `shows`.
    fn drop_character(&mut self, shows: bool) {
        let end = self.column_of(self.edited.len());
        if self.termios.has_input(input::IUTF8) {
            let is_continuation = |byte: &u8| byte & 0xc0 == 0x80;
            while self.edited.len() > 1 && self.edited.last().is_some_and(is_continuation) {
                self.edited.pop();
            }
        }
        let last = self.edited.pop();
        if !shows {
            return;
        }
        let columns = end.saturating_sub(self.column_of(self.edited.len()));
        self.column = self.column.saturating_sub(columns);
        for _ in 0..columns {
            match last {
                Some(b'\t') => self.show_raw(b"\x08"),
                _ => self.show_raw(b"\x08 \x08"),
            }
        }
    }

    /// Column behind the first `length` bytes of the line as they were echoed.
    fn column_of(&self, length: usize) -> usize {
        let utf8 = self.termios.has_input(input::IUTF8);
        let bytes = self.edited[..length].iter();
        bytes.fold(self.start, |column, &byte| match byte {
            b'\t' => (column / TAB + 1) * TAB,
            0..0x20 | DELETE if self.termios.has_local(local::ECHOCTL) => column + 2,
            0..0x20 | DELETE => column,
            0x80..0xc0 if utf8 => column,
            _ => column + 1,
        })
    }

    /// Shows a typed byte, if it is to be.
    fn echo(&mut self, byte: u8) {
        if !self.termios.has_local(local::ECHO) {
            return;
        }
        let control = matches!(byte, 0..0x20 | DELETE) && !matches!(byte, b'\n' | b'\t');
        if control && self.termios.has_local(local::ECHOCTL) {
            self.show_raw(&[b'^', byte ^ 0x40]);
            self.column += 2;
        } else {
            self.show(byte);
        }
    }

    fn show_raw(&mut self, bytes: &[u8]) {
        if self.screen.len() < 2 * CAPACITY {
            self.screen.extend(bytes);
        }
    }

    /// Takes bytes of the program for the screen, as many as there is room for.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, or output was stopped; `ENOMEM`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if !self.takes_output() {
            return Err(Errno::EAGAIN);
        }
        let room = CAPACITY - self.screen.len();
        // The last byte may become several.
        self.screen
            .try_reserve(room + TAB)
            .map_err(|_| Errno::ENOMEM)?;
        if self.termios.output & output::OPOST == 0 {
            let count = bytes.len().min(room);
            self.screen.extend(&bytes[..count]);
            return Ok(count);
        }
        let mut done = 0;
        while done < bytes.len() && self.screen.len() < CAPACITY {
            self.show(bytes[done]);
            done += 1;
        }
        Ok(done)
    }

    /// Whether the program can write.
    pub fn takes_output(&self) -> bool {
        !self.stopped && self.screen.len() + ROOM <= CAPACITY
    }

    /// Puts a byte on the screen as `c_oflag` says, and follows the cursor.
    fn show(&mut self, byte: u8) {
        let settings = self.termios;
        match byte {
            b'\n' => {
                if settings.has_output(output::ONLCR) {
                    self.show_raw(b"\r");
                }
                if settings.has_output(output::ONLCR | output::ONLRET) {
                    self.column = 0;
                }
                self.show_raw(b"\n");
            }
            b'\r' if settings.has_output(output::ONOCR) && self.column == 0 => {}
            b'\r' if settings.has_output(output::OCRNL) => {
                if settings.has_output(output::ONLRET) {
                    self.column = 0;
                }
                self.show_raw(b"\n");
            }
            b'\r' => {
                self.column = 0;
                self.show_raw(b"\r");
            }
            b'\t' => {
                let columns = TAB - self.column % TAB;
                self.column += columns;
                if settings.has_output(output::TABDLY)
                    && settings.output & output::TABDLY == output::TABDLY
                {
                    self.show_raw(&[b' '; TAB][..columns]);
                } else {
                    self.show_raw(b"\t");
                }
            }
            0x08 => {
                self.column = self.column.saturating_sub(1);
                self.show_raw(&[byte]);
            }
            _ => {
                let upper = settings.has_output(output::OLCUC);
                let byte = if upper {
                    byte.to_ascii_uppercase()
                } else {
                    byte
                };
                let is_continuation = byte & 0xc0 == 0x80 && settings.has_input(input::IUTF8);
                if byte >= 0x20 && byte != DELETE && !is_continuation {
                    self.column += 1;
                }
                self.show_raw(&[byte]);
            }
        }
    }

    /// Takes bytes off for the screen: as many as there are.
    pub fn take_screen(&mut self, to: &mut [u8]) -> usize {
        take(&mut self.screen, to)
    }

    /// Bytes for the screen.
    pub fn screen_length(&self) -> usize {
        self.screen.len()
    }

    /// Bytes that a read of `wanted` bytes gives now; none if it has to wait. What is
    /// there counts even if it is less than the settings ask for if `at_once`.
    pub fn available(&self, wanted: usize, at_once: bool) -> Option<usize> {
        if self.termios.has_local(local::ICANON) {
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

    /// Whether the program can read without waiting, as `poll` sees it.
    pub fn is_readable(&self) -> bool {
        match self.termios.raw_read() {
            _ if self.termios.has_local(local::ICANON) => !self.ends.is_empty(),
            (least, 0) => self.ready.len() >= least.max(1),
            _ => !self.ready.is_empty(),
        }
    }

    /// Bytes that wait for the program.
    pub fn input_length(&self) -> usize {
        match self.termios.has_local(local::ICANON) {
            true => self
                .ends
                .back()
                .map_or(0, |end| (end - self.taken) as usize),
            false => self.ready.len(),
        }
    }

    /// Takes bytes off for the program, after [`available`](Self::available) said how many.
    pub fn take_input(&mut self, to: &mut [u8]) -> usize {
        let count = take(&mut self.ready, to);
        self.taken += count as u64;
        if self.termios.has_local(local::ICANON) && self.ends.front() == Some(&self.taken) {
            self.ends.pop_front();
        }
        count
    }

    /// Changes the settings.
    pub fn set(&mut self, termios: Termios) {
        let canonical = |settings: &Termios| settings.has_local(local::ICANON);
        let (before, after) = (canonical(&self.termios), canonical(&termios));
        self.termios = termios;
        if !termios.has_input(input::IXON) {
            self.stopped = false;
        }
        if before && !after {
            self.ready.extend(self.edited.drain(..));
            self.ends.clear();
            self.literal = false;
        } else if !before && after && !self.ready.is_empty() {
            // What was typed before is a line.
            self.end_line();
        }
    }

    /// Forgets what was typed and not read.
    pub fn flush_input(&mut self) {
        self.taken += self.ready.len() as u64;
        self.ready.clear();
        self.ends.clear();
        self.edited.clear();
        self.literal = false;
    }

    /// Forgets what was written and not shown.
    pub fn flush_output(&mut self) {
        self.screen.clear();
    }

    /// Stops output, or lets it go on.
    pub fn stop(&mut self, stopped: bool) {
        self.stopped = stopped;
    }

    /// Types the character with this meaning on the other side (`tcflow`).
    pub fn send(&mut self, meaning: usize) {
        let byte = self.termios.characters[meaning];
        if byte != 0 {
            self.show_raw(&[byte]);
        }
    }
}

fn take(from: &mut VecDeque<u8>, to: &mut [u8]) -> usize {
    let count = from.len().min(to.len());
    for (to, byte) in to.iter_mut().zip(from.drain(..count)) {
        *to = byte;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &mut Line, bytes: &[u8]) -> Vec<u8> {
        let (done, signals) = line.type_bytes(bytes).unwrap();
        assert_eq!(done, bytes.len());
        signals
    }

    fn read(line: &mut Line, wanted: usize) -> Option<Vec<u8>> {
        let count = line.available(wanted, false)?;
        let mut bytes = std::vec![0; count];
        assert_eq!(line.take_input(&mut bytes), count);
        Some(bytes)
    }

    fn screen(line: &mut Line) -> Vec<u8> {
        let mut bytes = std::vec![0; line.screen_length()];
        line.take_screen(&mut bytes);
        bytes
    }

    #[test]
    fn lines_are_edited_and_read_one_at_a_time() {
        let mut line = Line::default();
        typed(&mut line, b"one\r");
        assert_eq!(read(&mut line, 100).unwrap(), b"one\n");
        assert_eq!(screen(&mut line), b"one\r\n");
        typed(&mut line, b"ab\x7fc");
        assert_eq!((read(&mut line, 100), line.is_readable()), (None, false));
        assert_eq!(screen(&mut line), b"ab\x08 \x08c");
        typed(&mut line, b"\nsecond\n");
        assert_eq!(read(&mut line, 2).unwrap(), b"ac");
        assert_eq!(read(&mut line, 100).unwrap(), b"\n");
        assert_eq!(read(&mut line, 100).unwrap(), b"second\n");
        // The end of the input, once after text and once for good.
        typed(&mut line, b"x\x04\x04");
        assert_eq!(read(&mut line, 100).unwrap(), b"x");
        assert_eq!(read(&mut line, 100).unwrap(), b"");
        assert_eq!(read(&mut line, 100), None);
    }

    #[test]
    fn erasing_words_lines_tabs_and_utf8() {
        let mut line = Line::default();
        typed(&mut line, b"ls  foo/bar \x17\n");
        assert_eq!(read(&mut line, 100).unwrap(), b"ls  foo/\n");
        screen(&mut line);
        typed(&mut line, b"a\x03\x16\x03b\x15c\n");
        assert_eq!(read(&mut line, 100).unwrap(), b"c\n");
        screen(&mut line);
        typed(&mut line, b"a\t\x7f");
        assert_eq!(screen(&mut line), b"a\t\x08\x08\x08\x08\x08\x08\x08");
        line.flush_input();
        line.termios.input |= input::IUTF8;
        typed(&mut line, b"\r");
        screen(&mut line);
        read(&mut line, 9);
        typed(&mut line, "aä\u{7f}".as_bytes());
        assert_eq!(screen(&mut line), "aä\u{8} \u{8}".as_bytes());
        typed(&mut line, b"\n");
        assert_eq!(read(&mut line, 100).unwrap(), b"a\n");
    }

    #[test]
    fn characters_mean_signals_and_drop_what_was_typed() {
        let mut line = Line::default();
        assert_eq!(typed(&mut line, b"ab\x03"), [SIGINT]);
        assert_eq!(screen(&mut line), b"^C");
        assert_eq!(typed(&mut line, b"\x1a\x1c"), [SIGTSTP, SIGQUIT]);
        typed(&mut line, b"c\n");
        assert_eq!(read(&mut line, 100).unwrap(), b"c\n");
        line.termios.local &= !local::ISIG;
        assert_eq!(typed(&mut line, b"\x03\n"), []);
        assert_eq!(read(&mut line, 100).unwrap(), b"\x03\n");
    }

    #[test]
    fn raw_reads_wait_for_as_much_as_they_should() {
        let mut line = Line::default();
        let mut settings = line.termios;
        typed(&mut line, b"typed before");
        settings.local &= !(local::ICANON | local::ECHO);
        line.set(settings);
        assert_eq!(read(&mut line, 5).unwrap(), b"typed");
        assert_eq!(read(&mut line, 50).unwrap(), b" before");
        assert_eq!(read(&mut line, 50), None);
        line.termios.characters[character::VMIN] = 3;
        typed(&mut line, b"ab");
        assert_eq!((read(&mut line, 50), line.is_readable()), (None, false));
        assert_eq!(read(&mut line, 1).unwrap(), b"a");
        assert_eq!(line.available(50, true), Some(1));
        line.termios.characters[character::VMIN] = 0;
        assert_eq!(read(&mut line, 50).unwrap(), b"b");
        assert_eq!(read(&mut line, 50).unwrap(), b"");
        // Back again: what is there is a line.
        typed(&mut line, b"xy");
        settings.local |= local::ICANON;
        line.set(settings);
        assert_eq!(read(&mut line, 50).unwrap(), b"xy");
        assert_eq!(read(&mut line, 50), None);
    }

    #[test]
    fn output_is_processed_stopped_and_limited() {
        let mut line = Line::default();
        assert_eq!(line.write(b"a\nb\t"), Ok(4));
        assert_eq!(screen(&mut line), b"a\r\nb\t");
        line.termios.output |= output::TABDLY;
        line.write(b"\rab\tc").unwrap();
        assert_eq!(screen(&mut line), b"\rab      c");
        line.termios.output &= !output::OPOST;
        line.write(b"\n\t").unwrap();
        assert_eq!(screen(&mut line), b"\n\t");
        typed(&mut line, b"\x13");
        assert_eq!(line.write(b"x"), Err(Errno::EAGAIN));
        typed(&mut line, b"\x11");
        let mut written = 0;
        while let Ok(count) = line.write(&[b'y'; 10_000]) {
            written += count;
        }
        assert!(written <= CAPACITY && !line.takes_output());
        assert_eq!(screen(&mut line).len(), written);
        assert!(line.takes_output());
    }

    #[test]
    fn a_line_has_a_greatest_length_and_can_always_be_ended() {
        let mut line = Line::default();
        typed(&mut line, &[b'z'; MAX_LINE + 50]);
        typed(&mut line, b"\n");
        assert_eq!(read(&mut line, 9999).unwrap().len(), MAX_LINE + 1);
        while line.takes_input() {
            typed(&mut line, b"full\n");
        }
        let taken = line.type_bytes(&[b'a'; 1000]).map(|(done, _)| done);
        assert!(taken.is_ok_and(|done| done < 1000));
        assert_eq!(line.type_bytes(b"a").unwrap_err(), Errno::EAGAIN);
    }
}
