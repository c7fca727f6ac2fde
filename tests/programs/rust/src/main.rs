//! The crate for programs (`hartline-sdk`) in use. What it prints is the same in Hartline and elsewhere.
//!
//! ```text
//! hartline-test-program calls           functions for the host
//! hartline-test-program parts ROUNDS    works in parts
//! ```

mod calls;
mod parts;

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["calls"] => calls::main(),
        ["parts", rounds] => parts::main(rounds.parse().expect("a number")),
        _ => {
            eprintln!("usage: hartline-test-program calls | parts ROUNDS");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
