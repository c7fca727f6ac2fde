//! Output for the screen: what the program writes, and the echo.

use super::{CAPACITY, DELETE, Line, ROOM, TAB, take};
use crate::mm::UserSliceMut;
use hartline_linux::errno::Errno;
use hartline_linux::termbits::{IUTF8, OCRNL, OLCUC, ONLCR, ONLRET, ONOCR, OPOST, TABDLY};

impl Line {
    pub(super) fn show_raw(&mut self, bytes: &[u8]) {
        if self.screen.len() < 2 * CAPACITY {
            self.screen.extend(bytes);
        }
    }

    /// Processes output of the program, as many bytes as there is room for.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room or output is stopped; `ENOMEM`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if !self.takes_output() {
            return Err(Errno::EAGAIN);
        }
        let room = CAPACITY - self.screen.len();
        // The last byte may become several bytes.
        self.screen
            .try_reserve(room + TAB)
            .map_err(|_| Errno::ENOMEM)?;
        if self.termios.c_oflag & OPOST == 0 {
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

    /// Adds a byte to the screen's queue as `c_oflag` requires, and updates the cursor's column.
    pub(super) fn show(&mut self, byte: u8) {
        let settings = self.termios;
        match byte {
            b'\n' => {
                if settings.has_output(ONLCR) {
                    self.show_raw(b"\r");
                }
                if settings.has_output(ONLCR | ONLRET) {
                    self.column = 0;
                }
                self.show_raw(b"\n");
            }
            b'\r' if settings.has_output(ONOCR) && self.column == 0 => {}
            b'\r' if settings.has_output(OCRNL) => {
                if settings.has_output(ONLRET) {
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
                if settings.has_output(TABDLY) && settings.c_oflag & TABDLY == TABDLY {
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
                let upper = settings.has_output(OLCUC);
                let byte = if upper {
                    byte.to_ascii_uppercase()
                } else {
                    byte
                };
                let is_continuation = byte & 0xc0 == 0x80 && settings.has_input(IUTF8);
                if byte >= 0x20 && byte != DELETE && !is_continuation {
                    self.column += 1;
                }
                self.show_raw(&[byte]);
            }
        }
    }

    /// Removes bytes for the screen, as many as there are.
    pub fn take_screen<'a>(&mut self, to: impl Into<UserSliceMut<'a>>) -> usize {
        take(&mut self.screen, to.into())
    }

    /// Number of bytes for the screen.
    pub fn screen_length(&self) -> usize {
        self.screen.len()
    }
}
