//! Settings of a host that runs machines of several tenants (docs/tuning.md).

use super::advice::Advice;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Controllers that the daemon's limits need (cgroups(7)).
const CONTROLLERS: [&str; 4] = ["cpu", "io", "memory", "pids"];

/// The kernel's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tuning {
    /// Whether processors share cores (simultaneous multithreading); absent if unknown.
    pub smt: Option<bool>,
    /// Whether the kernel merges equal pages of processes that ask for it (KSM).
    pub same_page_merging: bool,
    /// Swap space, bytes.
    pub swap: u64,
    /// The time for which KVM polls before a halted vCPU sleeps, nanoseconds; absent without KVM.
    pub halt_poll_ns: Option<u64>,
    /// Controllers of the unified cgroup hierarchy; empty if there is none.
    pub cgroup_controllers: Vec<String>,
    /// Whether that hierarchy is mounted so that processes change their group quickly;
    /// absent if there is none.
    pub favordynmods: Option<bool>,
}

impl Tuning {
    /// Settings of this host.
    #[must_use]
    pub fn detect() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mounts = read("/proc/self/mounts");
        let unified = unified(&mounts);
        let controllers = unified.map_or(String::new(), |(place, _)| {
            let file = Path::new(place).join("cgroup.controllers");
            fs::read_to_string(file).unwrap_or_default()
        });
        Self {
            smt: match read("/sys/devices/system/cpu/smt/active").trim() {
                "1" => Some(true),
                "0" => Some(false),
                _ => None,
            },
            same_page_merging: read("/sys/kernel/mm/ksm/run").trim() == "1",
            swap: swap(&read("/proc/swaps")),
            halt_poll_ns: read("/sys/module/kvm/parameters/halt_poll_ns")
                .trim()
                .parse()
                .ok(),
            cgroup_controllers: controllers.split_whitespace().map(str::to_owned).collect(),
            favordynmods: unified.map(|(_, options)| is_quick(options)),
        }
    }

    /// Advice for these settings.
    pub(super) fn advise(&self) -> Vec<Advice> {
        let mut advice = Vec::new();
        let has = |name: &&str| self.cgroup_controllers.iter().any(|own| own == name);
        let missing: Vec<_> = CONTROLLERS.into_iter().filter(|name| !has(name)).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            advice.push(Advice::new(
                format!(
                    "hartlined: cgroup version 2 has no {missing}: cgroups cannot limit machines"
                ),
                "boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all",
            ));
        } else if self.favordynmods == Some(false) {
            advice.push(Advice::new(
                "hartlined: cgroups are mounted without favordynmods: each start of a VM waits \
                 milliseconds for an RCU grace period",
                "mount -o remount,favordynmods /sys/fs/cgroup (Linux 6.0 or newer)",
            ));
        }
        if self.smt == Some(true) {
            advice.push(Advice::new(
                "hartlined: machines of different tenants may run on two threads of one core, \
                 which share its caches and buffers",
                "echo off > /sys/devices/system/cpu/smt/control, if tenants do not trust one \
                 another",
            ));
        }
        if self.same_page_merging {
            advice.push(Advice::new(
                "KSM is on: it costs CPU time, and a machine can find out which pages others have",
                "echo 2 > /sys/kernel/mm/ksm/run",
            ));
        }
        if self.swap > 0 {
            advice.push(Advice::new(
                format!(
                    "hartlined: the host has {} MiB of swap: memory of machines may be written \
                     to the disk, and machines wait while it is read back",
                    self.swap >> 20
                ),
                "swapoff -a, and no swap in /etc/fstab; or encrypted swap",
            ));
        }
        advice
    }
}

/// Path and options of the unified cgroup hierarchy in a list of mounts.
fn unified(mounts: &str) -> Option<(&str, &str)> {
    mounts.lines().find_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let [_, place, "cgroup2", options, ..] = words[..] else {
            return None;
        };
        Some((place, options))
    })
}

fn is_quick(options: &str) -> bool {
    options.split(',').any(|option| option == "favordynmods")
}

/// Bytes of all swap spaces in the text of `/proc/swaps`.
fn swap(text: &str) -> u64 {
    let sizes = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    sizes.sum::<u64>() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        let mounts = "proc /proc proc rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid,favordynmods 0 0\n";
        let (place, options) = unified(mounts).unwrap();
        assert_eq!(place, "/sys/fs/cgroup/unified");
        assert!(is_quick(options) && !is_quick("rw,nodev"));
        assert!(unified("proc /proc proc rw 0 0\n").is_none());
        let swaps = "Filename Type Size Used Priority\n/dev/sda2 partition 2048 0 -2\n\
            /swap file 1024 5 -3\n";
        assert_eq!(swap(swaps), 3 << 20);
        assert_eq!(swap(""), 0);
    }
}
