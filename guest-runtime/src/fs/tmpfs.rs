//! File systems in memory that programs mount: their options, and their making.

use super::data::{PAGE, PAGE_COST};
use super::filesystem::{FileSystem, NewInode};
use super::mounts::SuperBlock;
use super::types::device_number;
use crate::credentials::Credentials;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use hartline_linux::errno::Errno;

/// The number before the first minor number of these file systems.
const FIRST_MINOR: u64 = 63;
/// Options that Linux knows and that have no effect here.
const HARMLESS: &[&[u8]] = &[b"nr_inodes", b"huge", b"mpol", b"inode32", b"inode64"];

/// The options of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Most bytes of data, if it is limited.
    pub size: Option<u64>,
    /// Permissions of the root.
    pub mode: u32,
    /// Owner and group of the root.
    pub owner: (Option<u32>, Option<u32>),
}

/// A number with a unit, as `memparse` of the kernel reads it; with `%`, of `whole`.
fn size(text: &[u8], whole: u64) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number: u64 = core::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    let shift = match text[digits..].to_ascii_lowercase().as_slice() {
        b"" => 0,
        b"k" => 10,
        b"m" => 20,
        b"g" => 30,
        b"t" => 40,
        b"%" => return (whole / 100).checked_mul(number),
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

fn number(text: &[u8], radix: u32) -> Option<u32> {
    u32::from_str_radix(core::str::from_utf8(text).ok()?, radix).ok()
}

impl Options {
    /// Reads options, separated by commas. `whole` is the memory of which `size=N%` is a part.
    ///
    /// # Errors
    /// `EINVAL` for an unknown option or a bad value.
    pub fn parse(text: &[u8], whole: u64) -> Result<Self, Errno> {
        let mut options = Self {
            size: None,
            mode: 0o1777,
            owner: (None, None),
        };
        for option in text.split(|&byte| byte == b',') {
            let split = option.iter().position(|&byte| byte == b'=');
            let (name, value) = match split {
                Some(at) => (&option[..at], &option[at + 1..]),
                None => (option, &b""[..]),
            };
            let is_good = match name {
                b"" => split.is_none(),
                b"size" => size(value, whole)
                    .and_then(|size| size.checked_next_multiple_of(PAGE))
                    .map(|size| options.size = Some(size))
                    .is_some(),
                b"nr_blocks" => size(value, whole)
                    .and_then(|blocks| blocks.checked_mul(PAGE))
                    .map(|size| options.size = Some(size))
                    .is_some(),
                b"mode" => number(value, 8)
                    .map(|mode| options.mode = mode & 0o7777)
                    .is_some(),
                b"uid" => number(value, 10)
                    .map(|uid| options.owner.0 = Some(uid))
                    .is_some(),
                b"gid" => number(value, 10)
                    .map(|gid| options.owner.1 = Some(gid))
                    .is_some(),
                _ => HARMLESS.contains(&name),
            };
            if !is_good {
                return Err(Errno::EINVAL);
            }
        }
        // No limit.
        options.size = options.size.filter(|&size| size > 0);
        Ok(options)
    }
}

/// What `size` bytes of data cost.
fn cost(size: u64) -> u64 {
    (size / PAGE).saturating_mul(PAGE_COST)
}

impl FileSystem {
    /// A device number for a file system that a program makes.
    pub(super) fn new_device(&mut self) -> u64 {
        self.made += 1;
        device_number(0, FIRST_MINOR + self.made)
    }

    /// Makes an empty file system.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn make_tmpfs(
        &mut self,
        options: &Options,
        cred: &Credentials,
    ) -> Result<Rc<SuperBlock>, Errno> {
        let device = self.new_device();
        let root = self.add_unnamed(NewInode::directory(options.mode), cred, device)?;
        self.make_root(root)?;
        let inode = self.inode_mut(root)?;
        inode.uid = options.owner.0.unwrap_or(inode.uid);
        inode.gid = options.owner.1.unwrap_or(inode.gid);
        let budget = self.budget.part(options.size.map_or(u64::MAX, cost));
        self.budgets.insert(device, budget);
        Ok(Rc::new(SuperBlock {
            kind: "tmpfs",
            device,
            root,
            read_only: Cell::new(false),
            is_temporary: true,
            options: Box::default(),
            layers: Vec::new(),
        }))
    }

    /// Changes the size of a file system, if the options say so.
    ///
    /// # Errors
    /// `EINVAL` if more is in use.
    pub fn resize_tmpfs(&mut self, device: u64, options: &Options) -> Result<(), Errno> {
        let (Some(size), Some(budget)) = (options.size, self.budgets.get_mut(&device)) else {
            return Ok(());
        };
        budget.resize(cost(size))
    }

    /// Total and free pages of a file system in memory.
    #[must_use]
    pub fn space_of(&self, device: u64) -> [u64; 2] {
        let (budget, page) = match self.budgets.get(&self.filled_device(device)) {
            Some(budget) => (budget, PAGE_COST),
            None => (&self.budget, PAGE),
        };
        [budget.limit(), budget.available()].map(|bytes| bytes / page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_bad_ones_refused() {
        let parse = |text: &str| Options::parse(text.as_bytes(), 1 << 30);
        let none = parse("").unwrap();
        assert_eq!(
            (none.size, none.mode, none.owner),
            (None, 0o1777, (None, None))
        );
        let some = parse("size=10k,mode=700,uid=3,gid=4,nr_inodes=9,inode64").unwrap();
        assert_eq!((some.size, some.mode), (Some(12 << 10), 0o700));
        assert_eq!(some.owner, (Some(3), Some(4)));
        assert_eq!(parse("size=1").unwrap().size, Some(4096));
        assert_eq!(parse("size=0").unwrap().size, None);
        assert_eq!(parse("nr_blocks=2").unwrap().size, Some(8192));
        assert_eq!(
            parse("size=50%").unwrap().size,
            Some((1 << 30) / 100 * 50 / 4096 * 4096 + 4096)
        );
        for bad in [
            "size", "size=", "size=x", "size=1q", "mode=9", "uid=-1", "other", "=1",
        ] {
            assert_eq!(parse(bad), Err(Errno::EINVAL), "{bad}");
        }
        assert_eq!(parse("size=99999999999999t"), Err(Errno::EINVAL));
    }
}
