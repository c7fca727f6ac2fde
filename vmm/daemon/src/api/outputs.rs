//! Outputs of runs in answers. Short ones are in memory. Long ones are read from their files while
//! the answer is sent, whatever their length.

use crate::auth::random_hex;
use crate::log::Reader;
use crate::problem::Problem;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use std::collections::VecDeque;
use std::io;

/// Most bytes of an output that is in memory.
pub(super) const SHORT: u64 = 64 << 10;

/// Output of a program on one of its streams.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub struct Output {
    /// The bytes, if they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The bytes in base64, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// The program wrote more than this.
    truncated: bool,
    /// The number of bytes that are not there, if there are some.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    missing: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Output {
    /// These bytes, of an output that has `missing` more.
    pub(super) fn new(bytes: Vec<u8>, missing: u64) -> Self {
        let (text, base64) = match String::from_utf8(bytes) {
            Ok(text) => (Some(text), None),
            Err(error) => (None, Some(BASE64_STANDARD.encode(error.as_bytes()))),
        };
        Self {
            text,
            base64,
            truncated: missing > 0,
            missing,
        }
    }
}

/// The outputs of one answer.
#[derive(Debug, Default)]
pub(super) struct Outputs(Vec<Long>);

/// An output that is read while the answer is sent.
#[derive(Debug)]
struct Long {
    /// The text in the answer that stands for the output.
    marker: String,
    reader: Reader,
    encoder: Encoder,
}

impl Outputs {
    /// An output of a run that has ended, for an answer that [`respond`](Self::respond) makes.
    /// `None`: the run has none.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn read(&mut self, reader: Option<Reader>) -> io::Result<Output> {
        let Some(mut reader) = reader else {
            return Ok(Output::new(Vec::new(), 0));
        };
        reader.stop_at_end()?;
        let (mut bytes, mut length, mut position) = (Vec::new(), 0, 0);
        let mut check = Utf8::default();
        let mut is_text = true;
        while let Some(entry) = reader.read()? {
            length += entry.bytes.len() as u64;
            position = entry.end();
            is_text = is_text && check.push(&entry.bytes).is_some();
            if length <= SHORT {
                bytes.extend_from_slice(&entry.bytes);
            }
        }
        let missing = position.saturating_sub(length);
        if length <= SHORT {
            return Ok(Output::new(bytes, missing));
        }
        is_text = is_text && check.rest.is_empty();
        reader.rewind();
        let marker = random_hex::<16>().map_err(io::Error::other)?;
        let (text, base64) = match is_text {
            true => (Some(marker.clone()), None),
            false => (None, Some(marker.clone())),
        };
        let encoder = match is_text {
            true => Encoder::Text(Utf8::default()),
            false => Encoder::Base64(Vec::new()),
        };
        self.0.push(Long {
            marker,
            reader,
            encoder,
        });
        Ok(Output {
            text,
            base64,
            truncated: missing > 0,
            missing,
        })
    }

    /// An answer with a value that has these outputs. `held` is dropped when all is sent.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn respond<T: Send + 'static>(
        self,
        value: &impl Serialize,
        held: T,
    ) -> Result<Response, Problem> {
        let text = serde_json::to_string(value).map_err(Problem::internal)?;
        let parts = self.parts(&text);
        let kind = [(header::CONTENT_TYPE, "application/json")];
        if parts.len() == 1 {
            return Ok((kind, text).into_response());
        }
        let chunks = stream::try_unfold((parts, held), async |(mut parts, held)| {
            let chunk = tokio::task::block_in_place(|| next(&mut parts))?;
            Ok::<_, io::Error>(chunk.map(|chunk| (chunk, (parts, held))))
        });
        Ok((kind, Body::from_stream(chunks)).into_response())
    }

    /// Splits an answer at its markers.
    fn parts(self, text: &str) -> VecDeque<Part> {
        let mut places: Vec<_> = self
            .0
            .into_iter()
            .filter_map(|long| Some((text.find(&long.marker)?, long)))
            .collect();
        places.sort_by_key(|(place, _)| *place);
        let mut parts = VecDeque::new();
        let mut done = 0;
        for (place, long) in places {
            parts.push_back(Part::Text(text[done..place].to_owned().into()));
            done = place + long.marker.len();
            parts.push_back(Part::Long(Box::new(long)));
        }
        parts.push_back(Part::Text(text[done..].to_owned().into()));
        parts
    }
}

/// A part of an answer.
enum Part {
    Text(Bytes),
    Long(Box<Long>),
}

/// The next bytes of an answer; `None`: there are no more.
fn next(parts: &mut VecDeque<Part>) -> io::Result<Option<Bytes>> {
    loop {
        let chunk = match parts.pop_front() {
            None => return Ok(None),
            Some(Part::Text(text)) => return Ok(Some(text)),
            Some(Part::Long(mut long)) => match long.reader.read()? {
                Some(entry) => {
                    let chunk = long.encoder.push(&entry.bytes);
                    parts.push_front(Part::Long(long));
                    chunk
                }
                None => long.encoder.finish(),
            },
        };
        if !chunk.is_empty() {
            return Ok(Some(chunk.into()));
        }
    }
}

/// Encodes an output piece by piece, for a JSON string.
#[derive(Debug)]
enum Encoder {
    Text(Utf8),
    /// The bytes that are not encoded yet, fewer than three.
    Base64(Vec<u8>),
}

impl Encoder {
    fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self {
            // The check before found text. If a process has changed the file since, its output is
            // lossy, and the answer is still JSON.
            Self::Text(utf8) => match utf8.push(bytes) {
                Some(text) => escape(&text),
                None => escape(&String::from_utf8_lossy(bytes)),
            },
            Self::Base64(rest) => {
                rest.extend_from_slice(bytes);
                let whole = rest.len() / 3 * 3;
                let encoded = BASE64_STANDARD.encode(&rest[..whole]);
                rest.drain(..whole);
                encoded.into_bytes()
            }
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Text(utf8) => escape(&String::from_utf8_lossy(&utf8.rest)),
            Self::Base64(rest) => BASE64_STANDARD.encode(rest).into_bytes(),
        }
    }
}

/// The inside of a JSON string with this text.
fn escape(text: &str) -> Vec<u8> {
    let quoted = serde_json::Value::from(text).to_string();
    let inside = quoted.get(1..quoted.len() - 1).unwrap_or_default();
    inside.as_bytes().to_vec()
}

/// UTF-8 in pieces.
#[derive(Debug, Default)]
struct Utf8 {
    /// The start of a character whose end is in the next piece.
    rest: Vec<u8>,
}

impl Utf8 {
    /// The text so far, without the characters of earlier calls; `None`: it is not UTF-8.
    fn push(&mut self, bytes: &[u8]) -> Option<String> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        match String::from_utf8(all) {
            Ok(text) => Some(text),
            Err(error) if error.utf8_error().error_len().is_none() => {
                let end = error.utf8_error().valid_up_to();
                let mut all = error.into_bytes();
                self.rest = all.split_off(end);
                String::from_utf8(all).ok()
            }
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::io::Write;

    /// The answer with these outputs, which are written to files.
    fn answer(contents: [&[u8]; 2]) -> Value {
        let mut outputs = Outputs::default();
        let [stdout, stderr] = contents.map(|bytes| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            outputs.read(Some(Reader::ring(file))).unwrap()
        });
        let value = json!({ "message": "\"x\"", "stdout": stdout, "stderr": stderr, "end": 1 });
        let mut parts = outputs.parts(&value.to_string());
        let mut bytes = Vec::new();
        while let Some(chunk) = next(&mut parts).unwrap() {
            bytes.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn outputs_of_any_length_are_whole() {
        let short = "sh\u{f6}rt\n\u{1b}\"\\".to_owned();
        let long = short.repeat(100_000);
        let other = "\u{20ac}".repeat(100_001);
        for (stdout, stderr) in [
            (&short, &short),
            (&long, &other),
            (&short, &long),
            (&long, &short),
        ] {
            let found = answer([stdout.as_bytes(), stderr.as_bytes()]);
            assert!(found["stdout"]["text"] == **stdout && found["stderr"]["text"] == **stderr);
            assert!(found["stdout"]["truncated"] == false && found["end"] == 1);
            assert_eq!(found["message"], "\"x\"");
        }
        for length in 200_000..200_003 {
            let bytes = vec![0xff; length];
            let found = answer([&bytes, b""]);
            let decoded = BASE64_STANDARD.decode(found["stdout"]["base64"].as_str().unwrap());
            assert!(decoded.unwrap() == bytes && found["stdout"].get("text").is_none());
            assert_eq!(found["stderr"]["text"], "");
        }
        // A character that is cut at the end is not text.
        let cut = [long.as_bytes(), b"\xe2\x82"].concat();
        assert!(answer([&cut, b""])["stdout"]["base64"].is_string());
    }

    #[test]
    fn files_that_change_while_they_are_sent_give_json() {
        let mut encoder = Encoder::Text(Utf8::default());
        let mut text = encoder.push(b"a\xe2\x82");
        text.extend(encoder.push(b"\xff\n"));
        text.extend(encoder.push(b"b\xe2"));
        text.extend(encoder.finish());
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "a\u{fffd}\\nb\u{fffd}");
    }

    #[test]
    fn missing_bytes_are_counted() {
        let whole = serde_json::to_value(Output::new(b"a".to_vec(), 0)).unwrap();
        assert_eq!(whole, json!({ "text": "a", "truncated": false }));
        let cut = serde_json::to_value(Output::new(b"a".to_vec(), 7)).unwrap();
        assert_eq!(cut, json!({ "text": "a", "truncated": true, "missing": 7 }));
    }
}
