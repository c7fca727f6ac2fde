//! Files that the VMM gives the program: secrets in `/run/secrets`, and the arguments of
//! `hartline run --from` in `/run/hartline/arguments`.

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
        let directory = self.given_directory(process, b"secrets")?;
        if self.fs.lookup(directory, name, process)?.is_some() {
            return Err(Errno::EEXIST);
        }
        let file = self.give_file(process, Dentry { directory, name }, 0o400)?;
        self.fill_given(file, contents)
    }

    /// Writes the arguments of this VM, each with its NUL. Without any, a file that an earlier VM had is empty,
    /// and none is made.
    ///
    /// # Errors
    /// `ENOTDIR` or `EISDIR` if a part of the path is something else; `ENOSPC`.
    pub fn set_arguments(&mut self, process: &Process, contents: &[u8]) -> Result<(), Errno> {
        let name = b"arguments";
        if contents.is_empty() {
            let mut found = Some(ROOT);
            for part in [&b"run"[..], b"hartline", name] {
                found = match found {
                    Some(directory) => self.fs.lookup(directory, part, process)?,
                    None => None,
                };
            }
            return found.map_or(Ok(()), |file| self.fill_given(file, contents));
        }
        let directory = self.given_directory(process, b"hartline")?;
        let file = match self.fs.lookup(directory, name, process)? {
            Some(found) => found,
            None => self.give_file(process, Dentry { directory, name }, 0o444)?,
        };
        self.fill_given(file, contents)
    }

    /// A new file with these permissions.
    fn give_file(
        &mut self,
        process: &Process,
        dentry: Dentry<'_>,
        mode: u32,
    ) -> Result<Ino, Errno> {
        // The program's user owns the file, and need not have the right to make it.
        let owner = Credentials {
            user: process.cred.user,
            group: process.cred.group,
            ..Credentials::root()
        };
        self.fs.create(dentry, NewInode::file(mode), &owner)
    }

    /// Replaces the contents of a file.
    fn fill_given(&mut self, file: Ino, contents: &[u8]) -> Result<(), Errno> {
        self.fs.change_data(file, |data, budget| {
            data.truncate(budget, 0)?;
            data.write(budget, 0, contents).map(drop)
        })
    }

    /// A directory in `/run`. Both are made if they do not exist.
    fn given_directory(&mut self, process: &Process, name: &[u8]) -> Result<Ino, Errno> {
        let mut directory = ROOT;
        for name in [b"run", name] {
            directory = match self.fs.lookup(directory, name, process)? {
                Some(found) => found,
                None => {
                    let dentry = Dentry { directory, name };
                    let root = &Credentials::root();
                    self.fs.create(dentry, NewInode::directory(0o755), root)?
                }
            };
        }
        Ok(directory)
    }
}
