//! `--vsock`: the socket device, and the sockets that programs of the host connect to.

use super::network::{POLLING, parse_polling};
use anyhow::{Context, bail, ensure};
use hartline_abi::vsock::{CID_ANY, FIRST_CID};
use hartline_devices::vsock::Host;
use hartline_vmm::devices::Sockets;
use std::path::PathBuf;
use std::time::Duration;

/// Value of `--vsock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vsock {
    cid: u32,
    socket: PathBuf,
    polling: Duration,
}

/// Parses the value of `--vsock`.
///
/// # Errors
/// The fault of the value.
pub fn parse(text: &str) -> anyhow::Result<Vsock> {
    let (mut cid, mut socket, mut polling) = (None, None, POLLING);
    for part in text.split(',') {
        let (key, value) = part.split_once('=').context("needs the form KEY=VALUE")?;
        match key {
            "cid" => cid = Some(parse_cid(value)?),
            "socket" => socket = Some(PathBuf::from(value)),
            "poll" => polling = parse_polling(value)?,
            _ => bail!("unknown key {key:?}: must be cid, socket or poll"),
        }
    }
    let socket = socket.context("needs socket=PATH")?;
    ensure!(!socket.as_os_str().is_empty(), "the path is empty");
    Ok(Vsock {
        cid: cid.context("needs cid=N")?,
        socket,
        polling,
    })
}

fn parse_cid(text: &str) -> anyhow::Result<u32> {
    let cid = text.parse().ok();
    cid.filter(|cid| (FIRST_CID..CID_ANY).contains(cid))
        .with_context(|| format!("{text:?}: not a CID from {FIRST_CID} to {}", CID_ANY - 1))
}

impl Vsock {
    /// Opens the socket device.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn open(&self) -> anyhow::Result<Sockets> {
        Ok(Sockets {
            cid: self.cid,
            host: Host::bind(&self.socket).context("--vsock")?,
            polling: self.polling,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let vsock = parse("cid=3,socket=/run/v.sock,poll=0").unwrap();
        assert_eq!((vsock.cid, vsock.polling), (3, Duration::ZERO));
        assert_eq!(vsock.socket, PathBuf::from("/run/v.sock"));
        for bad in [
            "",
            "cid=3",
            "socket=x",
            "cid=3,socket=",
            "cid=2,socket=x",
            "cid=4294967295,socket=x",
            "cid=-1,socket=x",
            "cid=3,socket=x,port=5",
            "cid=3,socket=x,poll=100001",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
