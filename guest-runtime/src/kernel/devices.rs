//! The start of devices.

use crate::credentials::Credentials;
use crate::drivers::{self, StartError};
use crate::kernel::Kernel;
use alloc::boxed::Box;

impl Kernel {
    /// Starts the disks of the VM.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_disks(&mut self) -> Result<(), StartError> {
        let boot = self.host.boot();
        let who = Credentials::new(boot.uid, boot.gid);
        for (number, name) in (0..).zip(&boot.disks) {
            let length = name.iter().position(|&byte| byte == 0);
            let name = &name[..length.unwrap_or(name.len())];
            if name.is_empty() {
                break;
            }
            let disk = drivers::block::start(self.host, number)?;
            let vfs = &mut self.vfs;
            // Another device may already have this name.
            let added = vfs.add_disk(name, Box::new(disk), &who);
            added.map_err(|_| StartError::Refused)?;
        }
        Ok(())
    }
}
