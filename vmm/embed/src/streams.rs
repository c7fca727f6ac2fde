//! Standard streams of a run whose bytes are in memory.

use crate::Streams;
use hartline_devices::console::log;
use hartline_vmm::platform::memory_file;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek};
use std::os::fd::OwnedFd;

/// Least length of a file in memory, bytes. Each time that the writer comes to the end of a full file, it writes the trailer.
const LEAST: u64 = 1 << 16;

/// Makes a standard input of these bytes.
///
/// # Errors
/// The host has no descriptors or memory left.
pub fn input_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = memory_file(c"input", bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// What a program has written to an output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The newest bytes.
    pub bytes: Vec<u8>,
    /// The number of all bytes that it has written. If it is larger than the number of `bytes`, older ones are lost.
    pub total: u64,
}

/// The outputs of a run, in memory.
#[derive(Debug)]
pub struct Captures {
    /// Standard output and standard error, with the most bytes to keep of each.
    files: [(File, usize); 2],
    limit: u64,
}

impl Captures {
    /// Keeps at most these numbers of bytes of standard output and standard error. 0: the output is discarded.
    ///
    /// # Errors
    /// The host has no descriptors left.
    pub fn new(most: [usize; 2]) -> io::Result<Self> {
        let [output, error] = most.map(|most| {
            let file = match most {
                0 => OpenOptions::new().write(true).open("/dev/null"),
                _ => memory_file(c"output", &[]),
            };
            Ok::<_, io::Error>((file?, most))
        });
        let longest = most.into_iter().max().unwrap_or(0) as u64;
        // `u64::MAX` would be no limit.
        let limit = longest.max(LEAST).saturating_add(log::TRAILER);
        let limit = limit.min(u64::MAX - 1);
        Ok(Self {
            files: [output?, error?],
            limit,
        })
    }

    /// The streams of a run whose outputs are kept here.
    ///
    /// # Errors
    /// The host has no descriptors left.
    pub fn streams(&self, input: Option<OwnedFd>) -> io::Result<Streams> {
        let [(output, _), (error, _)] = &self.files;
        Ok(Streams {
            input,
            outputs: [output.try_clone()?.into(), error.try_clone()?.into()],
            output_limit: self.limit,
        })
    }

    /// What the run has written to standard output and standard error, once it has ended.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn take(self) -> io::Result<[Output; 2]> {
        let [output, error] = self.files.map(|(file, most)| match most {
            0 => Ok(Output::default()),
            _ => newest(&file, self.limit, most),
        });
        Ok([output?, error?])
    }
}

/// The newest bytes in a file of at most `limit` bytes, at most `most` of them.
fn newest(file: &File, limit: u64, most: usize) -> io::Result<Output> {
    let range = log::extent(file, limit)?;
    let start = range.start.max(range.end.saturating_sub(most as u64));
    // The file has them, so they fit into the address space.
    let length = usize::try_from(range.end - start).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let mut read = 0;
    while read < length {
        let (at, count) = log::read(file, limit, start + read as u64, &mut bytes[read..])?;
        if count == 0 || at != start + read as u64 {
            return Err(io::Error::other("output is still being written"));
        }
        read += count;
    }
    Ok(Output {
        bytes,
        total: range.end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn an_input_is_read_from_its_start() {
        for bytes in [&b""[..], b"line\n"] {
            let mut found = Vec::new();
            let mut file = File::from(input_of(bytes).unwrap());
            file.read_to_end(&mut found).unwrap();
            assert_eq!(found, bytes);
        }
    }

    #[test]
    fn outputs_that_fit_are_whole() {
        const MOST: usize = 1 << 17;
        let captures = Captures::new([5, MOST]).unwrap();
        let streams = captures.streams(None).unwrap();
        assert_eq!(streams.output_limit, MOST as u64 + log::TRAILER);
        for (descriptor, text) in streams.outputs.into_iter().zip(["12345", "error"]) {
            File::from(descriptor).write_all(text.as_bytes()).unwrap();
        }
        let expected = ["12345", "error"].map(|text| Output {
            bytes: text.into(),
            total: 5,
        });
        assert_eq!(captures.take().unwrap(), expected);
    }

    #[test]
    fn the_smaller_of_two_keeps_its_newest_bytes() {
        let captures = Captures::new([3, 100]).unwrap();
        let [output, _] = captures.streams(None).unwrap().outputs;
        File::from(output).write_all(b"123456789").unwrap();
        let [output, error] = captures.take().unwrap();
        assert_eq!((&output.bytes[..], output.total), (&b"789"[..], 9));
        assert_eq!(error, Output::default());
    }

    #[test]
    fn nothing_is_kept_of_a_discarded_output() {
        let captures = Captures::new([0, 0]).unwrap();
        let [output, _] = captures.streams(None).unwrap().outputs;
        File::from(output).write_all(b"text").unwrap();
        let nothing = [Output::default(), Output::default()];
        assert_eq!(captures.take().unwrap(), nothing);
    }

    #[test]
    fn the_largest_number_is_a_limit_too() {
        let captures = Captures::new([usize::MAX, 0]).unwrap();
        assert_ne!(captures.streams(None).unwrap().output_limit, u64::MAX);
    }
}
