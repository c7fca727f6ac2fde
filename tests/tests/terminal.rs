//! Programs on a terminal: a pseudo-terminal that `script` makes, with a shell that
//! looks at its settings before and after.

use hartline_tests::compile::{self, VARIANTS, Variant};
use hartline_tests::process;
use hartline_tests::suite::Suite;
use hartline_tests::{Result, hartline};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};

const O2: Variant = VARIANTS[1];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_kvm("size of the window", window_size);
    suite.add_kvm("raw mode, and back at the end", || {
        raw("", b"a\x03\rq", "<61><03><0d><71>", 7)
    });
    suite.add_kvm("raw mode, and back after a time-out", || {
        raw("--timeout 2", b"b", "<62>", 124)
    });
    suite.add_kvm("control-C while the program reads", || {
        Session::start("exec $HARTLINE terminal wait", "")?.finish(b"\x03", 130)?;
        Ok(())
    });
    suite.add_kvm("control-D is the end of the input", || {
        let text = Session::start("exec $HARTLINE terminal wait", "")?.finish(b"x\n\x04", 8)?;
        contains(&text, "line")
    });
    suite.run()
}

/// A shell on a terminal of its own, with `$HARTLINE` for `hartline run` of the C
/// programs.
struct Session {
    child: Child,
    /// What was written until the program was ready.
    seen: String,
}

impl Session {
    /// Runs `script` until a program in it says that it is ready.
    fn start(script: &str, options: &str) -> Result<Self> {
        let mut child = shell(script, options)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(b"ready") {
            let count = child.stdout.as_mut().map(|pipe| pipe.read(&mut byte));
            if count.transpose()? != Some(1) {
                let code = process::wait(&mut child)?.map(process::shell_code);
                let seen = String::from_utf8_lossy(&seen);
                return Err(format!("not ready, exit code {code:?}: {seen}").into());
            }
            seen.push(byte[0]);
        }
        let seen = String::from_utf8_lossy(&seen).into_owned();
        Ok(Self { child, seen })
    }

    /// Types `keys` and waits for the end with exit code `code`: all that was written.
    fn finish(mut self, keys: &[u8], code: i32) -> Result<String> {
        // Kept open: its end would be typed as control-D.
        let mut keyboard = self.child.stdin.take().ok_or("no keyboard")?;
        keyboard.write_all(keys)?;
        let actual = process::wait(&mut self.child)?.map(process::shell_code);
        if let Some(screen) = &mut self.child.stdout {
            screen.read_to_string(&mut self.seen)?;
        }
        match actual {
            Some(actual) if actual == code => Ok(self.seen),
            other => Err(format!("exit code {other:?}, expected {code}: {}", self.seen).into()),
        }
    }
}

/// `script` with a shell command whose exit code it passes on.
fn shell(script: &str, options: &str) -> Result<Command> {
    let program = compile::programs(O2)?;
    hartline::translate(&program)?;
    let binary = hartline::binary()?.display().to_string();
    // A shell starts background jobs with SIGINT ignored, and what is ignored stays so.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT,QUIT,HUP", "script"])
        .args(["--quiet", "--return", "--command", script, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("HARTLINE_CACHE", hartline::cache()?)
        .env(
            "HARTLINE",
            format!("{binary} run {options} -- {}", program.display()),
        );
    Ok(command)
}

fn contains(text: &str, wanted: &str) -> Result<()> {
    match text.contains(wanted) {
        true => Ok(()),
        false => Err(format!("no {wanted:?} in {text:?}").into()),
    }
}

fn window_size() -> Result<()> {
    let script = "stty rows 33 columns 77; exec $HARTLINE terminal size";
    let outcome = process::run(&mut shell(script, "")?, b"")?;
    if outcome.code != 9 {
        return Err(format!("{outcome:?}").into());
    }
    contains(&outcome.stdout_text(), "33 rows 77 columns")
}

/// The program gets `keys` as they are typed, and the terminal is afterwards as it was.
fn raw(options: &str, keys: &[u8], taken: &str, code: i32) -> Result<()> {
    let script = "before=$(stty -g); $HARTLINE terminal raw; code=$?; \
                  test \"$before\" = \"$(stty -g)\" && echo as before; exit $code";
    let text = Session::start(script, options)?.finish(keys, code)?;
    contains(&text, taken)?;
    contains(&text, "as before")
}
