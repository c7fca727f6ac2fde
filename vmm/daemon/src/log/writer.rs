//! Writes logs, in the VMM.

use super::records::Records;
use super::{HEADER, Head, MAGIC, MAX_BYTES, RECORD, now};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use std::fs::File;
use std::io::{self, PipeReader, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Writes one output to its files.
#[derive(Debug)]
pub struct Writer {
    files: Vec<File>,
    /// Longest file, bytes.
    limit: u64,
    /// Index of the file that is written, its number, and its length.
    current: usize,
    number: u64,
    length: u64,
    /// Length of the output.
    position: u64,
    buffer: Vec<u8>,
}

impl Writer {
    /// A writer of empty files, at least one, that get no longer than `limit` bytes.
    #[must_use]
    pub fn new(files: Vec<File>, limit: u64) -> Self {
        Self {
            files,
            limit,
            current: 0,
            number: 1,
            length: 0,
            position: 0,
            buffer: Vec::new(),
        }
    }

    /// A writer of files that may have records: it goes on after the last one. The files can be read too.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn continued(files: Vec<File>, limit: u64) -> io::Result<Self> {
        let mut records = Records::new(files);
        let tail = records.tail()?;
        let mut writer = Self::new(records.into_files(), limit);
        if let Some((current, number, length, position)) = tail {
            (writer.current, writer.number) = (current, number);
            (writer.length, writer.position) = (length, position);
            // What a killed writer left of a record, which readers do not read either.
            writer.cut()?;
        }
        Ok(writer)
    }

    /// Writes bytes with the time of their arrival. Bytes for which the disk has no room are dropped:
    /// the program must not end because of its log.
    pub fn write(&mut self, time: u64, bytes: &[u8]) {
        for bytes in bytes.chunks(MAX_BYTES) {
            if self.append(time, bytes).is_err() {
                // Without this, the next record would begin in the middle of this one. If it fails
                // too, readers find the end of the file here.
                let _ = self.cut();
            }
            self.position = self.position.saturating_add(bytes.len() as u64);
        }
    }

    fn append(&mut self, time: u64, bytes: &[u8]) -> io::Result<()> {
        let needed = RECORD + bytes.len() as u64;
        if self.length > HEADER && self.length + needed > self.limit {
            self.current = (self.current + 1) % self.files.len();
            self.number += 1;
            self.length = 0;
            self.cut()?;
        }
        let head = Head {
            time,
            position: self.position,
            // A chunk is not longer than MAX_BYTES.
            length: u32::try_from(bytes.len()).unwrap_or(0),
        };
        self.buffer.clear();
        if self.length == 0 {
            self.buffer.extend_from_slice(&MAGIC);
            self.buffer.extend_from_slice(&self.number.to_le_bytes());
        }
        self.buffer.extend_from_slice(&head.to_bytes());
        self.buffer.extend_from_slice(bytes);
        self.files[self.current].write_all(&self.buffer)?;
        self.length += self.buffer.len() as u64;
        Ok(())
    }

    /// Removes everything from the current file that is not counted.
    fn cut(&mut self) -> io::Result<()> {
        let file = &mut self.files[self.current];
        file.set_len(self.length)?;
        file.seek(SeekFrom::Start(self.length))?;
        Ok(())
    }
}

/// A thread that writes outputs as they come through pipes.
#[derive(Debug)]
pub struct Recorder {
    thread: JoinHandle<()>,
    /// An event: nothing more is coming.
    end: Arc<OwnedFd>,
}

impl Recorder {
    /// Starts the thread, which calls `confine` first.
    ///
    /// # Errors
    /// The host has no thread or descriptor left.
    pub fn start(
        outputs: [(PipeReader, Writer); 2],
        confine: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let thread = thread::Builder::new().name("log".to_owned());
        let event = Arc::clone(&end);
        let work = move || {
            confine();
            record(outputs, event.as_fd());
        };
        let thread = thread.spawn(work)?;
        Ok(Self { thread, end })
    }

    /// Waits until everything is written that is in the pipes now. They need not be closed.
    pub fn finish(self) {
        if rustix::io::write(&self.end, &1_u64.to_ne_bytes()).is_ok() {
            // A panic of the thread has been reported.
            let _ = self.thread.join();
        }
    }
}

/// Writes outputs until both pipes are closed, or `end` is signalled and they are empty.
fn record(outputs: [(PipeReader, Writer); 2], end: BorrowedFd<'_>) {
    let mut open = Vec::from(outputs);
    let mut bytes = vec![0; MAX_BYTES];
    while !open.is_empty() {
        let pipes = open.iter().map(|(pipe, _)| pipe.as_fd());
        let ready = wait(std::iter::once(end).chain(pipes));
        let Some((has_ended, ready)) = ready.split_first() else {
            return;
        };
        if *has_ended && !ready.contains(&true) {
            return;
        }
        let mut ready = ready.iter();
        open.retain_mut(|(pipe, writer)| {
            if ready.next() != Some(&true) {
                return true;
            }
            match pipe.read(&mut bytes) {
                Ok(0) => false,
                Ok(count) => {
                    writer.write(now(), &bytes[..count]);
                    true
                }
                Err(error) => error.kind() == io::ErrorKind::Interrupted,
            }
        });
    }
}

/// Waits until one of the descriptors can be read, or is closed. Result: which ones.
fn wait<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>) -> Vec<bool> {
    let entry = |descriptor: BorrowedFd<'_>| libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: PollFlags::IN.bits().cast_signed(),
        revents: 0,
    };
    let mut entries: Vec<_> = descriptors.map(entry).collect();
    let count = entries.len() as libc::nfds_t;
    // SAFETY: the pointer is to `count` initialised entries, which outlive the call. `rustix` calls
    // `ppoll`, which the filter of this thread does not allow.
    unsafe { libc::poll(entries.as_mut_ptr(), count, -1) };
    entries.iter().map(|entry| entry.revents != 0).collect()
}
