//! A program in a machine with this process's standard streams, until one of them ends.

use super::detach::Detach;
use super::terminal::{Keys, Sizes};
use hartline_cli::client::{Attached, Input, Output, Received};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::future::pending;
use std::io::{self, IsTerminal, Write};
use std::mem::replace;
use std::os::fd::AsFd;
use tokio::io::AsyncReadExt;

/// Bytes of input sent at a time.
const CHUNK: usize = 16 << 10;

/// The end of a connection.
pub(super) enum End {
    /// The program has ended, as the API describes it; `None`: the daemon closed the connection.
    Program(Option<Value>),
    /// This signal ends this process.
    Signal(Signal),
    /// The detach keys were typed.
    Detached,
}

/// How this process takes part in a connection.
pub(super) struct Session {
    /// Pass standard input on.
    pub input: bool,
    /// The program's input ends at once.
    pub ends_input: bool,
    /// Standard input is a terminal whose keys are the program's.
    pub takes_keys: bool,
    /// The keys that end the connection.
    pub detach: Option<Detach>,
}

/// Whether this terminal's keys are a program's, if the program's input and terminal `are_wanted`.
///
/// # Errors
/// Standard input is not a terminal.
pub(super) fn takes_keys(are_wanted: bool) -> anyhow::Result<bool> {
    anyhow::ensure!(
        !are_wanted || io::stdin().is_terminal(),
        "--tty: standard input is not a terminal; leave --tty or --interactive out"
    );
    Ok(are_wanted)
}

impl Session {
    /// Passes everything on. The terminal has its old settings when this returns.
    ///
    /// # Errors
    /// The connection broke, or standard input cannot be read.
    pub async fn run(self, attached: Attached, sizes: &mut Option<Sizes>) -> anyhow::Result<End> {
        let Self {
            input,
            ends_input,
            takes_keys,
            mut detach,
        } = self;
        let (mut sink, output) = attached.split();
        let mut keys = match takes_keys {
            true => Some(Keys::take()?),
            false => None,
        };
        let ended = async {
            match &mut keys {
                Some(keys) => keys.ended().await,
                None => pending().await,
            }
        };
        let typed = async {
            if ends_input {
                // The program may have ended already: what was received says so.
                let _ = sink.send(Vec::new()).await;
            }
            forward(sink, input, sizes.as_mut(), detach.as_mut()).await
        };
        tokio::select! {
            end = print_to_end(output) => end.map(End::Program),
            done = typed => done.map(|()| End::Detached),
            number = ended => Ok(End::Signal(number)),
        }
    }
}

/// Passes standard input on, if `input` is true, and changes of the terminal's size. The end of the
/// input is not the end of this, but the detach keys are.
///
/// # Errors
/// Standard input cannot be read.
pub(super) async fn forward(
    mut sink: Input,
    input: bool,
    mut sizes: Option<&mut Sizes>,
    mut detach: Option<&mut Detach>,
) -> anyhow::Result<()> {
    let mut input = match input {
        true => Some(tokio::fs::File::from_std(File::from(
            io::stdin().as_fd().try_clone_to_owned()?,
        ))),
        false => None,
    };
    let mut chunk = Vec::with_capacity(CHUNK);
    loop {
        let read = async {
            match &mut input {
                Some(input) => input.read_buf(&mut chunk).await,
                None => pending().await,
            }
        };
        let resized = async {
            match &mut sizes {
                Some(sizes) => sizes.next().await,
                None => pending().await,
            }
        };
        let sent = tokio::select! {
            size = resized => sink.resize(size).await,
            count = read => {
                let is_end = count? == 0;
                if is_end {
                    input = None;
                }
                let typed = replace(&mut chunk, Vec::with_capacity(CHUNK));
                let (typed, is_detached) = match &mut detach {
                    Some(detach) => detach.take(typed),
                    None => (typed, false),
                };
                let sent = match typed.is_empty() && !is_end {
                    true => Ok(()),
                    false => sink.send(typed).await,
                };
                if is_detached {
                    return Ok(());
                }
                sent
            }
        };
        if sent.is_err() {
            // A connection that has ended takes nothing: what was received says why.
            pending().await
        }
    }
}

/// Prints output until the end, which the daemon describes; `None`: it closed the connection.
pub(super) async fn print_to_end(mut output: Output) -> anyhow::Result<Option<Value>> {
    while let Some(received) = output.next().await? {
        match received {
            Received::Stdout(bytes) => {
                io::stdout().write_all(&bytes)?;
                io::stdout().flush()?;
            }
            Received::Stderr(bytes) => io::stderr().write_all(&bytes)?,
            Received::Ended(end) => return Ok(Some(end)),
        }
    }
    Ok(None)
}
