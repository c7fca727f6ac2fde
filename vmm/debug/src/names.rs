//! Names of functions as people write them.

use std::fmt::{self, Write};

/// Longest name, bytes; the rest is left out.
const LONGEST: usize = 512;

/// A string that refuses to become longer than [`LONGEST`].
struct Limited(String);

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.0.len() + character.len_utf8() > LONGEST {
                return Err(fmt::Error);
            }
            // Names may contain escape sequences for terminals.
            self.0.push(match character.is_control() {
                true => '?',
                false => character,
            });
        }
        Ok(())
    }
}

/// The name in the source of the function with this symbol.
pub(crate) fn demangled(symbol: &[u8]) -> String {
    let symbol = String::from_utf8_lossy(&symbol[..symbol.len().min(LONGEST)]);
    let mut name = Limited(String::new());
    let written = match rustc_demangle::try_demangle(&symbol) {
        Ok(rust) => write!(name, "{rust:#}"),
        Err(_) if symbol.starts_with("_Z") => cpp(&symbol, &mut name),
        Err(_) => Err(fmt::Error),
    };
    if written.is_err() {
        name.0.clear();
        // A name that is cut is better than none.
        let _ = name.write_str(&symbol);
    }
    name.0
}

fn cpp(symbol: &str, name: &mut Limited) -> fmt::Result {
    /// Nesting of names; deeper ones are shown as they are.
    const DEPTH: u32 = 64;
    let options = cpp_demangle::ParseOptions::default().recursion_limit(DEPTH);
    let parsed = cpp_demangle::BorrowedSymbol::new_with_options(symbol.as_bytes(), &options);
    let options = cpp_demangle::DemangleOptions::new()
        .no_params()
        .no_return_type()
        .recursion_limit(DEPTH);
    let parsed = parsed.map_err(|_| fmt::Error)?;
    parsed
        .structured_demangle(name, &options)
        .map_err(|_| fmt::Error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_languages() {
        assert_eq!(demangled(b"main"), "main");
        assert_eq!(demangled(b"_ZN3foo3barEi"), "foo::bar");
        assert_eq!(
            demangled(b"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(demangled(b"a\x1b[1m"), "a?[1m");
        assert_eq!(demangled(&[b'x'; 10_000]).len(), LONGEST);
    }
}
