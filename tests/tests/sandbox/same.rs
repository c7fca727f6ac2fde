//! The libraries for programs repeat numbers and structures of the guest runtime, because a program needs nothing
//! else of this project: here they are compared.

use hartline_abi::exports;
use hartline_sdk::system_call::{HostFunction, NUMBER, Serve, operation};
use hartline_sdk::{MAX_DATA, MAX_EXPORTS, MAX_NAME, MAX_PARTS};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, paths};
use std::env;
use std::fs;
use std::mem::{offset_of, size_of};
use std::process::Command;

/// Lists fields with their offsets in the structure of the crate and in that of the guest runtime.
macro_rules! fields {
    ($ours:ty, $theirs:ty, $($field:ident),+) => {
        [
            $((stringify!($field), offset_of!($ours, $field), offset_of!($theirs, $field))),+
        ]
    };
}

/// `hartline-sdk`, `hartline.h` and `hartline_parallel.h`.
pub fn libraries() -> Result<()> {
    let numbers = [
        ("HARTLINE_NUMBER", NUMBER, exports::NUMBER),
        ("HARTLINE_INFO", operation::INFO, exports::operation::INFO),
        (
            "HARTLINE_SERVE",
            operation::SERVE,
            exports::operation::SERVE,
        ),
        (
            "HARTLINE_CALL_HOST",
            operation::CALL_HOST,
            exports::operation::CALL_HOST,
        ),
        (
            "HARTLINE_GENERATION",
            operation::GENERATION,
            exports::operation::GENERATION,
        ),
        (
            "HARTLINE_GENERATION_WORD",
            operation::GENERATION_WORD,
            exports::operation::GENERATION_WORD,
        ),
    ];
    let limits = [
        ("HARTLINE_MAX_DATA", MAX_DATA, exports::MAX_DATA),
        ("HARTLINE_MAX_NAME", MAX_NAME, exports::MAX_NAME),
        // These are not the guest runtime's.
        ("HARTLINE_MAX_EXPORTS", MAX_EXPORTS, MAX_EXPORTS),
        ("HARTLINE_MAX_PARTS", MAX_PARTS, MAX_PARTS),
    ];
    let serve = fields!(
        Serve,
        exports::Serve,
        output,
        output_length,
        status,
        buffer,
        buffer_length,
        name_length,
        input_length
    );
    let host = fields!(
        HostFunction,
        exports::HostFunction,
        name,
        name_length,
        input,
        input_length,
        output,
        output_length
    );
    let mut same = Same::default();
    for (name, ours, theirs) in numbers {
        same.add(name, u64::try_from(ours)?, theirs);
    }
    for (name, ours, theirs) in limits {
        same.add(name, ours as u64, theirs as u64);
    }
    let structures = [
        (
            "serve",
            &serve[..],
            size_of::<Serve>(),
            size_of::<exports::Serve>(),
        ),
        (
            "host",
            &host[..],
            size_of::<HostFunction>(),
            size_of::<exports::HostFunction>(),
        ),
    ];
    for (name, fields, ours, theirs) in structures {
        let structure = format!("struct hartline_{name}_request");
        same.add(&format!("sizeof({structure})"), ours as u64, theirs as u64);
        for &(field, ours, theirs) in fields {
            same.add(
                &format!("offsetof({structure}, {field})"),
                ours as u64,
                theirs as u64,
            );
        }
    }
    same.check()
}

/// A copy of the crate's folder is a package: its manifest needs nothing of the workspace.
pub fn copy() -> Result<()> {
    let folder = Scratch::copy_of(&paths::repository().join("guest-runtime/sdk/rust"))?;
    // The copy is inside the repository.
    let manifest = folder.path().join("Cargo.toml");
    let text = fs::read_to_string(&manifest)? + "\n[workspace]\n";
    fs::write(manifest, text)?;
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--offline", "--no-deps", "--format-version=1"]);
    compile::check(cargo.current_dir(folder.path()))
}

/// Values that should be the same.
#[derive(Default)]
struct Same {
    /// Assertions about the C headers.
    assertions: String,
    different: Vec<String>,
}

impl Same {
    /// Compares a value of the C headers, an expression, with those of the crate and of the guest runtime.
    fn add(&mut self, c: &str, rust: u64, runtime: u64) {
        self.assertions +=
            &format!("_Static_assert({c} == {runtime}, \"{c} is not {runtime}\");\n");
        if rust != runtime {
            self.different.push(format!(
                "{c}: {rust} in the crate, {runtime} in the runtime"
            ));
        }
    }

    fn check(self) -> Result<()> {
        if !self.different.is_empty() {
            return Err(self.different.join("\n").into());
        }
        let folder = Scratch::new()?;
        let source = folder.path().join("same.c");
        let headers = "#include \"hartline.h\"\n#include \"hartline_parallel.h\"\n";
        fs::write(&source, headers.to_owned() + &self.assertions)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu17", "-fsyntax-only", "-I"]);
        compiler.arg(paths::repository().join("guest-runtime/sdk"));
        compile::check(compiler.arg(source))
    }
}
