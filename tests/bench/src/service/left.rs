//! Resources of the host that the daemon uses, to detect leaks.

use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// The resources in use at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Left {
    /// Open descriptors of the daemon.
    descriptors: u64,
    /// Child processes of the daemon: VMMs that wait for a program.
    processes: u64,
    /// Namespaces of these processes, and namespaces that a mount or a descriptor keeps alive.
    namespaces: u64,
    /// Control groups of the host, in all hierarchies.
    cgroups: u64,
    /// TUN and TAP interfaces in this network namespace.
    taps: u64,
    /// Mounts of the daemon's namespace.
    mounts: u64,
    /// Threads of the daemon; their number varies.
    threads: u64,
    /// Resident memory of the daemon, KiB.
    memory_kib: u64,
    /// Memory of the host's kernel that cannot be reclaimed (slabs, stacks, page tables), KiB.
    kernel_kib: u64,
}

/// Growth of the daemon's resident memory that the allocator's caches explain, KiB.
const MEMORY_SLACK_KIB: u64 = 16 << 10;

impl Left {
    /// Counts the resources of a daemon and its host.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn look(pid: u32) -> io::Result<Self> {
        let process = format!("/proc/{pid}");
        let memory = fs::read_to_string("/proc/meminfo")?;
        let children = children(pid);
        // The spawner, and the service, which the spawner starts before all other processes.
        let own = [Some(pid), service(pid)];
        let sum = |of: &dyn Fn(&str) -> u64| -> u64 {
            let own = own.iter().flatten().map(|pid| format!("/proc/{pid}"));
            own.map(|process| of(&process)).sum()
        };
        let resident = |process: &str| {
            let status = fs::read_to_string(format!("{process}/status")).unwrap_or_default();
            field(&status, "VmRSS")
        };
        let held = fs::read_dir(format!("{process}/fd"))?
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .filter(|link| is_namespace(link));
        let mut namespaces: BTreeSet<_> = held.collect();
        for child in &children {
            let links = fs::read_dir(format!("/proc/{child}/ns"))
                .into_iter()
                .flatten();
            namespaces.extend(links.flatten().filter_map(|l| fs::read_link(l.path()).ok()));
        }
        let mounts = fs::read_to_string(format!("{process}/mounts"))?;
        let by_mount = mounts.lines().filter(|line| line.contains(" nsfs "));
        let kernel = ["SUnreclaim", "KernelStack", "PageTables"];
        Ok(Self {
            descriptors: sum(&|process| count(&format!("{process}/fd"))),
            processes: children.len() as u64,
            namespaces: (namespaces.len() + by_mount.count()) as u64,
            cgroups: cgroups(),
            taps: taps(),
            mounts: mounts.lines().count() as u64,
            threads: sum(&|process| count(&format!("{process}/task"))),
            memory_kib: sum(&resident),
            kernel_kib: kernel.into_iter().map(|name| field(&memory, name)).sum(),
        })
    }

    /// Returns the names of the resources that exceed `before`. Threads and the kernel's memory
    /// vary by themselves and do not count.
    pub fn more_than(&self, before: &Self) -> Vec<&'static str> {
        let grown = |name, now: u64, then: u64| (now > then).then_some(name);
        [
            grown("descriptors", self.descriptors, before.descriptors),
            grown("processes", self.processes, before.processes),
            grown("namespaces", self.namespaces, before.namespaces),
            grown("cgroups", self.cgroups, before.cgroups),
            grown("taps", self.taps, before.taps),
            grown("mounts", self.mounts, before.mounts),
            grown(
                "memory",
                self.memory_kib,
                before.memory_kib + MEMORY_SLACK_KIB,
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} processes, {} namespaces, {} cgroups, {} TAPs, {} mounts, \
             {} threads, {} KiB; kernel {} KiB",
            self.descriptors,
            self.processes,
            self.namespaces,
            self.cgroups,
            self.taps,
            self.mounts,
            self.threads,
            self.memory_kib,
            self.kernel_kib
        )
    }
}

/// Returns whether a descriptor's link names a namespace, such as `net:[4026531840]`.
fn is_namespace(link: &Path) -> bool {
    let kind = link.to_str().and_then(|link| link.split_once(":["));
    let kinds = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];
    kind.is_some_and(|(kind, _)| kinds.contains(&kind))
}

/// Returns the daemon's process that serves requests, a child of the spawner.
pub fn service(spawner: u32) -> Option<u32> {
    children(spawner).into_iter().find(|child| {
        let arguments = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        arguments.split(|&byte| byte == 0).nth(1) == Some(b"service")
    })
}

/// Returns the child processes of a process.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let lists = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers = |list: String| -> Vec<u32> {
        let words = list.split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    lists.flat_map(numbers).collect()
}

/// Returns a field of /proc/PID/status or /proc/meminfo, KiB.
fn field(text: &str, name: &str) -> u64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Counts the entries of a directory.
fn count(directory: &str) -> u64 {
    fs::read_dir(directory).map_or(0, |entries| entries.count() as u64)
}

/// Counts the control groups in all mounted hierarchies.
fn cgroups() -> u64 {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        ["cgroup", "cgroup2"].contains(&kind).then_some(place)
    });
    places.map(|place| directories(Path::new(place))).sum()
}

/// Counts a directory and the directories below it.
fn directories(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    1 + below.map(|entry| directories(&entry.path())).sum::<u64>()
}

fn taps() -> u64 {
    let interfaces = fs::read_dir("/sys/class/net").into_iter().flatten();
    let taps = interfaces
        .flatten()
        .filter(|entry| entry.path().join("tun_flags").exists());
    taps.count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_is_named() {
        let before = Left::look(std::process::id()).unwrap();
        assert!(before.descriptors > 0 && before.memory_kib > 0 && before.threads > 0);
        assert!(before.more_than(&before).is_empty());
        let mut after = before.clone();
        after.descriptors += 1;
        after.threads += 9;
        after.memory_kib += MEMORY_SLACK_KIB;
        assert_eq!(after.more_than(&before), ["descriptors"]);
        after.memory_kib += 1;
        assert_eq!(after.more_than(&before), ["descriptors", "memory"]);
    }

    #[test]
    fn namespaces_are_known() {
        assert!(is_namespace(Path::new("net:[4026531840]")));
        for other in ["socket:[1]", "anon_inode:[pidfd]", "/tmp/net:x", "pipe:[2]"] {
            assert!(!is_namespace(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn fields_are_found() {
        let text = "VmPeak:\t   9 kB\nVmRSS:\t   1234 kB\n";
        assert_eq!(field(text, "VmRSS"), 1234);
        assert_eq!(field(text, "Vm"), 0);
    }
}
