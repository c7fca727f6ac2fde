//! The options of `mount -t overlay`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;

/// Most lower layers (`OVL_MAX_STACK`).
const MOST_LAYERS: usize = 500;
/// Options with the values that describe what happens anyway.
const FIXED: &[(&[u8], &[&[u8]])] = &[
    (b"redirect_dir", &[b"off", b"nofollow"]),
    (b"index", &[b"off"]),
    (b"metacopy", &[b"off"]),
    (b"nfs_export", &[b"off"]),
    (b"xino", &[b"off", b"auto"]),
    (b"uuid", &[b"off", b"null", b"auto"]),
    (b"verity", &[b"off"]),
    (b"volatile", &[]),
    (b"default_permissions", &[]),
];

/// The paths of an overlay's directories.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Paths {
    /// The lower layers, the topmost first.
    pub lower: Vec<Vec<u8>>,
    /// The upper layer and the `workdir`.
    pub upper: Option<[Vec<u8>; 2]>,
}

/// The options of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The directories.
    pub paths: Paths,
    /// The options that `/proc/mounts` shows.
    pub shown: Box<[u8]>,
}

/// Splits at a byte that no backslash precedes, and keeps the backslashes.
fn split(text: &[u8], at: u8) -> Vec<&[u8]> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (index, &byte) in text.iter().enumerate() {
        if byte == at && !escaped {
            parts.push(&text[start..index]);
            start = index + 1;
        }
        escaped = byte == b'\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

/// Removes backslashes that protect another character.
fn unescape(text: &[u8]) -> Vec<u8> {
    let (mut plain, mut bytes) = (Vec::new(), text.iter());
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => *bytes.next().unwrap_or(&byte),
            byte => byte,
        });
    }
    plain
}

/// Joins texts with commas, except empty ones.
fn join(texts: &[&[u8]]) -> Vec<u8> {
    let some: Vec<&[u8]> = (texts.iter().copied())
        .filter(|text| !text.is_empty())
        .collect();
    some.join(&b","[..])
}

impl Options {
    /// Reads options, separated by commas.
    ///
    /// # Errors
    /// `EINVAL` for an unknown option or one that asks for more than there is, without a lower layer,
    /// without an upper one for a single lower one, or with an upper layer without `workdir`.
    pub fn parse(text: &[u8]) -> Result<Self, Errno> {
        let (mut lower, mut upper, mut work) = (Vec::new(), None, None);
        let mut shown = [&b""[..]; 4];
        for option in split(text, b',') {
            let at = option.iter().position(|&byte| byte == b'=');
            let (name, value) = match at {
                Some(at) => (&option[..at], Some(&option[at + 1..])),
                None => (option, None),
            };
            match (name, value) {
                (b"", None) => {}
                (b"lowerdir", Some(value)) => {
                    lower = split(value, b':').into_iter().map(unescape).collect();
                    shown[0] = option;
                }
                (b"upperdir", Some(value)) => {
                    upper = Some(unescape(value));
                    shown[1] = option;
                }
                (b"workdir", Some(value)) => {
                    work = Some(unescape(value));
                    shown[2] = option;
                }
                (name, value) => {
                    let known = FIXED.iter().find(|(known, _)| *known == name);
                    let &(_, values) = known.ok_or(Errno::EINVAL)?;
                    let is_good = match value {
                        Some(value) => values.contains(&value),
                        None => values.is_empty(),
                    };
                    if !is_good {
                        return Err(Errno::EINVAL);
                    }
                    if name == b"volatile" {
                        shown[3] = option;
                    }
                }
            }
        }
        let upper = match (upper, work) {
            (Some(upper), Some(work)) => Some([upper, work]),
            (None, _) => {
                // Without an upper layer, a workdir has no use.
                shown[2] = b"";
                None
            }
            (Some(_), None) => return Err(Errno::EINVAL),
        };
        let least = if upper.is_some() { 1 } else { 2 };
        let is_good =
            (least..=MOST_LAYERS).contains(&lower.len()) && !lower.iter().any(Vec::is_empty);
        if !is_good {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            paths: Paths { lower, upper },
            shown: join(&shown).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_bad_ones_refused() {
        let parse = |text: &str| Options::parse(text.as_bytes()).map(|options| options.paths);
        let paths = |text: &[&str]| -> Vec<Vec<u8>> {
            text.iter().map(|path| path.as_bytes().to_vec()).collect()
        };
        let read = parse("lowerdir=/a:b\\:c:/d\\,e,index=off,volatile").unwrap();
        assert_eq!(read.lower, paths(&["/a", "b:c", "/d,e"]));
        assert_eq!(read.upper, None);
        let both = parse("upperdir=u,lowerdir=l,workdir=w").unwrap();
        assert_eq!(both.upper.map(Vec::from), Some(paths(&["u", "w"])));
        assert_eq!(parse("lowerdir=k:l,workdir=w").unwrap().upper, None);
        let shown = |text: &str| Options::parse(text.as_bytes()).unwrap().shown;
        let all = "upperdir=u,volatile,,index=off,workdir=w,lowerdir=l";
        assert_eq!(&*shown(all), b"lowerdir=l,upperdir=u,workdir=w,volatile");
        assert_eq!(&*shown("workdir=w,lowerdir=k:l"), b"lowerdir=k:l");
        for bad in [
            "",
            "lowerdir=",
            "lowerdir=l",
            "lowerdir=a::b",
            "lowerdir",
            "upperdir=u,workdir=w",
            "lowerdir=l,upperdir=u",
            "lowerdir=l,index=on",
            "lowerdir=l,volatile=1",
            "lowerdir=l,other",
        ] {
            assert_eq!(parse(bad), Err(Errno::EINVAL), "{bad}");
        }
        let many = format!("lowerdir={}", ["l"; 501].join(":"));
        assert_eq!(parse(&many), Err(Errno::EINVAL));
    }
}
