//! Writes `docs/syscalls.md`: the system calls of Linux/riscv64, and which of them Hartline
//! supports.
//!
//! ```text
//! cargo run --release --locked -p hartline-linux --example syscalls > docs/syscalls.md
//! ```

use hartline_linux::syscall::{CALLS, Support};
use std::fmt::Write;

const HEAD: &str = "\
# System calls

The system calls of Linux 6.12 on riscv64 (`asm-generic/unistd.h`), and what Hartline supports of
each. A missing call returns `ENOSYS`; `hartline run --stats` counts the missing calls of a run.
[support.md](support.md) describes the features.

This page is generated from `guest-runtime/linux/src/syscall.rs`:

```sh
cargo run --release --locked -p hartline-linux --example syscalls > docs/syscalls.md
```
";

/// The page.
fn page() -> String {
    let count =
        |wanted: fn(&Support) -> bool| CALLS.iter().filter(|call| wanted(&call.support)).count();
    let supported = count(|support| matches!(support, Support::Supported));
    let partial = count(|support| matches!(support, Support::Partial(_)));
    let missing = count(|support| matches!(support, Support::Missing));
    let mut page = String::from(HEAD);
    let _ = write!(
        page,
        "\n| supported | partial | missing | all |\n|---|---|---|---|\n\
         | {supported} | {partial} | {missing} | {} |\n\n\
         | number | name | support | what is missing |\n|---|---|---|---|\n",
        CALLS.len(),
    );
    for call in CALLS {
        let (support, note) = match call.support {
            Support::Supported => ("yes", ""),
            Support::Partial(note) => ("partial", note),
            Support::Missing => ("no", ""),
        };
        let line = format!("| {} | `{}` | {support} | {note}", call.number, call.name);
        let _ = writeln!(page, "{} |", line.trim_end());
    }
    page
}

fn main() {
    print!("{}", page());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/syscalls.md");
        let written = fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == page(),
            "docs/syscalls.md differs from guest-runtime/linux/src/syscall.rs: run\n\
             cargo run --release --locked -p hartline-linux --example syscalls > docs/syscalls.md"
        );
    }
}
