//! The guest's part of the time line: system calls, signals and context switches. The guest may send
//! anything.

use super::perfetto::{EventType, ProcessDescriptor, ThreadDescriptor};
use super::tracks;
use super::writer::{Value, Writer};
use hartline_abi::limits::MAX_CPUS;
use hartline_abi::timeline::{Record, kind};
use hartline_linux::errno::Errno;
use hartline_linux::syscall::{find, nr};
use std::collections::HashMap;
use std::io::Write;

/// Most tasks that are followed at a time.
const MOST_TASKS: usize = 1 << 16;
/// Largest number of a task or process.
const MOST_NUMBER: u32 = i32::MAX.cast_unsigned();

/// A task that has made a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Task {
    process: u32,
    /// Whether it is in a system call.
    is_in_call: bool,
}

/// The state of the guest as its records tell it.
#[derive(Debug, Default)]
pub struct Records {
    tasks: HashMap<u32, Task>,
    /// The task that each vCPU runs.
    running: HashMap<u32, u32>,
}

impl Records {
    /// Adds a record. Records that cannot be are left out.
    pub fn add<W: Write>(&mut self, record: &Record, writer: &mut Writer<W>) {
        let is_possible = (record.cpu as usize) < MAX_CPUS
            && record.task <= MOST_NUMBER
            && record.process <= MOST_NUMBER;
        if !is_possible {
            return;
        }
        match record.kind {
            kind::SWITCH => self.switch(record, writer),
            kind::CALL => {
                if self.running.get(&record.cpu) != Some(&record.task) {
                    self.switch(record, writer);
                }
                self.call(record, writer);
            }
            kind::RETURN => self.end_call(record, writer),
            kind::SIGNAL => {
                let track = describe(record, writer);
                let values = &[("signal", Value::Unsigned(record.words[0]))];
                let (instant, time) = (EventType::Instant, record.time);
                writer.event(instant, track, time, Some("signal"), values);
            }
            kind::END => self.end_process(record, writer),
            _ => {}
        }
    }

    fn call<W: Write>(&mut self, record: &Record, writer: &mut Writer<W>) {
        let track = describe(record, writer);
        self.leave_call(record.task, record.time, writer);
        let [number, a0, a1, a2, a3, a4, a5] = record.words;
        let call = find(number);
        let unknown = format!("syscall_{number:#x}");
        let name = call.map_or(&*unknown, |call| call.name);
        let arguments = call.map_or(6, |call| call.arguments.len());
        let values = [
            ("a0", Value::Pointer(a0)),
            ("a1", Value::Pointer(a1)),
            ("a2", Value::Pointer(a2)),
            ("a3", Value::Pointer(a3)),
            ("a4", Value::Pointer(a4)),
            ("a5", Value::Pointer(a5)),
        ];
        let values = values.get(..arguments).unwrap_or(&values);
        let begin = EventType::SliceBegin;
        writer.event(begin, track, record.time, Some(name), values);
        let returns = number != nr::exit && number != nr::exit_group;
        if !returns {
            writer.event(EventType::SliceEnd, track, record.time, None, &[]);
        } else if self.tasks.len() < MOST_TASKS || self.tasks.contains_key(&record.task) {
            let task = Task {
                process: record.process,
                is_in_call: true,
            };
            self.tasks.insert(record.task, task);
        }
        if number == nr::exit {
            self.tasks.remove(&record.task);
        }
    }

    fn end_call<W: Write>(&mut self, record: &Record, writer: &mut Writer<W>) {
        let Some(task) = self.tasks.get_mut(&record.task) else {
            return;
        };
        if !std::mem::take(&mut task.is_in_call) {
            return;
        }
        let value = record.words[0].cast_signed();
        let error = Errno::check(value).err().and_then(Errno::name);
        let values = [
            ("result", Value::Signed(value)),
            ("error", Value::Text(error.unwrap_or(""))),
        ];
        let values = &values[..1 + usize::from(error.is_some())];
        let track = tracks::thread(record.task);
        writer.event(EventType::SliceEnd, track, record.time, None, values);
    }

    /// Ends the slice of a call that has not returned.
    fn leave_call<W: Write>(&mut self, task: u32, time: u64, writer: &mut Writer<W>) {
        if let Some(known) = self.tasks.get_mut(&task)
            && std::mem::take(&mut known.is_in_call)
        {
            let track = tracks::thread(task);
            writer.event(EventType::SliceEnd, track, time, None, &[]);
        }
    }

    fn end_process<W: Write>(&mut self, record: &Record, writer: &mut Writer<W>) {
        let of_process =
            |(&task, known): (&u32, &Task)| (known.process == record.process).then_some(task);
        let ended: Vec<u32> = self.tasks.iter().filter_map(of_process).collect();
        for task in ended {
            self.leave_call(task, record.time, writer);
            self.tasks.remove(&task);
        }
    }

    /// Begins the slice of the task that a vCPU runs now. Task 0 is none.
    fn switch<W: Write>(&mut self, record: &Record, writer: &mut Writer<W>) {
        let track = tracks::vcpu(record.cpu);
        let name = format!("vCPU {}", record.cpu);
        writer.track(track, Some(tracks::VCPUS), |track| track.name = Some(name));
        if self.running.insert(record.cpu, record.task).unwrap_or(0) != 0 {
            writer.event(EventType::SliceEnd, track, record.time, None, &[]);
        }
        if record.task != 0 {
            let values = &[
                ("tid", Value::Unsigned(record.task.into())),
                ("pid", Value::Unsigned(record.process.into())),
            ];
            let begin = EventType::SliceBegin;
            writer.event(begin, track, record.time, Some(&name_of(record)), values);
        }
    }
}

/// Adds the tracks of a task and of its process.
fn describe<W: Write>(record: &Record, writer: &mut Writer<W>) -> u64 {
    let (process, thread) = (tracks::process(record.process), tracks::thread(record.task));
    let [pid, tid] = [record.process, record.task].map(|number| Some(number.cast_signed()));
    writer.track(process, None, |track| {
        track.process = Some(ProcessDescriptor {
            pid,
            process_name: Some(name_of(record)),
        });
    });
    writer.track(thread, Some(process), |track| {
        track.thread = Some(ThreadDescriptor {
            pid,
            tid,
            thread_name: Some(name_of(record)),
        });
    });
    thread
}

/// The name of a task.
fn name_of(record: &Record) -> String {
    let name = record.name.split(|&byte| byte == 0).next().unwrap_or(&[]);
    String::from_utf8_lossy(name).replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::super::perfetto::Trace;
    use super::*;
    use prost::Message;

    /// Whatever a guest sends, slices of each track nest.
    #[test]
    fn slices_have_begins_and_ends() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, 1 << 20);
        writer.track(tracks::VCPUS, None, |_| {});
        let mut records = Records::default();
        let mut state = 1_u32;
        for time in 0..3000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bits = |from: u32, modulus: u32| (state >> from) % modulus;
            let record = Record {
                kind: bits(3, 7),
                cpu: bits(7, 3) * if bits(11, 50) == 0 { 1 << 20 } else { 1 },
                task: bits(13, 4),
                process: bits(17, 3),
                time,
                name: [bits(20, 256).to_le_bytes()[0]; 16],
                words: [bits(9, 500).into(); 7],
            };
            records.add(&record, &mut writer);
        }
        assert!(writer.finish().unwrap());
        let trace = Trace::decode(&file[..]).unwrap();
        let mut depth: HashMap<u64, i32> = HashMap::new();
        let mut slices = 0;
        for event in trace
            .packet
            .iter()
            .filter_map(|packet| packet.track_event.as_ref())
        {
            let depth = depth.entry(event.track_uuid.unwrap()).or_default();
            match event.r#type() {
                EventType::SliceBegin => *depth += 1,
                EventType::SliceEnd => *depth -= 1,
                _ => {}
            }
            assert!((0..=1).contains(depth));
            slices += 1;
        }
        assert!(slices > 100);
    }
}
