//! The keys that detach from a terminal, as docker spells them.

use std::mem::take;
use std::str::FromStr;

/// A sequence of keys, which is looked for in what is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detach {
    keys: Vec<u8>,
    /// Typed keys that may begin the sequence.
    held: Vec<u8>,
}

impl FromStr for Detach {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rule = "needs keys with commas between them: single letters, or ctrl- and one of a to z, @, \
            [, \\, ], ^ and _";
        let key = |name: &str| match (name.strip_prefix("ctrl-"), name.as_bytes()) {
            (None, [key]) if key.is_ascii_graphic() => Some(*key),
            (Some(name), _) => match name.as_bytes() {
                [key @ b'a'..=b'z'] => Some(key - b'a' + 1),
                [key @ (b'@' | b'['..=b'_')] => Some(key & 0x1f),
                _ => None,
            },
            _ => None,
        };
        let keys = text.split(',').map(key).collect::<Option<Vec<u8>>>();
        Ok(Self {
            keys: keys.ok_or(rule)?,
            held: Vec::new(),
        })
    }
}

impl Detach {
    /// Takes typed keys. Result: the keys for the program, and whether the sequence was typed. Keys that
    /// may begin the sequence wait for the next ones.
    pub fn take(&mut self, typed: Vec<u8>) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(typed.len());
        for key in typed {
            self.held.push(key);
            while !self.keys.starts_with(&self.held) {
                passed.push(self.held.remove(0));
            }
            if self.held == self.keys {
                take(&mut self.held);
                return (passed, true);
            }
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spelled_as_docker_spells_them() {
        let keys = |text: &str| text.parse::<Detach>().map(|detach| detach.keys);
        assert_eq!(keys("ctrl-p,ctrl-q"), Ok(vec![16, 17]));
        assert_eq!(keys("a,ctrl-@,ctrl-[,ctrl-_"), Ok(vec![b'a', 0, 27, 31]));
        for bad in ["", ",", "ctrl-", "ctrl-P", "ctrl-1", "ab", "a,", "\u{e4}"] {
            assert!(keys(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn other_keys_pass() {
        let mut detach: Detach = "ctrl-p,ctrl-q".parse().unwrap();
        assert_eq!(detach.take(b"ab".to_vec()), (b"ab".to_vec(), false));
        assert_eq!(detach.take(vec![16]), (vec![], false));
        assert_eq!(detach.take(vec![16, b'c']), (vec![16, 16, b'c'], false));
        assert_eq!(detach.take(vec![b'x', 16]), (vec![b'x'], false));
        assert_eq!(detach.take(vec![17, b'y']), (vec![], true));
        let mut twice: Detach = "a,a,b".parse().unwrap();
        assert_eq!(twice.take(b"aaab".to_vec()), (b"a".to_vec(), true));
    }
}
