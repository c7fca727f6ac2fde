//! The start of devices, and the first open files.

use crate::credentials::Credentials;
use crate::drivers::volume::HostChannel;
use crate::drivers::{self, StartError};
use crate::kernel::Kernel;
use alloc::boxed::Box;
use alloc::rc::Rc;
use hartline_linux::errno::Errno;

impl Kernel {
    /// Opens the standard streams of the first process, and mounts the volumes of the VM.
    ///
    /// # Errors
    /// Errors of the host, or of path_resolution(7).
    pub fn open_files(&mut self) -> Result<(), Errno> {
        let host = self.host;
        let (mut io, process) = self.io();
        match host.boot().terminal {
            [0, _] => io.open_streams(process)?,
            [rows, columns] => self.open_terminal(rows, columns)?,
        }
        let (mut io, process) = self.io();
        match host.boot().volumes {
            0 => Ok(()),
            count => io.mount_volumes(process, Rc::new(HostChannel::new(host)), count),
        }
    }

    /// Starts the disks of the VM.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_disks(&mut self) -> Result<(), StartError> {
        let boot = self.host.boot();
        let cred = Credentials::new(boot.uid, boot.gid);
        for (number, name) in (0..).zip(&boot.disks) {
            let length = name.iter().position(|&byte| byte == 0);
            let name = &name[..length.unwrap_or(name.len())];
            if name.is_empty() {
                break;
            }
            let disk = drivers::block::start(self.host, number)?;
            let (mut io, _) = self.io();
            // Another device may already have this name.
            let added = io.add_disk(name, Box::new(disk), &cred);
            added.map_err(|_| StartError::Refused)?;
        }
        Ok(())
    }
}
