//! Locations (`O_PATH`): descriptors that only name a file.

use crate::file::description::OpenFile;
use crate::file::operations::{File, Mode};
use crate::file::view::View;
use crate::wait::poll::PollTable;
use hartline_linux::poll::POLLNVAL;

/// A location. The flag `O_PATH` of its description makes all other operations fail with `EBADF`.
#[derive(Debug)]
pub struct Path;

impl File for Path {
    fn mode(&self) -> Mode {
        Mode::NO_NOTIFY
    }

    fn poll(&self, _: &View<'_>, _: &OpenFile, _: &mut PollTable) -> u32 {
        POLLNVAL
    }
}
