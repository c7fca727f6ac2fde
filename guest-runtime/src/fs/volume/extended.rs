//! Extended attributes of files of volumes, which are stored with the host's files.

use super::super::filesystem::FileSystem;
use super::super::types::Ino;
use super::super::xattr::When;
use alloc::vec;
use alloc::vec::Vec;
use hartline_abi::volume::{Operation, SET_CREATE, SET_REPLACE};
use hartline_linux::errno::Errno;
use hartline_linux::limits::XATTR_SIZE_MAX;

impl FileSystem {
    pub(in crate::fs) fn volume_set_extended(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        when: When,
    ) -> Result<(), Errno> {
        let flags = match when {
            When::Always => 0,
            When::Missing => SET_CREATE,
            When::Present => SET_REPLACE,
            When::Never => SET_CREATE | SET_REPLACE,
        };
        let lengths = [name.len() as u64, value.len() as u64];
        let args = [self.node(ino)?, lengths[0], lengths[1], flags, 0, 0];
        self.ask(
            Operation::SetExtended,
            args,
            &[name.into(), value.into()],
            &mut [],
        )
        .map(|_| ())
    }

    pub(in crate::fs) fn volume_extended(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.extended_data(Operation::GetExtended, ino, name)
    }

    pub(in crate::fs) fn volume_remove_extended(
        &mut self,
        ino: Ino,
        name: &[u8],
    ) -> Result<(), Errno> {
        let args = [self.node(ino)?, name.len() as u64, 0, 0, 0, 0];
        self.ask(Operation::RemoveExtended, args, &[name.into()], &mut [])
            .map(|_| ())
    }

    /// The names, each with its NUL.
    pub(in crate::fs) fn volume_extended_names(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        self.extended_data(Operation::ListExtended, ino, b"")
    }

    fn extended_data(&self, what: Operation, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let args = [self.node(ino)?, name.len() as u64, 0, 0, 0, 0];
        let mut data = vec![0; XATTR_SIZE_MAX];
        let answer = self.ask(what, args, &[name.into()], &mut data)?;
        data.truncate(usize::try_from(answer.result).unwrap_or(0));
        Ok(data)
    }
}
