//! `--trace`: one time line of a run, for Perfetto.

mod perfetto;
mod records;
mod tracks;
mod writer;

use anyhow::Context;
use hartline_abi::timeline::Record;
use hartline_devices::timeline::{self, Event, Recorder};
use perfetto::EventType;
use records::Records;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use writer::{Value, Values, Writer};

/// Longest file, bytes: what Perfetto's page in a browser can open.
const LONGEST: u64 = 1 << 30;

/// The time line of this process.
pub struct Timeline {
    state: Arc<Mutex<State>>,
    /// Reads the guest's records until the VM has ended.
    reader: JoinHandle<()>,
}

struct State {
    writer: Writer<BufWriter<File>>,
    records: Records,
    /// Ends of the last events of the tracks of translations, and of those of block requests.
    lanes: [Vec<u64>; 2],
}

/// Records the events of the VMM.
struct OfHost(Arc<Mutex<State>>);

impl Timeline {
    /// Begins the time line in a file. The VM writes its records to the result.
    ///
    /// # Errors
    /// The file cannot be made, or the host has no descriptors or threads left.
    pub fn begin(path: &Path) -> anyhow::Result<(Self, OwnedFd)> {
        let file = File::create(path).with_context(|| format!("--trace {}", path.display()))?;
        let mut writer = Writer::new(BufWriter::new(file), LONGEST);
        for (uuid, name) in [
            (tracks::VCPUS, "vCPUs"),
            (tracks::EXITS, "VM exits"),
            (tracks::TRANSLATIONS, "translations"),
            (tracks::BLOCKS, "block requests"),
            (tracks::PACKETS[0], "RX packets"),
            (tracks::PACKETS[1], "TX packets"),
        ] {
            writer.track(uuid, None, |track| track.name = Some(name.to_owned()));
        }
        let state = Arc::new(Mutex::new(State {
            writer,
            records: Records::default(),
            lanes: Default::default(),
        }));
        let (from, to) = pipe_with(PipeFlags::CLOEXEC).context("--trace: pipe")?;
        let reader = thread::Builder::new().name("trace".into()).spawn({
            let state = Arc::clone(&state);
            move || read(File::from(from), &state)
        });
        let reader = reader.context("--trace: thread")?;
        timeline::set(Box::new(OfHost(Arc::clone(&state))));
        Ok((Self { state, reader }, to))
    }

    /// Completes the file, after the VM has ended. The result is whether it has all events.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn finish(self) -> io::Result<bool> {
        if let Err(panic) = self.reader.join() {
            std::panic::resume_unwind(panic);
        }
        lock(&self.state).writer.finish()
    }
}

/// Reads the guest's records until there are no more.
fn read(mut from: File, state: &Mutex<State>) {
    let mut bytes = [0; Record::LENGTH];
    while from.read_exact(&mut bytes).is_ok() {
        let State {
            writer, records, ..
        } = &mut *lock(state);
        records.add(&Record::from_bytes(&bytes), writer);
    }
}

impl Recorder for OfHost {
    fn record(&self, event: Event, start: u64, end: u64) {
        let mut state = lock(&self.0);
        match event {
            Event::Exit { cpu, reason } => state.exit(cpu, reason, (start, end)),
            Event::Translation { tier, instructions } => {
                let values = [(
                    "instructions",
                    Value::Unsigned(instructions.unwrap_or(0) as u64),
                )];
                let values = &values[..usize::from(instructions.is_some())];
                state.overlapping(tracks::TRANSLATIONS, tier, values, (start, end));
            }
            Event::Packet { is_sent, length } => {
                let track = tracks::PACKETS[usize::from(is_sent)];
                let values = &[("bytes", Value::Unsigned(length as u64))];
                let instant = EventType::Instant;
                state
                    .writer
                    .event(instant, track, start, Some("packet"), values);
            }
            Event::Block {
                kind,
                sector,
                length,
                is_error,
            } => {
                let values = [
                    ("sector", Value::Unsigned(sector)),
                    ("bytes", Value::Unsigned(length as u64)),
                    ("status", Value::Text("error")),
                ];
                let values = &values[..2 + usize::from(is_error)];
                state.overlapping(tracks::BLOCKS, request(kind), values, (start, end));
            }
        }
    }
}

/// The name of a type of block requests (virtio 1.3, section 5.2.6).
fn request(kind: u32) -> &'static str {
    match kind {
        0 => "read",
        1 => "write",
        4 => "flush",
        8 => "get ID",
        11 => "discard",
        13 => "write zeroes",
        _ => "unknown request",
    }
}

impl State {
    fn exit(&mut self, cpu: usize, reason: &str, span: (u64, u64)) {
        // A VM has few vCPUs.
        let cpu = u32::try_from(cpu).unwrap_or(u32::MAX);
        let track = tracks::exits(cpu);
        let name = format!("exits of vCPU {cpu}");
        let parent = Some(tracks::EXITS);
        self.writer
            .track(track, parent, |track| track.name = Some(name));
        self.slice(track, reason, &[], span);
    }

    /// Adds a slice to the first track below `parent` that has no slice at that time: those of one
    /// track do not overlap.
    fn overlapping(&mut self, parent: u64, name: &str, values: Values<'_>, span: (u64, u64)) {
        let lanes = &mut self.lanes[usize::from(parent == tracks::BLOCKS)];
        let free = lanes.iter().position(|&end| end <= span.0);
        let lane = free.unwrap_or_else(|| {
            lanes.push(0);
            lanes.len() - 1
        });
        lanes[lane] = span.1;
        // There are as many as threads, or as requests in a ring.
        let lane = u32::try_from(lane).unwrap_or(u32::MAX);
        let track = tracks::lane(parent, lane);
        self.writer.track(track, Some(parent), |track| {
            track.name = Some(format!("{}", lane + 1));
        });
        self.slice(track, name, values, span);
    }

    fn slice(&mut self, track: u64, name: &str, values: Values<'_>, (start, end): (u64, u64)) {
        let begin = EventType::SliceBegin;
        self.writer.event(begin, track, start, Some(name), values);
        self.writer
            .event(EventType::SliceEnd, track, end, None, &[]);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
