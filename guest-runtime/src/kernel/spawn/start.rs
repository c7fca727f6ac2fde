//! The first program of a process that the host starts.

use alloc::vec::Vec;
use hartline_abi::spawn::{Header, MAX_STRING};
use hartline_linux::errno::Errno;

/// Where programs are looked for without `PATH`, as in a container.
const PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a new process executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Working directory; empty: `/`.
    pub directory: Vec<u8>,
    /// Arguments, at least one.
    pub arguments: Vec<Vec<u8>>,
    /// Environment.
    pub environment: Vec<Vec<u8>>,
}

impl Start {
    /// Reads what the host has encoded.
    ///
    /// # Errors
    /// `EINVAL`; `E2BIG` for a string that is too long.
    pub fn parse(bytes: &[u8]) -> Result<(Header, Self), Errno> {
        let (header, strings) = Header::decode(bytes).ok_or(Errno::EINVAL)?;
        let mut strings = strings.split_inclusive(|&byte| byte == 0);
        let mut next = || match strings.next().and_then(|string| string.strip_suffix(&[0])) {
            None => Err(Errno::EINVAL),
            Some(string) if string.len() >= MAX_STRING => Err(Errno::E2BIG),
            Some(string) => Ok(string.to_vec()),
        };
        let start = Self {
            directory: next()?,
            arguments: (0..header.arguments)
                .map(|_| next())
                .collect::<Result<_, _>>()?,
            environment: (0..header.environment)
                .map(|_| next())
                .collect::<Result<_, _>>()?,
        };
        match strings.next() {
            None => Ok((header, start)),
            Some(_) => Err(Errno::EINVAL),
        }
    }

    /// The paths at which the program may be, in order: its name, if that has a slash, otherwise the
    /// name in each directory of `PATH`.
    #[must_use]
    pub fn candidates(&self) -> Vec<Vec<u8>> {
        let name = self.arguments.first().map_or(&b""[..], Vec::as_slice);
        if name.is_empty() {
            return Vec::new();
        }
        if name.contains(&b'/') {
            return Vec::from([name.to_vec()]);
        }
        let mut variables = self.environment.iter();
        let path = variables.find_map(|variable| variable.strip_prefix(b"PATH="));
        let directories = path.unwrap_or(PATH).split(|&byte| byte == b':');
        let path = |directory: &[u8]| match directory {
            // The working directory.
            b"" => [b"./", name].concat(),
            directory => [directory, b"/", name].concat(),
        };
        directories.map(path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(header: Header, strings: &[u8]) -> Vec<u8> {
        [&header.encode()[..], strings].concat()
    }

    #[test]
    fn programs_of_the_host_are_parsed() {
        let header = Header {
            arguments: 2,
            environment: 1,
            ..Header::default()
        };
        let parse =
            |strings: &[u8]| Start::parse(&encoded(header, strings)).map(|(_, start)| start);
        let start = parse(b"/x\0a\0\0K=V\0").unwrap();
        assert_eq!(start.directory, b"/x");
        assert_eq!(start.arguments, [&b"a"[..], b""]);
        assert_eq!(start.environment, [b"K=V"]);
        for strings in [&b""[..], b"/x\0a\0", b"\0a\0b\0c", b"\0a\0b\0c\0d\0"] {
            assert_eq!(parse(strings), Err(Errno::EINVAL));
        }
        let long = [b"\0", &[b'x'; MAX_STRING][..], b"\0b\0c\0"].concat();
        assert_eq!(parse(&long), Err(Errno::E2BIG));
    }

    #[test]
    fn programs_are_looked_for_in_path() {
        let of = |name: &[u8], environment: &[&[u8]]| {
            let start = Start {
                directory: Vec::new(),
                arguments: Vec::from([name.to_vec()]),
                environment: environment.iter().map(|text| text.to_vec()).collect(),
            };
            start.candidates()
        };
        assert_eq!(of(b"./x", &[]), [b"./x"]);
        let found = of(b"x", &[b"A=1", b"PATH=/a::/b"]);
        assert_eq!(found, [&b"/a/x"[..], b"./x", b"/b/x"]);
        assert_eq!(of(b"x", &[]).last().unwrap(), b"/bin/x");
        assert!(of(b"", &[]).is_empty());
    }
}
