//! The format of pprof, <https://github.com/google/pprof/blob/main/proto/profile.proto>: a message that
//! is compressed with gzip.

use super::{Profile as Source, Table, nanoseconds};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use std::io::{self, Write};

/// `perftools.profiles.Profile`.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

/// `ValueType`: indexes of strings.
#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

/// `Sample`.
#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The innermost one first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

/// `Location`.
#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

/// `Line`.
#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

/// `Function`: indexes of strings.
#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// Writes a profile.
///
/// # Errors
/// Those of the file.
pub fn write(profile: &Source, file: &mut impl Write) -> io::Result<()> {
    let mut file = GzEncoder::new(file, Compression::default());
    file.write_all(&message(profile).encode_to_vec())?;
    file.finish().map(|_| ())
}

fn message(profile: &Source) -> Profile {
    let mut strings = Table::new();
    let mut string = |text: &str| signed(strings.number(text.to_owned()) as u64);
    // The first one is always empty.
    string("");
    let nanoseconds_of = [string("cpu"), string("nanoseconds")];
    let [cpu, samples] = [nanoseconds_of, [string("samples"), string("count")]]
        .map(|[r#type, unit]| ValueType { r#type, unit });
    let mut functions = Table::new();
    let mut location = Vec::new();
    // A location for each frame: inlined functions are frames of their own.
    for (id, frame) in (1..).zip(&profile.frames) {
        let file = frame.line.as_ref().map_or("", |line| &line.file);
        let number = frame.line.as_ref().map_or(0, |line| line.number);
        let function_id = functions.number((string(&frame.name), string(file))) as u64 + 1;
        let line = Line {
            function_id,
            line: signed(number),
        };
        location.push(Location {
            id,
            line: vec![line],
        });
    }
    let functions = functions.values();
    let function = (1..)
        .zip(functions)
        .map(|(id, &(name, filename))| Function {
            id,
            name,
            system_name: name,
            filename,
        });
    let totals = profile.totals();
    let sample = totals.iter().map(|&(stack, count, time)| Sample {
        location_id: stack.iter().rev().map(|&frame| frame as u64 + 1).collect(),
        value: vec![signed(count), signed(nanoseconds(time))],
    });
    let duration = totals.iter().map(|total| total.2).sum();
    Profile {
        sample: sample.collect(),
        function: function.collect(),
        location,
        duration_nanos: signed(nanoseconds(duration)),
        period_type: Some(cpu.clone()),
        period: signed(nanoseconds(profile.period)),
        sample_type: vec![samples, cpu],
        string_table: strings.values().into_iter().cloned().collect(),
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
