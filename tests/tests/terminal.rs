//! Programs on a pseudo-terminal that `script` makes, with a shell that checks the terminal's
//! settings before and after.

use hartline_tests::compile::{self, VARIANTS, Variant};
use hartline_tests::dynamic::Root;
use hartline_tests::process;
use hartline_tests::suite::Suite;
use hartline_tests::{Result, hartline};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const O2: Variant = VARIANTS[1];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_kvm("size of the window", window_size);
    suite.add_kvm("raw mode, and back at the end", || {
        raw("", b"a\x03\rq", "<61><03><0d><71>", 7)
    });
    suite.add_kvm("raw mode, and back after a time-out", || {
        raw("--timeout 5", b"b", "<62>", 124)
    });
    suite.add_kvm("control-C while the program reads", || {
        Session::start("exec $HARTLINE terminal wait", "")?.finish(b"\x03", 130)?;
        Ok(())
    });
    suite.add_kvm("control-D is the end of the input", || {
        let text = Session::start("exec $HARTLINE terminal wait", "")?.finish(b"x\n\x04", 8)?;
        contains(&text, "line")
    });
    suite.add_kvm("control-Z stops hartline, fg lets it go on", control_z);
    suite.add_kvm("control-Z in raw mode is a byte", || {
        raw("", b"\x1aq", "<1a>", 7)
    });
    suite.add_kvm("job control in Debian's bash", bash);
    suite.add_kvm("control-C in Debian's gdb", gdb);
    suite.run()
}

/// A shell on a separate terminal, with `$HARTLINE` for `hartline run` of the C programs.
struct Session {
    child: Child,
    /// The output until the program was ready.
    seen: String,
}

impl Session {
    /// Runs `script` until a program in it prints that it is ready.
    fn start(script: &str, options: &str) -> Result<Self> {
        Self::start_until(&mut shell(script, options)?, "ready")
    }

    /// Runs a command on a terminal until `wanted` is on the screen.
    fn start_until(command: &mut Command, wanted: &str) -> Result<Self> {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let seen = String::new();
        let mut session = Self { child, seen };
        match session.type_until("", wanted) {
            Ok(()) => Ok(session),
            Err(error) => {
                let code = process::wait(&mut session.child)?.map(process::shell_code);
                Err(format!("{error:?}; exit code {code:?}").into())
            }
        }
    }

    /// Types `keys` and reads until `wanted` follows the text on the screen.
    fn type_until(&mut self, keys: &str, wanted: &str) -> Result<()> {
        let keyboard = self.child.stdin.as_mut().ok_or("no keyboard")?;
        keyboard.write_all(keys.as_bytes())?;
        let screen = self.child.stdout.as_mut().ok_or("no screen")?;
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !bytes.ends_with(wanted.as_bytes()) {
            if screen.read(&mut byte)? == 0 {
                let seen = String::from_utf8_lossy(&bytes);
                return Err(format!("no {wanted:?} after {keys:?}: {seen:?}").into());
            }
            bytes.push(byte[0]);
        }
        self.seen.push_str(&String::from_utf8_lossy(&bytes));
        Ok(())
    }

    /// Types control-C at the prompt of a shell, and again if no prompt follows. Readline can miss a
    /// signal that arrives between its prompt and its wait for a key: it stays pending, or `^C` is
    /// printed, and nothing more happens until a key comes. A native bash does the same: 44 of 100
    /// times if each `write` is made 300 µs longer.
    fn interrupt_prompt(&mut self, prompt: &str) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(5);
        let mut seen = Vec::new();
        for _ in 0..5 {
            self.type_until("\x03", "")?;
            let typed = Instant::now();
            while let Some(byte) = self.read_byte(PATIENCE.saturating_sub(typed.elapsed()))? {
                seen.push(byte);
                if seen.ends_with(prompt.as_bytes()) {
                    return Ok(());
                }
            }
        }
        let seen = String::from_utf8_lossy(&seen);
        Err(format!("control-C does nothing at the prompt: {seen:?}").into())
    }

    /// Reads a byte of the screen. Result: none if nothing is printed during `patience`.
    fn read_byte(&mut self, patience: Duration) -> Result<Option<u8>> {
        let screen = self.child.stdout.as_mut().ok_or("no screen")?;
        let mut poll = libc::pollfd {
            fd: screen.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let milliseconds = patience.as_millis().try_into()?;
        // SAFETY: the pointer is valid for one entry.
        if unsafe { libc::poll(&raw mut poll, 1, milliseconds) } <= 0 {
            return Ok(None);
        }
        let mut byte = [0];
        screen.read_exact(&mut byte)?;
        Ok(Some(byte[0]))
    }

    /// Types `keys` and waits for the end with exit code `code`. Result: the whole output.
    fn finish(mut self, keys: &[u8], code: i32) -> Result<String> {
        // Kept open: the end of the input would be typed as control-D.
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

/// Returns a shell command on a terminal, with `$HARTLINE` for `hartline run` of the C programs.
fn shell(script: &str, options: &str) -> Result<Command> {
    let program = compile::programs(O2)?;
    hartline::translate(&program)?;
    let binary = hartline::binary()?.display().to_string();
    let run = format!("{binary} run {options} -- {}", program.display());
    let mut command = on_terminal(script)?;
    command.env("HARTLINE", run);
    Ok(command)
}

/// Returns `script` with a shell command, whose exit code it passes on.
fn on_terminal(script: &str) -> Result<Command> {
    // A shell starts background jobs with SIGINT ignored, and ignored signals stay ignored.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT,QUIT,HUP,TSTP", "script"])
        .args(["--quiet", "--return", "--command", script, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("TERM", "dumb")
        .env("HARTLINE_CACHE", hartline::cache()?);
    Ok(command)
}

/// The host's shell sees its job stop and finds its terminal unchanged; then the program continues
/// where it was.
fn control_z() -> Result<()> {
    let script = "set -m; before=$(stty -g); $HARTLINE terminal wait; echo \"stopped $?\"; \
                  test \"$before\" = \"$(stty -g)\" && echo as before; fg";
    let mut session = Session::start(script, "--timeout 600")?;
    session.type_until("a\n", "line")?;
    session.type_until("\x1a", "stopped 148")?;
    session.type_until("", "as before")?;
    session.type_until("b\n", "line")?;
    session.finish(b"\x04", 8)?;
    Ok(())
}

/// In an interactive shell in the VM, jobs stop and continue, and the VM runs on.
fn bash() -> Result<()> {
    let root = Root::new("terminal", ["bash", "cat", "sleep", "tty"].into_iter())?;
    let binary = hartline::binary()?.display().to_string();
    let script = format!(
        "exec {binary} run --timeout 600 --rootfs {} /usr/bin/bash --norc --noprofile -i",
        root.path().display()
    );
    let mut session = Session::start_until(&mut on_terminal(&script)?, "# ")?;
    // Keys to type, and the text on the screen after they have taken effect.
    for (keys, wanted) in [
        ("PS1='prompt> '\n", "\nprompt> "),
        ("tty\n", "/dev/console\r\nprompt> "),
        ("cat -n\n", "cat -n\r\n"),
        ("one\n", "\tone\r\n"),
        ("\x1a", "Stopped                 cat -n\r\nprompt> "),
        ("jobs\n", "[1]+  Stopped                 cat -n\r\nprompt> "),
        ("fg\n", "cat -n\r\n"),
        ("two\n", "\ttwo\r\n"),
        ("\x1a", "Stopped                 cat -n\r\nprompt> "),
        // The background job reads from the terminal, which is not allowed.
        (
            "bg; sleep 0.3; jobs\n",
            "[1]+  Stopped                 cat -n\r\nprompt> ",
        ),
        ("fg\n", "cat -n\r\n"),
        ("three\n", "\tthree\r\n"),
        ("\x04", "prompt> "),
        ("sleep 600 &\n", "prompt> "),
        (
            "jobs\n",
            "[1]+  Running                 sleep 600 &\r\nprompt> ",
        ),
        ("kill %1; wait\n", "prompt> "),
        ("bash -c 'echo started; exec sleep 600'\n", "started\r\n"),
        ("\x03", "prompt> "),
        ("echo $?\n", "130\r\nprompt> "),
    ] {
        session.type_until(keys, wanted)?;
    }
    // Interrupts at the prompt reach only the shell, however many there are.
    for _ in 0..3 {
        session.interrupt_prompt("prompt> ")?;
    }
    session.finish(b"exit 42\n", 42)?;
    Ok(())
}

/// In gdb in the VM, control-C stops the program that it runs.
fn gdb() -> Result<()> {
    let root = Root::with_gdb("terminal-gdb")?;
    let compiled = compile::programs(O2)?;
    fs::copy(compiled, root.path().join("usr/bin/programs"))?;
    let binary = hartline::binary()?.display().to_string();
    let script = format!(
        "exec {binary} run --timeout 600 --mem 1G --rootfs {} /usr/bin/gdb -nx -q \
         -ex 'set startup-with-shell off' --args /usr/bin/programs terminal wait",
        root.path().display()
    );
    let mut session = Session::start_until(&mut on_terminal(&script)?, "(gdb) ")?;
    for (keys, wanted) in [
        ("run\n", "ready"),
        ("\x03", "Program received signal SIGINT"),
        ("", "(gdb) "),
        ("continue\n", "Continuing."),
        ("a\n", "line"),
        ("\x04", "exited with code 010]"),
        ("", "(gdb) "),
    ] {
        session.type_until(keys, wanted)?;
    }
    session.finish(b"quit 3\n", 3)?;
    Ok(())
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

/// The program gets `keys` as they are typed, and the terminal's settings are restored.
fn raw(options: &str, keys: &[u8], taken: &str, code: i32) -> Result<()> {
    let script = "before=$(stty -g); $HARTLINE terminal raw; code=$?; \
                  test \"$before\" = \"$(stty -g)\" && echo as before; exit $code";
    let text = Session::start(script, options)?.finish(keys, code)?;
    contains(&text, taken)?;
    contains(&text, "as before")
}
