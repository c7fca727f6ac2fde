//! The time line of what the VMM does (`hartline run --trace`): exits, translations, packets and block
//! requests. Without a recorder, each point costs one load and one branch.

use std::sync::OnceLock;

/// Something that took time. A packet has no duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A vCPU was outside the VM.
    Exit {
        /// Number of the vCPU.
        cpu: usize,
        /// The reason for which it left.
        reason: &'static str,
    },
    /// Code was translated.
    Translation {
        /// The translator.
        tier: &'static str,
        /// Number of guest instructions, if it is known.
        instructions: Option<usize>,
    },
    /// A packet of the network device, with its Ethernet header.
    Packet {
        /// Whether the guest sent it.
        is_sent: bool,
        /// Its length, bytes.
        length: usize,
    },
    /// A request to a block device was served.
    Block {
        /// Its type (`VIRTIO_BLK_T_…`).
        kind: u32,
        /// Its first sector.
        sector: u64,
        /// Length of its data, bytes.
        length: usize,
        /// Whether it failed.
        is_error: bool,
    },
}

/// Records events, on the threads on which they happen.
pub trait Recorder: Send + Sync {
    /// Records an event with its start and end, ns of `CLOCK_MONOTONIC`.
    fn record(&self, event: Event, start: u64, end: u64);
}

static RECORDER: OnceLock<Box<dyn Recorder>> = OnceLock::new();

/// Records the events of all VMs of this process from now on. A second recorder is not used.
pub fn set(recorder: Box<dyn Recorder>) {
    let _ = RECORDER.set(recorder);
}

/// The start of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start(u64);

/// Notes the start of an event; `None`: nothing is recorded.
#[inline]
#[must_use]
pub fn start() -> Option<Start> {
    RECORDER.get().map(|_| Start(now()))
}

impl Start {
    /// Records the event, which ends now.
    pub fn end(self, event: Event) {
        if let Some(recorder) = RECORDER.get() {
            recorder.record(event, self.0, now());
        }
    }
}

/// Records an event without duration.
#[inline]
pub fn instant(event: impl FnOnce() -> Event) {
    if let Some(recorder) = RECORDER.get() {
        let at = now();
        recorder.record(event(), at, at);
    }
}

/// `CLOCK_MONOTONIC`, ns.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
