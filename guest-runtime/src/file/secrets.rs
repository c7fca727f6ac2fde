//! Secrets of the first program, which are files in `/run/secrets`.

use super::Vfs;
use crate::credentials::Credentials;
use crate::fs::filesystem::{Dentry, NewInode, ROOT};
use crate::fs::process::Process;
use crate::fs::types::Ino;
use hartline_linux::errno::Errno;

impl Vfs {
    /// Makes the file of a secret. Only the program's user, and root, may read it.
    ///
    /// # Errors
    /// `EEXIST` if the root file system has the file; `ENOTDIR` if `/run` or `/run/secrets` is not a
    /// directory; `ENOSPC`.
    pub fn add_secret(
        &mut self,
        process: &Process,
        name: &[u8],
        contents: &[u8],
    ) -> Result<(), Errno> {
        let run = self.secret_directory(process, ROOT, b"run")?;
        let directory = self.secret_directory(process, run, b"secrets")?;
        if self.fs.lookup(directory, name, process)?.is_some() {
            return Err(Errno::EEXIST);
        }
        let dentry = Dentry { directory, name };
        // The program's user owns the file, and need not have the right to make it.
        let owner = Credentials {
            user: process.cred.user,
            group: process.cred.group,
            ..Credentials::root()
        };
        let file = self.fs.create(dentry, NewInode::file(0o400), &owner)?;
        self.fs.change_data(file, |data, budget| {
            data.write(budget, 0, contents).map(drop)
        })
    }

    /// A directory on the way to secrets, which is made if it does not exist.
    fn secret_directory(
        &mut self,
        process: &Process,
        directory: Ino,
        name: &[u8],
    ) -> Result<Ino, Errno> {
        match self.fs.lookup(directory, name, process)? {
            Some(found) => Ok(found),
            None => {
                let dentry = Dentry { directory, name };
                let root = &Credentials::root();
                self.fs.create(dentry, NewInode::directory(0o755), root)
            }
        }
    }
}
