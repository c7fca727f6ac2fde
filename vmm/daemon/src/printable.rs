//! Untrusted text on one line of a log or terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes, as Rust does (`\n`, `\u{202e}`), all characters that begin a line, move the cursor,
/// change the order of letters or are invisible.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_deceptive) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match is_deceptive(letter) {
            // Writing to a string does not fail.
            true => _ = write!(escaped, "{}", letter.escape_default()),
            false => escaped.push(letter),
        }
    }
    escaped.into()
}

/// Control characters (C0 and C1), separators of lines and paragraphs, and characters of the
/// category Cf that are invisible or have an effect on the direction of text (UAX #9).
fn is_deceptive(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line() {
        for (text, expected) in [
            (
                "plain: \u{e4}\u{4e2d} \\ \"x\"",
                "plain: \u{e4}\u{4e2d} \\ \"x\"",
            ),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            (
                "\u{1b}[2J\u{9b}m\u{7f}\0",
                "\\u{1b}[2J\\u{9b}m\\u{7f}\\u{0}",
            ),
            (
                "\u{202e}x\u{2066}y\u{2028}",
                "\\u{202e}x\\u{2066}y\\u{2028}",
            ),
        ] {
            assert_eq!(printable(text), expected);
        }
    }
}
