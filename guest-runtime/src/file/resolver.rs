//! `/etc/resolv.conf`, if the network supplies name servers and the root file system does not
//! contain the file.

use super::Vfs;
use crate::credentials::Credentials;
use crate::fs::filesystem::{Dentry, NewInode, ROOT};
use crate::fs::process::Process;
use alloc::format;
use alloc::string::String;
use core::net::Ipv4Addr;
use hartline_linux::errno::Errno;

const NAME: &[u8] = b"resolv.conf";

impl Vfs {
    /// Writes the name servers in the format of resolv.conf(5), unless the file exists and is not
    /// from here.
    ///
    /// # Errors
    /// `ENOTDIR` if `/etc` is not a directory, `ENOSPC`.
    pub fn set_name_servers(
        &mut self,
        process: &Process,
        servers: &[Ipv4Addr],
    ) -> Result<(), Errno> {
        let cred = &Credentials::root();
        let etc = Dentry {
            directory: ROOT,
            name: b"etc",
        };
        let directory = match self.fs.lookup(ROOT, etc.name, process)? {
            Some(found) => found,
            None => self.fs.create(etc, NewInode::directory(0o755), cred)?,
        };
        let file = match self.fs.lookup(directory, NAME, process)? {
            Some(found) if Some(found) == self.resolver => found,
            Some(_) => return Ok(()),
            None => {
                let dentry = Dentry {
                    directory,
                    name: NAME,
                };
                self.fs.create(dentry, NewInode::file(0o644), cred)?
            }
        };
        self.resolver = Some(file);
        let lines = servers
            .iter()
            .map(|server| format!("nameserver {server}\n"));
        let text: String = lines.collect();
        self.fs.change_data(file, |data, budget| {
            data.truncate(budget, 0)?;
            data.write(budget, 0, text.as_bytes()).map(drop)
        })
    }
}
