//! `hartline attach --gdb`: the bytes of a debugger of this computer and of a machine's VM, which serves
//! GDB's remote serial protocol.

use super::session::End;
use super::table::text;
use super::terminal::Signals;
use crate::gdb_listener::{Address, Listener, Lost, waiting};
use clap::ValueEnum;
use hartline_cli::client::{Attached, Input, Output, Received, Target};
use rustix::process::Signal;
use serde_json::Value;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::timeout;

/// Bytes of the debugger that are sent at a time.
const CHUNK: usize = 16 << 10;
/// How long the daemon may take to say how a connection ended that the debugger has closed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Signals that end this command.
const ENDS: [Signal; 3] = [Signal::HUP, Signal::INT, Signal::TERM];

/// Where the debugger is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It has started this command, and uses standard input and output.
    Streams,
    /// It connects there.
    At(Address),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "-" => Ok(Self::Streams),
            text => text.parse().map(Self::At),
        }
    }
}

/// The debugger's connection, to read and to write.
type Debugger = (Box<dyn AsyncRead + Unpin>, Box<dyn AsyncWrite + Unpin>);

/// Connects one debugger with a machine, until it detaches or the program ends.
///
/// # Errors
/// The address cannot be used, the daemon refuses, or a connection breaks.
pub(super) async fn debug(
    target: &Target,
    machine: &str,
    place: &Place,
    lost: Lost,
) -> anyhow::Result<End> {
    let lost = lost.to_possible_value();
    let lost = lost.as_ref().map_or("continue", |value| value.get_name());
    let mut signals = Signals::catch(&ENDS)?;
    let session = async {
        let address = match place {
            Place::At(address) => address,
            Place::Streams => {
                let attached = Attached::debug(target, machine, lost).await?;
                let file = |fd: BorrowedFd<'_>| -> io::Result<_> {
                    Ok(tokio::fs::File::from_std(fd.try_clone_to_owned()?.into()))
                };
                let (read, write) = (file(io::stdin().as_fd())?, file(io::stdout().as_fd())?);
                return relay(attached, (Box::new(read), Box::new(write))).await;
            }
        };
        let opened = Listener::open(address);
        let (listener, shown, _file) =
            opened.map_err(|error| anyhow::anyhow!("--gdb: {address}: {error}"))?;
        crate::say(&waiting(&shown));
        let streams = accept(listener).await?;
        relay(Attached::debug(target, machine, lost).await?, streams).await
    };
    let ended = async {
        loop {
            match (signals.next().await, place) {
                // The debugger's terminal sends it to this process too.
                (Signal::INT, Place::Streams) => {}
                (signal, _) => break signal,
            }
        }
    };
    tokio::select! {
        done = session => done.map(|()| End::Detached),
        signal = ended => Ok(End::Signal(signal)),
    }
}

/// Waits for a debugger.
async fn accept(listener: Listener) -> io::Result<Debugger> {
    Ok(match listener {
        Listener::Tcp(listener) => {
            let (socket, _) = TcpListener::from_std(listener)?.accept().await?;
            // Packets are short, and each waits for its answer.
            let _ = socket.set_nodelay(true);
            let (read, write) = socket.into_split();
            (Box::new(read), Box::new(write))
        }
        Listener::Unix(listener) => {
            let (socket, _) = UnixListener::from_std(listener)?.accept().await?;
            let (read, write) = socket.into_split();
            (Box::new(read), Box::new(write))
        }
    })
}

/// Passes bytes on in both directions.
///
/// # Errors
/// The daemon has refused the debugger, or its connection broke.
async fn relay(attached: Attached, (read, write): Debugger) -> anyhow::Result<()> {
    let (input, output) = attached.split();
    let answers = answers(output, write);
    tokio::pin!(answers);
    let end = tokio::select! {
        end = &mut answers => end?,
        () = packets(read, input) => match timeout(PATIENCE, &mut answers).await {
            Ok(end) => end?,
            // The debugger has gone, and the machine is too busy to tell.
            Err(_) => return Ok(()),
        },
    };
    // A machine that ends under the debugger is no failure: the debugger says more.
    match text(&end, "message").as_str() {
        "" => Ok(()),
        _ if end.get("exit_code").and_then(Value::as_u64) == Some(137) => Ok(()),
        why => anyhow::bail!("{why}"),
    }
}

/// Passes the debugger's bytes on until it closes the connection. Then the input ends.
async fn packets(mut debugger: impl AsyncRead + Unpin, mut input: Input) {
    let mut chunk = vec![0; CHUNK];
    // A broken connection is the end.
    while let Ok(count @ 1..) = debugger.read(&mut chunk).await {
        if input.send(chunk[..count].to_vec()).await.is_err() {
            // The daemon's messages say why.
            pending().await
        }
    }
    let _ = input.send(Vec::new()).await;
}

/// Passes the machine's bytes on until the end, which the daemon describes.
async fn answers(
    mut output: Output,
    mut debugger: impl AsyncWrite + Unpin,
) -> anyhow::Result<Value> {
    loop {
        match output.next().await? {
            Some(Received::Stdout(bytes)) => {
                // A debugger that has gone ends the input.
                if debugger.write_all(&bytes).await.is_ok() {
                    let _ = debugger.flush().await;
                }
            }
            Some(Received::Stderr(_)) => {}
            Some(Received::Ended(end)) => return Ok(end),
            None => anyhow::bail!("the daemon closed the connection; the machine may still run"),
        }
    }
}
