//! The format of <https://www.speedscope.app/file-format-schema.json>, which the Firefox Profiler reads
//! too.

use super::{Frame, Profile, nanoseconds};
use hartline_debug::module::Line;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Writes a profile.
///
/// # Errors
/// Those of the file.
pub fn write(profile: &Profile, file: &mut impl Write) -> io::Result<()> {
    let times = profile.times.iter();
    let samples: Vec<_> = times.map(|&(n, _)| &profile.stacks[n]).collect();
    let times = profile.times.iter();
    let weights: Vec<u64> = times.map(|&(_, time)| nanoseconds(time)).collect();
    let total: u64 = weights.iter().sum();
    let frames: Vec<_> = profile.frames.iter().map(frame).collect();
    let json = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": profile.name,
        "exporter": concat!("hartline ", env!("CARGO_PKG_VERSION")),
        "activeProfileIndex": 0,
        "shared": { "frames": frames },
        "profiles": [{
            "type": "sampled",
            "name": profile.name,
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": total,
            "samples": samples,
            "weights": weights,
        }],
    });
    Ok(serde_json::to_writer(file, &json)?)
}

fn frame(frame: &Frame) -> Value {
    match &frame.line {
        Some(Line { file, number }) => {
            json!({ "name": frame.name, "file": file, "line": number })
        }
        None => json!({ "name": frame.name }),
    }
}
