//! Access to the files of running programs, which must not be written: the counts that Linux keeps
//! in `i_writecount`. Programs in volumes execute a copy of their file, so these are exempt.

use super::filesystem::FileSystem;
use super::types::Ino;
use super::volume::is_volume;
use hartline_linux::errno::Errno;

impl FileSystem {
    /// Checks that no process executes a file that is to be written.
    ///
    /// # Errors
    /// `ETXTBSY`.
    pub fn check_not_executed(&self, ino: Ino) -> Result<(), Errno> {
        match self.own(ino) {
            Ok(inode) if inode.executions > 0 => Err(Errno::ETXTBSY),
            _ => Ok(()),
        }
    }

    /// Checks that no open file description writes a file that is to be executed.
    ///
    /// # Errors
    /// `ETXTBSY`.
    pub fn check_not_written(&self, ino: Ino) -> Result<(), Errno> {
        match self.own(ino) {
            Ok(inode) if inode.writers > 0 => Err(Errno::ETXTBSY),
            _ => Ok(()),
        }
    }

    /// Counts an open file description that writes a file.
    pub fn add_writer(&mut self, ino: Ino) {
        if let Ok(inode) = self.own_mut(ino) {
            inode.writers += 1;
        }
    }

    /// Ends one [`add_writer`](Self::add_writer).
    pub fn remove_writer(&mut self, ino: Ino) {
        if let Ok(inode) = self.own_mut(ino) {
            inode.writers = inode.writers.saturating_sub(1);
        }
    }

    /// Counts a process that executes a file.
    pub fn add_execution(&mut self, ino: Ino) {
        if let (false, Ok(inode)) = (is_volume(ino), self.own_mut(ino)) {
            inode.executions += 1;
        }
    }

    /// Ends one [`add_execution`](Self::add_execution).
    pub fn remove_execution(&mut self, ino: Ino) {
        if let (false, Ok(inode)) = (is_volume(ino), self.own_mut(ino)) {
            inode.executions = inode.executions.saturating_sub(1);
        }
    }
}
