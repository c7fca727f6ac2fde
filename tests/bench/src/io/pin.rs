//! Pins servers and clients to CPUs.

use hartline_vmm::affinity;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The CPUs of servers and clients.
#[derive(Debug, Clone, Copy)]
pub struct Pin {
    /// The CPU of a vCPU, or of a server outside a VM.
    server: u32,
    /// The CPU of clients, and of all other threads of a VM.
    client: u32,
}

impl Pin {
    /// Takes the first and the last CPU that this process may use; `None` if there is only one.
    ///
    /// # Errors
    /// The affinity mask cannot be read.
    pub fn new() -> io::Result<Option<Self>> {
        Ok(match affinity::of_this_thread()?[..] {
            [server, .., client] => Some(Self { server, client }),
            _ => None,
        })
    }

    /// Returns the value of `--pin` of `hartline run`.
    pub fn option(self) -> String {
        format!("{},{}", self.server, self.client)
    }

    /// Pins a server that runs outside a VM.
    pub fn server(self, command: &mut Command) {
        run_on(command, self.server);
    }

    /// Pins a client.
    pub fn client(self, command: &mut Command) {
        run_on(command, self.client);
    }
}

fn run_on(command: &mut Command, processor: u32) {
    // SAFETY: the closure makes one system call and allocates nothing, so it may run between fork
    // and exec.
    unsafe { command.pre_exec(move || affinity::run_on(&[processor])) };
}
