//! The arguments of `hartline cp`: places in a machine, local ones, and streams.

use anyhow::Context;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A source or destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file of a machine.
    Machine {
        /// Id or name of the machine.
        id: String,
        /// Absolute path.
        path: String,
    },
    /// A local file.
    Local(PathBuf),
    /// Standard input or output.
    Stream,
}

/// The end of a path, which the standard library does not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// A name.
    Plain,
    /// A slash: the path must lead to a directory.
    Slash,
    /// `.`: the contents of the directory are meant.
    Contents,
}

impl Place {
    /// Parses an argument. A text is a local path if it has no colon, or a slash or dot before its
    /// name: `./a:b`.
    ///
    /// # Errors
    /// The path of a machine is not UTF-8.
    pub fn parse(argument: &OsStr) -> anyhow::Result<Self> {
        let bytes = argument.as_bytes();
        if bytes == b"-" {
            return Ok(Self::Stream);
        }
        let colon = bytes.iter().position(|&byte| byte == b':');
        let is_local = |end: usize| bytes[..end].contains(&b'/') || bytes.starts_with(b".");
        let Some(end) = colon.filter(|&end| end > 0 && !is_local(end)) else {
            return Ok(Self::Local(argument.into()));
        };
        let text = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec());
            text.with_context(|| format!("{}: not UTF-8", argument.display()))
        };
        let path = text(&bytes[end + 1..])?;
        Ok(Self::Machine {
            id: text(&bytes[..end])?,
            path: match path.starts_with('/') {
                true => path,
                false => format!("/{path}"),
            },
        })
    }
}

/// The end of a path.
pub fn ending(path: &Path) -> Ending {
    match path.as_os_str().as_bytes() {
        [b'.'] | [.., b'/', b'.'] => Ending::Contents,
        [.., b'/'] => Ending::Slash,
        _ => Ending::Plain,
    }
}

/// The name of a source; `None` for a root directory.
pub fn name(path: &Path) -> Option<OsString> {
    match path.file_name() {
        Some(name) => Some(name.to_os_string()),
        // `..`, which is a local path if it exists.
        None => fs::canonicalize(path)
            .ok()?
            .file_name()
            .map(OsStr::to_os_string),
    }
}

/// A name below another one; slashes separate them.
pub fn below(above: &OsStr, name: &OsStr) -> OsString {
    let slash: &[u8] = if above.is_empty() { b"" } else { b"/" };
    OsString::from_vec([above.as_bytes(), slash, name.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_a_colon_before_any_slash() {
        let of = |text: &str| Place::parse(OsStr::new(text)).unwrap();
        let machine = |id: &str, path: &str| Place::Machine {
            id: id.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(of("-"), Place::Stream);
        assert_eq!(of("web:/etc/x"), machine("web", "/etc/x"));
        assert_eq!(of("web:x/"), machine("web", "/x/"));
        assert_eq!(of("web:"), machine("web", "/"));
        assert_eq!(of("web:a:b"), machine("web", "/a:b"));
        for local in ["a", "./a:b", "/a:b", "a/b:c", ":a", ".", "..", ".a:b"] {
            assert_eq!(of(local), Place::Local(local.into()), "{local}");
        }
        let bytes = OsStr::from_bytes(b"web:/\xff");
        assert!(Place::parse(bytes).is_err());
    }

    #[test]
    fn ends_of_paths() {
        for (path, wanted) in [
            ("a", Ending::Plain),
            ("a.", Ending::Plain),
            ("..", Ending::Plain),
            ("a/", Ending::Slash),
            ("/", Ending::Slash),
            (".", Ending::Contents),
            ("a/.", Ending::Contents),
        ] {
            assert_eq!(ending(Path::new(path)), wanted, "{path}");
        }
        assert_eq!(below(OsStr::new(""), OsStr::new("b")), "b");
        assert_eq!(below(OsStr::new("a"), OsStr::new("b")), "a/b");
    }
}
