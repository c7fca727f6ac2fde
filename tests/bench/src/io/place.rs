//! The server's address and the interfaces that lead to it.

use super::Configuration;
use anyhow::{Context, bail};
use std::io;
use std::net::Ipv4Addr;
use std::process::Command;

/// The server's address.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The interface on the client's side.
const CLIENT: &str = "hartline0";
/// The interface on the server's side, if there is one.
pub const SERVER: &str = "hartline1";

/// Moves this process, which has one thread, and its children into a new network namespace.
///
/// # Errors
/// The host refuses: the process lacks the privilege.
pub fn enter_namespace() -> io::Result<()> {
    // SAFETY: no memory is involved.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs `ip`.
fn ip(arguments: &str) -> anyhow::Result<()> {
    let mut command = Command::new("ip");
    let output = command.args(arguments.split(' ')).output().context("ip")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("ip {arguments}: {}", error.trim());
    }
    Ok(())
}

/// The client's interface, which is deleted when this is dropped.
#[derive(Debug)]
pub struct Place {
    is_vm: bool,
    /// The longest time for which a VM and its device poll the rings, µs.
    polling: u32,
}

impl Place {
    /// Makes the interface. In the configuration exitless, both sides poll the rings for up to
    /// `polling` µs.
    ///
    /// # Errors
    /// `ip` failed.
    pub fn new(configuration: Configuration, polling: u32) -> anyhow::Result<Self> {
        let is_vm = configuration.is_vm();
        match is_vm {
            true => ip(&format!("tuntap add dev {CLIENT} mode tap"))?,
            false => ip(&format!("link add {CLIENT} type veth peer name {SERVER}"))?,
        }
        let polling = match configuration {
            Configuration::Injected | Configuration::ExitlessNoPoll => 0,
            _ => polling,
        };
        let place = Self { is_vm, polling };
        ip(&format!("addr add 10.77.0.1/24 dev {CLIENT}"))?;
        ip(&format!("link set dev {CLIENT} up"))?;
        Ok(place)
    }

    /// Moves the other end of the veth pair into the network namespace of the process `server`.
    ///
    /// # Errors
    /// `ip` failed.
    pub fn finish(&self, server: u32) -> anyhow::Result<()> {
        match self.is_vm {
            true => Ok(()),
            false => ip(&format!("link set dev {SERVER} netns {server}")),
        }
    }

    /// Returns the server's address.
    pub fn address(&self) -> Ipv4Addr {
        ADDRESS
    }

    /// Returns the value of `--net` for this interface.
    pub fn option(&self) -> String {
        format!("tap:{CLIENT},ip={ADDRESS}/24,poll={}", self.polling)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The namespace ends with this process, and the interface with it.
        let _ = ip(&format!("link del dev {CLIENT}"));
    }
}
