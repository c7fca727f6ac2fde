//! The connection that a server gets before its first client.

use anyhow::{Context, ensure};
use hartline_devices::net::user::Gate;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Longest file, bytes: the buffers of a connection hold it.
const LONGEST: u64 = 64 << 10;

/// What the connection sends.
#[derive(Debug)]
pub struct WarmUp {
    path: PathBuf,
    bytes: Vec<u8>,
    /// The server's port.
    port: u16,
}

impl WarmUp {
    /// The contents of a file for a port of the guest.
    ///
    /// # Errors
    /// The file cannot be read, or is too long.
    pub fn read(path: &Path, port: u16) -> anyhow::Result<Self> {
        let name = || format!("--warm-up {}", path.display());
        let file = File::open(path).with_context(name)?;
        let mut bytes = Vec::new();
        file.take(LONGEST + 1)
            .read_to_end(&mut bytes)
            .with_context(name)?;
        ensure!(
            bytes.len() as u64 <= LONGEST,
            "{}: longer than {LONGEST} bytes",
            name()
        );
        Ok(Self {
            path: path.to_owned(),
            bytes,
            port,
        })
    }

    /// Makes the connection, and waits until the server has ended it.
    ///
    /// # Errors
    /// It has not until `deadline`, or refuses the connection.
    pub fn visit(&self, gate: &Gate, deadline: Instant) -> anyhow::Result<()> {
        self.try_visit(gate, deadline)
            .with_context(|| format!("--warm-up {}", self.path.display()))
    }

    fn try_visit(&self, gate: &Gate, deadline: Instant) -> anyhow::Result<()> {
        let (mut client, host) = pair().context("a connection in this process")?;
        gate.give(host, self.port);
        client.write_all(&self.bytes)?;
        client.shutdown(Shutdown::Write)?;
        let mut answer = [0; 16 << 10];
        let mut length = 0;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(
                !left.is_zero(),
                "the server has not ended the connection in time (--ready-within)"
            );
            client.set_read_timeout(Some(left))?;
            match client.read(&mut answer) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    return Err(error).context("the server has not served the connection");
                }
            }
        }
        ensure!(length > 0, "the server has not answered");
        Ok(())
    }
}

/// Both ends of a connection of which no other process has one.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let own = client.local_addr()?;
    loop {
        let (host, peer) = listener.accept()?;
        // Another process may have connected.
        if peer == own {
            return Ok((client, host));
        }
    }
}
