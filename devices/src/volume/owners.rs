//! Owners of files, as the guest sees them.

use hartline_abi::volume::NodeAttributes;

/// Translates owners between host and guest. If the process is not root, its own user and group are
/// those of the guest's program, and the other way round: the program owns what it makes. All other
/// numbers are the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct Owners {
    users: [u32; 2],
    groups: [u32; 2],
}

impl Owners {
    /// The owners for a process and a program, each with its user and group. Root sees owners as they
    /// are, and can set all of them.
    #[must_use]
    pub fn new(process: (u32, u32), program: (u32, u32)) -> Self {
        match process {
            (0, _) => Self::default(),
            _ => Self {
                users: [process.0, program.0],
                groups: [process.1, program.1],
            },
        }
    }

    /// Translates a user and a group, in either direction. Numbers of more than 32 bits are all
    /// `u32::MAX`, which keeps an owner.
    pub(super) fn translate(self, user: u64, group: u64) -> (u32, u32) {
        let number = |id: u64| u32::try_from(id).unwrap_or(u32::MAX);
        let user = exchange(self.users, number(user));
        (user, exchange(self.groups, number(group)))
    }

    /// The attributes for the guest.
    pub(super) fn show(self, host: NodeAttributes) -> NodeAttributes {
        let (uid, gid) = self.translate(host.uid.into(), host.gid.into());
        NodeAttributes { uid, gid, ..host }
    }
}

/// Exchanges the two numbers.
fn exchange([one, other]: [u32; 2], id: u32) -> u32 {
    match id {
        id if id == one => other,
        id if id == other => one,
        id => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_owns_the_files_of_the_process() {
        let owners = Owners::new((70_001, 70_002), (0, 5));
        let attributes = |uid, gid| NodeAttributes {
            uid,
            gid,
            ..NodeAttributes::default()
        };
        let shown = |uid, gid| {
            let NodeAttributes { uid, gid, .. } = owners.show(attributes(uid, gid));
            (uid, gid)
        };
        assert_eq!(shown(70_001, 70_002), (0, 5));
        assert_eq!(shown(0, 5), (70_001, 70_002), "others");
        assert_eq!(shown(70_002, 70_001), (70_002, 70_001));
        assert_eq!(owners.translate(0, 5), (70_001, 70_002));
        let keep = u64::from(u32::MAX);
        assert_eq!(owners.translate(keep, u64::MAX), (u32::MAX, u32::MAX));
        let root = Owners::new((0, 0), (1000, 1000));
        assert_eq!(root.translate(0, 1000), (0, 1000), "as they are");
    }
}
