//! The tables of mounts in `/proc`: `mounts` and `mountinfo`.

use super::Vfs;
use crate::fs::mounts::{Mount, Mounts};
use crate::fs::process::Process;
use crate::fs::types::{Ino, MountId, major, minor};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use hartline_linux::mount::{
    MS_NOATIME, MS_NODEV, MS_NODIRATIME, MS_NOEXEC, MS_NOSUID, MS_NOSYMFOLLOW, MS_RDONLY,
    MS_STRICTATIME,
};

/// The options of flags, in the order in which Linux shows them.
const OPTIONS: [(u64, &str); 6] = [
    (MS_NOSUID, ",nosuid"),
    (MS_NODEV, ",nodev"),
    (MS_NOEXEC, ",noexec"),
    (MS_NOATIME, ",noatime"),
    (MS_NODIRATIME, ",nodiratime"),
    (MS_NOSYMFOLLOW, ",nosymfollow"),
];

/// The number of a mount as programs see it. Number 1 is outside the tree: the parent of the root.
#[must_use]
pub fn shown_id(id: MountId) -> u32 {
    20 + u32::from(id.0)
}

/// Text with the characters that separate fields as octal numbers, and `also` that one.
fn escape(text: &[u8], also: Option<char>) -> String {
    let mut out = String::new();
    for part in text.utf8_chunks() {
        for character in part.valid().chars() {
            // Writing to a string does not fail.
            let _ = match character {
                ' ' | '\t' | '\n' | '\\' => write!(out, "\\{:03o}", character as u32),
                other if also == Some(other) => write!(out, "\\{:03o}", other as u32),
                other => write!(out, "{other}"),
            };
        }
        if !part.invalid().is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
    out
}

fn options(mount: &Mount, read_only: bool) -> String {
    let mut text = String::from(if read_only { "ro" } else { "rw" });
    let set = OPTIONS.iter().filter(|(flag, _)| mount.flags & flag != 0);
    text.extend(set.map(|&(_, option)| option));
    if mount.flags & (MS_NOATIME | MS_STRICTATIME) == 0 {
        text.push_str(",relatime");
    }
    text
}

/// The path of a mount's root in its own file system.
fn path_inside(vfs: &Vfs, mount: &Mount, process: &Process) -> String {
    let whole = mount.super_block.root.at(mount.root);
    let mut names = Vec::new();
    let mut at = mount.root;
    while at != whole {
        match vfs.fs.name_above(at, process) {
            Some((name, above)) => {
                names.push(name);
                at = above;
            }
            None => return String::from("/"),
        }
    }
    let mut path = String::new();
    for name in names.iter().rev() {
        path.push('/');
        path.push_str(&escape(name, None));
    }
    if path.is_empty() {
        String::from("/")
    } else {
        path
    }
}

/// Writes the mounts that `process` can reach; with `info`, in the format of `mountinfo`.
pub(super) fn write(out: &mut String, vfs: &Vfs, process: &Process, info: bool) {
    let mounts: &Mounts = vfs.fs.mounts();
    let mut rows: Vec<(MountId, &Mount)> = mounts.iter().collect();
    // The root comes first.
    rows.sort_by_key(|&(id, _)| (id != mounts.top(), id));
    for (id, mount) in rows {
        if mount.point.is_none() && id != mounts.top() {
            continue;
        }
        let Some(location) = vfs.fs.path(mount.root, process.root, process) else {
            continue;
        };
        let parent = mount.point.map_or(1, |Ino(_, parent)| shown_id(parent));
        let super_block = &mount.super_block;
        let (point, kind, source) = (
            escape(&location, None),
            super_block.kind,
            escape(&mount.source, Some('#')),
        );
        let how = options(mount, mount.is_read_only());
        let whole = if super_block.read_only.get() {
            "ro"
        } else {
            "rw"
        };
        let mut more = String::new();
        if !super_block.options.is_empty() {
            more.push(',');
            more.push_str(&escape(&super_block.options, None));
        }
        // Writing to a string does not fail.
        let _ = match info {
            true => writeln!(
                out,
                "{} {parent} {}:{} {} {point} {} - {kind} {source} {whole}{more}",
                shown_id(id),
                major(super_block.device),
                minor(super_block.device),
                path_inside(vfs, mount, process),
                options(mount, mount.flags & MS_RDONLY != 0),
            ),
            false => writeln!(out, "{source} {point} {kind} {how}{more} 0 0"),
        };
    }
}
