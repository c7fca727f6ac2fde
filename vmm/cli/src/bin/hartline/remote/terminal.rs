//! This process's terminal while a remote program uses it as its own.

use rustix::process::{Signal as Number, getpid, kill_process};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::{Value, json};
use std::io;
use std::panic;
use std::process::ExitCode;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that end this process, once the terminal has its old settings.
const ENDS: [Number; 4] = [Number::HUP, Number::INT, Number::QUIT, Number::TERM];

/// Signals that are waited for.
#[derive(Debug)]
pub struct Signals(Vec<(Number, Signal)>);

impl Signals {
    /// From now on, these signals have no other effect on this process. Must run inside a runtime.
    pub fn catch(numbers: &[Number]) -> io::Result<Self> {
        let caught = numbers.iter().map(|&number| {
            let signal = signal(SignalKind::from_raw(number.as_raw()))?;
            Ok((number, signal))
        });
        caught.collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next signal. A cancelled call has lost none.
    pub async fn next(&mut self) -> Number {
        let next = std::future::poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        });
        next.await
    }
}

/// Changes of the terminal's size.
#[derive(Debug)]
pub struct Sizes(Signals);

impl Sizes {
    /// Follows changes. Must run inside a runtime.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn follow() -> io::Result<Self> {
        // The size may change while this process is stopped, too.
        Signals::catch(&[Number::WINCH, Number::CONT]).map(Self)
    }

    /// Waits for the next size. A cancelled call has lost none.
    pub async fn next(&mut self) -> (u16, u16) {
        loop {
            self.0.next().await;
            if let Some(size) = size() {
                return size;
            }
        }
    }
}

/// Lines, and characters of a line, of the first standard stream that is a terminal with a size.
pub fn size() -> Option<(u16, u16)> {
    let streams = [stdin(), stdout(), stderr()];
    let mut sizes = streams
        .iter()
        .filter_map(|stream| tcgetwinsize(stream).ok());
    let size = sizes.find(|size| size.ws_row > 0 && size.ws_col > 0)?;
    Some((size.ws_row, size.ws_col))
}

/// The size of a new terminal, as the API describes it: that of this terminal, or the usual one.
pub fn size_json() -> Value {
    match size() {
        Some((rows, columns)) => json!({ "rows": rows, "columns": columns }),
        None => json!({}),
    }
}

/// Standard input as a raw terminal: each key is for the remote program. Dropping this restores the
/// settings, and so does a panic.
#[derive(Debug)]
pub struct Keys {
    signals: Signals,
    saved: Termios,
}

impl Keys {
    /// Makes standard input raw. Must run inside a runtime.
    ///
    /// # Errors
    /// Standard input is not a terminal, or any other I/O error of the host.
    pub fn take() -> io::Result<Self> {
        let saved = tcgetattr(stdin())?;
        // From now on, no signal ends or stops this process with a raw terminal.
        let others = [Number::TSTP, Number::CONT];
        let signals = Signals::catch(&[&ENDS[..], &others].concat())?;
        let settings = saved.clone();
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            set(&settings);
            report(panic);
        }));
        let keys = Self { signals, saved };
        keys.make_raw();
        Ok(keys)
    }

    fn make_raw(&self) {
        let mut settings = self.saved.clone();
        settings.make_raw();
        set(&settings);
    }

    /// Waits for a signal that ends this process. The terminal has its old settings while this process
    /// is stopped.
    pub async fn ended(&mut self) -> Number {
        loop {
            match self.signals.next().await {
                // The remote program gets control-Z as a key: this signal is from another process.
                Number::TSTP => {
                    set(&self.saved);
                    // A process may always signal itself.
                    let _ = kill_process(getpid(), Number::STOP);
                }
                Number::CONT => self.make_raw(),
                number => return number,
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        set(&self.saved);
    }
}

/// Changes the settings of standard input.
fn set(settings: &Termios) {
    // A terminal that is gone needs no settings. To wait for its output could take for ever.
    let _ = tcsetattr(stdin(), OptionalActions::Now, settings);
}

/// Ends this process by a signal, as if it had not been caught. Result: the exit code if the signal
/// does not end it.
pub fn end_by(number: Number) -> ExitCode {
    // SAFETY: the default action runs no code of this process.
    unsafe { libc::signal(number.as_raw(), libc::SIG_DFL) };
    // A process may always signal itself.
    let _ = kill_process(getpid(), number);
    ExitCode::from(128 | u8::try_from(number.as_raw()).unwrap_or(0))
}
