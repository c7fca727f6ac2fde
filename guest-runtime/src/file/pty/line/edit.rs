//! Editing of the line that is being typed, and its echo.

use super::{ALERT, DELETE, Line, MAX_LINE, TAB};
use hartline_linux::termbits::{
    ECHO, ECHOCTL, ECHOE, ECHOK, ECHOKE, ECHONL, ICANON, IMAXBEL, IUTF8, VEOF, VEOL, VEOL2, VERASE,
    VKILL, VLNEXT, VREPRINT, VWERASE,
};

impl Line {
    /// Processes a typed byte in canonical mode.
    pub(super) fn edit(&mut self, byte: u8) {
        let settings = self.termios;
        if settings.is(byte, VERASE) {
            return self.erase(byte, |_| false);
        }
        if settings.is_extended(byte, VWERASE) {
            // What is not part of a word, then the word.
            let mut in_word = false;
            return self.erase(byte, |before| {
                let is_part = before.is_ascii_alphanumeric() || before == b'_' || before >= 0x80;
                in_word |= is_part;
                is_part || !in_word
            });
        }
        if settings.is(byte, VKILL) {
            return self.kill(byte);
        }
        if settings.is_extended(byte, VLNEXT) {
            self.literal = true;
            if settings.has_local(ECHO) && settings.has_local(ECHOCTL) {
                self.show_raw(b"^\x08");
            }
            return;
        }
        if settings.is_extended(byte, VREPRINT) && settings.has_local(ECHO) {
            self.echo(byte);
            self.show(b'\n');
            self.start = self.column;
            for index in 0..self.edited.len() {
                self.echo(self.edited[index]);
            }
            return;
        }
        if settings.is(byte, VEOF) {
            return self.end_line();
        }
        let ends = byte == b'\n' || settings.is(byte, VEOL) || settings.is_extended(byte, VEOL2);
        if !ends {
            return self.insert(byte);
        }
        if byte == b'\n' && settings.has_local(ECHONL) && !settings.has_local(ECHO) {
            self.show(byte);
        }
        self.echo(byte);
        self.edited.push(byte);
        self.end_line();
    }

    /// Inserts a byte without a special meaning.
    pub(super) fn insert(&mut self, byte: u8) {
        if !self.termios.has_local(ICANON) {
            self.echo(byte);
            self.ready.push_back(byte);
        } else if self.edited.len() < MAX_LINE {
            if self.edited.is_empty() {
                self.start = self.column;
            }
            self.edited.push(byte);
            self.echo(byte);
        } else if self.termios.has_input(IMAXBEL) {
            self.show_raw(&[ALERT]);
        }
    }

    /// Ends the edited line, which may be empty.
    pub(super) fn end_line(&mut self) {
        self.ready.extend(self.edited.drain(..));
        self.ends.push_back(self.taken + self.ready.len() as u64);
    }

    /// Erases the last character, and the ones before it while `more` returns true for each.
    fn erase(&mut self, typed: u8, mut more: impl FnMut(u8) -> bool) {
        let echoes = self.termios.has_local(ECHO);
        let shows = echoes && self.termios.has_local(ECHOE);
        let mut first = true;
        while let Some(&last) = self.edited.last() {
            if core::mem::take(&mut first) {
                // The first character is always erased, but `more` must see it.
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

    /// Erases the whole line.
    fn kill(&mut self, typed: u8) {
        let echoes = |bit| self.termios.has_local(ECHO) && self.termios.has_local(bit);
        let shows = echoes(ECHOE) && echoes(ECHOK) && echoes(ECHOKE);
        let (echo, newline) = (self.termios.has_local(ECHO), echoes(ECHOK));
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

    /// Removes the last character of the line; if `shows`, also from the screen.
    fn drop_character(&mut self, shows: bool) {
        let end = self.column_of(self.edited.len());
        if self.termios.has_input(IUTF8) {
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

    /// The column after the first `length` bytes of the line as they were echoed.
    fn column_of(&self, length: usize) -> usize {
        let utf8 = self.termios.has_input(IUTF8);
        let bytes = self.edited[..length].iter();
        bytes.fold(self.start, |column, &byte| match byte {
            b'\t' => (column / TAB + 1) * TAB,
            0..0x20 | DELETE if self.termios.has_local(ECHOCTL) => column + 2,
            0..0x20 | DELETE => column,
            0x80..0xc0 if utf8 => column,
            _ => column + 1,
        })
    }

    /// Echoes a typed byte, if the settings require it.
    pub(super) fn echo(&mut self, byte: u8) {
        if !self.termios.has_local(ECHO) {
            return;
        }
        let control = matches!(byte, 0..0x20 | DELETE) && !matches!(byte, b'\n' | b'\t');
        if control && self.termios.has_local(ECHOCTL) {
            self.show_raw(&[b'^', byte ^ 0x40]);
            self.column += 2;
        } else {
            self.show(byte);
        }
    }
}
