//! Servers and clients on processors of their own.

use hartline_vmm::affinity;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Who is kept where.
#[derive(Debug, Clone, Copy)]
pub struct Pin {
    /// Processor of a vCPU, or of a server that is no VM.
    server: u32,
    /// That of clients, and of all other threads of a VM.
    client: u32,
}

impl Pin {
    /// The first and the last processor that this process may use; none if there is only one.
    ///
    /// # Errors
    /// The host's.
    pub fn new() -> io::Result<Option<Self>> {
        Ok(match affinity::of_this_thread()?[..] {
            [server, .., client] => Some(Self { server, client }),
            _ => None,
        })
    }

    /// Value of `--pin` of `hartline run`.
    pub fn option(self) -> String {
        format!("{},{}", self.server, self.client)
    }

    /// Has a server that is no VM run in its place.
    pub fn server(self, command: &mut Command) {
        run_on(command, self.server);
    }

    /// Has a client run in its place.
    pub fn client(self, command: &mut Command) {
        run_on(command, self.client);
    }
}

fn run_on(command: &mut Command, processor: u32) {
    // SAFETY: a system call that is allowed between fork and exec.
    unsafe { command.pre_exec(move || affinity::run_on(&[processor])) };
}
