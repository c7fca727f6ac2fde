//! Bytes between the connection, which is asynchronous, and threads that read and write files.

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use hartline_cli::client::Body;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Read, Write};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Pieces that wait for the other side.
const WAITING: usize = 4;
/// Bytes of a piece.
const PIECE: usize = 256 << 10;
/// A copy that takes less time shows no progress.
const SHORT: Duration = Duration::from_secs(1);

/// Progress of a copy, on a terminal.
#[derive(Debug)]
pub struct Meter {
    started: Instant,
    bytes: u64,
    is_shown: bool,
    bar: Option<ProgressBar>,
}

impl Meter {
    /// A meter; if it is quiet, or standard error is not a terminal, it shows nothing.
    pub fn new(is_quiet: bool) -> Self {
        Self {
            started: Instant::now(),
            bytes: 0,
            is_shown: !is_quiet && io::stderr().is_terminal(),
            bar: None,
        }
    }

    /// Counts bytes.
    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if !self.is_shown || self.started.elapsed() < SHORT {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::no_length();
            let style = ProgressStyle::with_template("{bytes} copied, {bytes_per_sec}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        bar.set_position(self.bytes);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The bytes of an answer, for a thread.
#[derive(Debug)]
pub struct Incoming {
    receiver: Receiver<io::Result<Bytes>>,
    rest: Bytes,
}

impl Incoming {
    /// An end for the thread, and one for the connection.
    pub fn new() -> (Sender<io::Result<Bytes>>, Self) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let rest = Bytes::new();
        (sender, Self { receiver, rest })
    }
}

impl Read for Incoming {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.receiver.blocking_recv() {
                Some(bytes) => self.rest = bytes?,
                None => return Ok(0),
            }
        }
        let count = self.rest.len().min(to.len());
        to[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}

/// The bytes of a request, from a thread. The last one must be flushed.
#[derive(Debug)]
pub struct Outgoing {
    sender: Sender<io::Result<Bytes>>,
    pending: BytesMut,
    meter: Meter,
}

impl Outgoing {
    /// Makes the request fail.
    pub fn fail(&self, error: &io::Error) {
        let copy = io::Error::new(error.kind(), error.to_string());
        // Nobody reads the request any more if this fails.
        let _ = self.sender.blocking_send(Err(copy));
    }
}

impl Write for Outgoing {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(from);
        self.meter.add(from.len());
        if self.pending.len() >= PIECE {
            self.flush()?;
        }
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = self.pending.split().freeze();
        if bytes.is_empty() {
            return Ok(());
        }
        let sent = self.sender.blocking_send(Ok(bytes));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// A body, and the writer for a thread.
pub fn outgoing(meter: Meter) -> (Outgoing, Body) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let frames = stream::unfold(
        receiver,
        async |mut receiver: Receiver<io::Result<Bytes>>| {
            let bytes = receiver.recv().await?;
            Some((bytes.map(Frame::data), receiver))
        },
    );
    let writer = Outgoing {
        sender,
        pending: BytesMut::new(),
        meter,
    };
    (writer, BodyExt::boxed(StreamBody::new(frames)))
}

/// A body with the bytes of standard input. The thread that reads it may outlast the request.
pub fn standard_input(meter: Meter) -> Body {
    let (mut writer, body) = outgoing(meter);
    thread::spawn(move || {
        let read = io::copy(&mut io::stdin().lock(), &mut writer);
        if let Err(error) = read.and_then(|_| writer.flush()) {
            writer.fail(&error);
        }
    });
    body
}
