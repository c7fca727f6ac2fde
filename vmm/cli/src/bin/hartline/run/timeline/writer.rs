//! Writing tracks and their events to a file of limited length.

use super::perfetto::{
    DebugAnnotation, EventType, Trace, TracePacket, TrackDescriptor, TrackEvent,
};
use prost::Message;
use std::collections::HashSet;
use std::io::{self, Write};

/// The sequence of all packets.
const SEQUENCE: u32 = 1;

/// Most tracks; events of others are left out.
const MOST_TRACKS: usize = 1 << 20;

/// A value of an event.
pub enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Pointer(u64),
    Text(&'a str),
}

/// Named values of an event.
pub type Values<'a> = &'a [(&'a str, Value<'a>)];

/// A file with events.
pub struct Writer<W> {
    file: W,
    /// Bytes that may still be written.
    left: u64,
    /// Tracks that are in the file.
    tracks: HashSet<u64>,
    error: Option<io::Error>,
    is_full: bool,
}

impl<W: Write> Writer<W> {
    /// Writes at most `limit` bytes to `file`.
    pub fn new(file: W, limit: u64) -> Self {
        Self {
            file,
            left: limit,
            tracks: HashSet::new(),
            error: None,
            is_full: false,
        }
    }

    /// Adds a track before its first event. `describe` fills in more than the parent.
    pub fn track(
        &mut self,
        uuid: u64,
        parent: Option<u64>,
        describe: impl FnOnce(&mut TrackDescriptor),
    ) {
        if self.tracks.len() >= MOST_TRACKS || !self.tracks.insert(uuid) {
            return;
        }
        let mut descriptor = TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: parent,
            ..TrackDescriptor::default()
        };
        describe(&mut descriptor);
        self.packet(TracePacket {
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        });
    }

    /// Adds an event to a track. The end of a slice has no name.
    pub fn event(
        &mut self,
        kind: EventType,
        track: u64,
        time: u64,
        name: Option<&str>,
        values: Values<'_>,
    ) {
        if !self.tracks.contains(&track) {
            return;
        }
        let annotations = values.iter().map(|(name, value)| {
            let mut annotation = DebugAnnotation {
                name: Some((*name).to_owned()),
                ..DebugAnnotation::default()
            };
            match value {
                Value::Unsigned(value) => annotation.uint_value = Some(*value),
                Value::Signed(value) => annotation.int_value = Some(*value),
                Value::Pointer(value) => annotation.pointer_value = Some(*value),
                Value::Text(text) => annotation.string_value = Some((*text).to_owned()),
            }
            annotation
        });
        self.packet(TracePacket {
            timestamp: Some(time),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(TrackEvent {
                debug_annotations: annotations.collect(),
                r#type: Some(kind.into()),
                track_uuid: Some(track),
                categories: Vec::new(),
                name: name.map(str::to_owned),
            }),
            ..TracePacket::default()
        });
    }

    fn packet(&mut self, packet: TracePacket) {
        if self.is_full || self.error.is_some() {
            return;
        }
        let trace = Trace {
            packet: vec![packet],
        };
        let bytes = trace.encode_to_vec();
        match self.left.checked_sub(bytes.len() as u64) {
            Some(left) => {
                self.left = left;
                self.error = self.file.write_all(&bytes).err();
            }
            // Later events are left out too: the time line ends here.
            None => self.is_full = true,
        }
    }

    /// Writes what is buffered, and ends the file. The result is whether all events are in it.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn finish(&mut self) -> io::Result<bool> {
        // Threads of the VMM may record later events.
        let is_whole = !std::mem::replace(&mut self.is_full, true);
        match self.error.take() {
            Some(error) => Err(error),
            None => self.file.flush().map(|()| is_whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_ends_with_a_whole_packet() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, 1000);
        writer.track(7, None, |track| track.name = Some("a track".into()));
        writer.track(7, None, |_| panic!("the track is known"));
        for time in 0..100 {
            let values = &[("value", Value::Unsigned(time))];
            writer.event(EventType::Instant, 7, time, Some("event"), values);
            // A track that does not exist.
            writer.event(EventType::Instant, 8, time, Some("event"), values);
        }
        assert!(!writer.finish().unwrap());
        assert!((900..=1000).contains(&file.len()));
        let trace = Trace::decode(&file[..]).unwrap();
        let (first, events) = trace.packet.split_first().unwrap();
        assert!(first.track_descriptor.is_some());
        for (packet, time) in events.iter().zip(0..) {
            assert_eq!(packet.timestamp, Some(time));
        }
        assert!((10..100).contains(&events.len()));
    }

    #[test]
    fn errors_are_told_at_the_end() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut writer = Writer::new(Broken, 1000);
        writer.track(1, None, |_| {});
        assert!(writer.finish().is_err());
    }
}
