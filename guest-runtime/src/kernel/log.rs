//! The kernel's log, as `syslog` shows it. Its only message is that of the start, because the host
//! logs what happens to the VM.

use alloc::format;
use alloc::vec::Vec;

/// Level of the messages that the console shows at first, and the least level.
const LEVELS: [u8; 2] = [4, 1];

/// The kernel's log.
#[derive(Debug)]
pub struct KernelLog {
    /// Number of bytes that `SYSLOG_ACTION_READ` has read.
    read: usize,
    /// Whether `SYSLOG_ACTION_CLEAR` hides the message from `SYSLOG_ACTION_READ_ALL`.
    cleared: bool,
    /// Messages of lower levels are shown on the console.
    level: u8,
    /// The level before `SYSLOG_ACTION_CONSOLE_OFF`.
    saved: Option<u8>,
}

impl Default for KernelLog {
    fn default() -> Self {
        Self {
            read: 0,
            cleared: false,
            level: LEVELS[0],
            saved: None,
        }
    }
}

impl KernelLog {
    /// Size of the buffer that Linux has by default, bytes.
    pub const SIZE: u64 = 1 << 17;

    fn message(release: &str, version: &str) -> Vec<u8> {
        format!("<5>[    0.000000] Linux version {release} (hartline) {version}\n").into_bytes()
    }

    /// The bytes that were not read, of the message of this release and version.
    #[must_use]
    pub fn unread(&self, [release, version]: [&str; 2]) -> Vec<u8> {
        let mut message = Self::message(release, version);
        message.drain(..self.read.min(message.len()));
        message
    }

    /// Counts `count` bytes as read.
    pub fn advance(&mut self, count: usize) {
        self.read += count;
    }

    /// The last whole messages that have at most `room` bytes.
    #[must_use]
    pub fn all(&self, [release, version]: [&str; 2], room: usize) -> Vec<u8> {
        let message = Self::message(release, version);
        match self.cleared || message.len() > room {
            true => Vec::new(),
            false => message,
        }
    }

    /// Hides the messages from [`all`](Self::all).
    pub fn clear(&mut self) {
        self.cleared = true;
    }

    /// Messages of lower levels are shown on the console.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Sets the level of the console.
    pub fn set_level(&mut self, level: u8) {
        self.level = level.max(LEVELS[1]);
        self.saved = None;
    }

    /// Shows no messages on the console, or those of before again.
    pub fn set_console(&mut self, on: bool) {
        match on {
            true => self.level = self.saved.take().unwrap_or(self.level),
            false => {
                self.saved.get_or_insert(self.level);
                self.level = LEVELS[1];
            }
        }
    }
}
