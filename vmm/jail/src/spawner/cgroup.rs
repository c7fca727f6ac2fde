//! Limits for jailed processes with cgroups, version 2 (the kernel's
//! `Documentation/admin-guide/cgroup-v2.rst`).
//!
//! ```text
//! BASE/daemon              spawner, service, and waiting VMMs; absent if BASE is the root
//! BASE/workers/UID         a worker
//! BASE/tenants/NAME        all VMs of a tenant: its weight against other tenants
//! BASE/tenants/NAME/UID    the VMM of one VM: its memory, threads, disk bandwidth
//! ```
//! BASE is the group that the daemon was started in (systemd: `Delegate=yes`). If that group is
//! called `daemon` already (`DelegateSubgroup=daemon`), BASE is its parent: without the subgroup,
//! systemd could not restart the daemon while there are groups below BASE. If it is the root, BASE
//! is `/hartline`. Without the controllers there are no limits except setrlimit(2), and the daemon
//! says so.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Controllers that limits cannot be enforced without.
const NEEDED: [&str; 3] = ["cpu", "memory", "pids"];
/// Controller that is used if it is available.
const IO: &str = "io";
/// Our group below the root group.
const OWN: &str = "hartline";
const DAEMON: &str = "daemon";
const WORKERS: &str = "workers";
const TENANTS: &str = "tenants";
const SWAP: &str = "memory.swap.max";
/// Memory of the VMM besides the guest's, bytes.
const VMM_MEMORY: u64 = 256 << 20;

/// The reason why limits are not enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unenforced {
    /// No cgroup v2 hierarchy is mounted.
    #[error("no cgroup v2 hierarchy is mounted")]
    NoHierarchy,
    /// The hierarchy has not all needed controllers.
    #[error(
        "the cgroup v2 hierarchy has no controllers {0}: they are on v1 hierarchies, or not given to this group"
    )]
    Controllers(String),
    /// A group cannot be used.
    #[error("cgroup {path}: {why}")]
    Host {
        /// The group.
        path: String,
        /// The reason.
        why: String,
    },
}

/// Checks that the hierarchy has the controllers for limits: a daemon that gets them can enforce
/// limits.
/// # Errors
/// [`Unenforced`].
pub fn check_host() -> Result<(), Unenforced> {
    check_controllers(&hierarchy()?).map(drop)
}

/// The mount point of the hierarchy.
fn hierarchy() -> Result<PathBuf, Unenforced> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mount_point(&mounts).ok_or(Unenforced::NoHierarchy)
}

/// The controllers of a group, which must include the needed ones.
fn check_controllers(group: &Path) -> Result<String, Unenforced> {
    let available = fs::read_to_string(group.join("cgroup.controllers"));
    let available = available.map_err(|error| failed(group, &error))?;
    let missing: Vec<_> = NEEDED
        .into_iter()
        .filter(|name| !has(&available, name))
        .collect();
    match missing.is_empty() {
        true => Ok(available),
        false => Err(Unenforced::Controllers(missing.join(", "))),
    }
}

fn has(controllers: &str, name: &str) -> bool {
    controllers.split_whitespace().any(|each| each == name)
}

/// The groups of this daemon.
#[derive(Debug)]
pub struct Cgroups {
    base: PathBuf,
    /// The disk of the data directory, as `MAJOR:MINOR`, and its limit for reading and for writing,
    /// bytes per second; `None` if it is not limited.
    disk: Option<(String, u64)>,
}

/// The group of one process. Dropping this, after the process's end, deletes the group.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Whether the kernel has killed a process of the group because of its memory limit.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.0.join("memory.events")).unwrap_or_default();
        let kills = events
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "));
        kills.is_some_and(|count| count != "0")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        match fs::remove_dir(&self.0) {
            // A machine that outlives the daemon is in it.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => tracing::warn!("cgroup {}: {error}", self.0.display()),
            Ok(()) => {}
        }
    }
}

impl Cgroups {
    /// Makes the groups and moves the daemon into its own. `bandwidth` limits each VM's reading
    /// from, and writing to, the disk of the directory `data`, bytes per second.
    ///
    /// # Errors
    /// [`Unenforced`]; there are no limits then.
    pub fn open(data: &Path, bandwidth: Option<u64>) -> Result<Self, Unenforced> {
        let mount = hierarchy()?;
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own_path(&own).ok_or(Unenforced::NoHierarchy)?;
        let own = delegated(own);
        let start = match own.as_str() {
            "/" => mount.clone(),
            own => mount.join(own.trim_start_matches('/')),
        };
        let available = check_controllers(&start)?;
        let mut controllers = NEEDED.map(|name| format!("+{name}")).join(" ");
        if has(&available, IO) {
            controllers += " +io";
        }
        let base = match own.as_str() {
            "/" => start.join(OWN),
            _ => start.clone(),
        };
        let cgroups = Self {
            disk: disk_of(data).filter(|_| has(&available, IO)).zip(bandwidth),
            base,
        };
        cgroups
            .make(&start, own == "/", &controllers)
            .map_err(|error| failed(&cgroups.base, &error))?;
        Ok(cgroups)
    }

    fn make(&self, start: &Path, is_root: bool, controllers: &str) -> io::Result<()> {
        let enable = |path: &Path| fs::write(path.join("cgroup.subtree_control"), controllers);
        if !is_root {
            // A group that contains processes cannot enable controllers for child groups.
            let own = self.base.join(DAEMON);
            make_group(&own)?;
            fs::write(own.join("cgroup.procs"), std::process::id().to_string())?;
        }
        enable(start)?;
        for group in [
            self.base.clone(),
            self.base.join(WORKERS),
            self.base.join(TENANTS),
        ] {
            make_group(&group)?;
            enable(&group)?;
        }
        for tenant in fs::read_dir(self.base.join(TENANTS))? {
            let tenant = tenant?;
            if tenant.file_type()?.is_dir() {
                remove_empty(&tenant.path())?;
            }
        }
        remove_empty(&self.base.join(WORKERS))
    }

    /// Limits a worker to `memory` bytes and `pids` threads.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn limit_worker(&self, pid: i32, uid: u32, memory: u64, pids: u64) -> io::Result<Group> {
        let path = self.base.join(WORKERS).join(uid.to_string());
        enter(pid, path, &[("memory.max", memory), ("pids.max", pids)])
    }

    /// Limits the VMM of a tenant's VM: its memory to the guest's `memory` bytes and its own, and
    /// the number of its threads. All VMs of the tenant share processor time by the tenant's weight
    /// (1 to 10000).
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn limit_vm(
        &self,
        (pid, uid): (i32, u32),
        (tenant, weight): (&str, u32),
        memory: u64,
        pids: u64,
    ) -> io::Result<Group> {
        let all = self.base.join(TENANTS).join(tenant);
        make_group(&all)?;
        let mut controllers = "+memory +pids".to_owned();
        if self.disk.is_some() {
            controllers += " +io";
        }
        fs::write(all.join("cgroup.subtree_control"), controllers)?;
        set(&all, "cpu.weight", weight.clamp(1, 10_000))?;
        let path = all.join(uid.to_string());
        // The counters of a leftover group include another VMM.
        let _ = fs::remove_dir(&path);
        make_group(&path)?;
        if let Some((disk, most)) = &self.disk {
            set(&path, "io.max", format!("{disk} rbps={most} wbps={most}"))?;
        }
        // The VMM cannot go on if one of its threads is killed.
        set(&path, "memory.oom.group", 1)?;
        let memory = memory.saturating_add(VMM_MEMORY);
        enter(pid, path, &[("memory.max", memory), ("pids.max", pids)])
    }

    /// Takes over the group of a VM that was found again.
    #[must_use]
    pub fn adopt(&self, uid: u32, tenant: &str) -> Option<Group> {
        let path = self.base.join(TENANTS).join(tenant).join(uid.to_string());
        path.is_dir().then_some(Group(path))
    }
}

/// Makes a group with limits and moves a process into it.
fn enter(pid: i32, path: PathBuf, limits: &[(&str, u64)]) -> io::Result<Group> {
    make_group(&path)?;
    let group = Group(path);
    for (name, limit) in limits {
        set(&group.0, name, limit)?;
    }
    forbid_swap(&group.0)?;
    set(&group.0, "cgroup.procs", pid)?;
    Ok(group)
}

/// Disables swap for a group. Swapped-out memory does not count in the memory limit, and would be
/// on the host's disk. The file exists if the kernel can swap (CONFIG_SWAP).
fn forbid_swap(group: &Path) -> io::Result<()> {
    match group.join(SWAP).exists() {
        true => set(group, SWAP, 0),
        false => Ok(()),
    }
}

fn set(group: &Path, name: &str, value: impl ToString) -> io::Result<()> {
    let failed = |error: io::Error| {
        let path = group.join(name);
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    fs::write(group.join(name), value.to_string()).map_err(failed)
}

fn make_group(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Deletes the groups below `path` that have no processes any more: their daemon was killed.
fn remove_empty(path: &Path) -> io::Result<()> {
    for group in fs::read_dir(path)? {
        let group = group?;
        if group.file_type()?.is_dir() {
            // A group with processes cannot be deleted.
            let _ = fs::remove_dir(group.path());
        }
    }
    Ok(())
}

fn failed(path: &Path, error: &io::Error) -> Unenforced {
    Unenforced::Host {
        path: path.display().to_string(),
        why: error.to_string(),
    }
}

/// The mount point of the hierarchy, from proc(5) `mountinfo`.
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let kind = after.split(' ').next()?;
        let point = before.split(' ').nth(4)?;
        (kind == "cgroup2").then(|| point.into())
    })
}

/// This process's group, from cgroups(7) `/proc/PID/cgroup`.
fn own_path(cgroup: &str) -> Option<String> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"));
    path.map(str::to_owned)
}

/// The group that was delegated to the daemon, which is in it or in its subgroup.
fn delegated(own: String) -> String {
    let suffix = format!("/{DAEMON}");
    match own.strip_suffix(&suffix) {
        Some(base) if !base.is_empty() => base.to_owned(),
        _ => own,
    }
}

/// The disk of a directory, as `MAJOR:MINOR`. For a partition this is the whole disk, because only
/// disks can be limited.
fn disk_of(directory: &Path) -> Option<String> {
    let device = fs::metadata(directory).ok()?.dev();
    let number = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    let entry = Path::new("/sys/dev/block").join(number);
    let whole = match entry.join("partition").exists() {
        true => entry.canonicalize().ok()?.parent()?.join("dev"),
        false => entry.join("dev"),
    };
    Some(fs::read_to_string(whole).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says() {
        let mountinfo = "22 1 0:20 / /proc rw - proc proc rw\n\
            34 32 0:29 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        let unified = Path::new("/sys/fs/cgroup/unified");
        assert_eq!(mount_point(mountinfo).as_deref(), Some(unified));
        assert_eq!(mount_point("22 1 0:20 / /proc rw - proc proc rw"), None);
        let cgroup = "4:memory:/a\n0::/system.slice/hartlined.service\n";
        let own = "/system.slice/hartlined.service";
        assert_eq!(own_path(cgroup).as_deref(), Some(own));
        assert_eq!(own_path("4:memory:/a\n"), None);
        assert_eq!(delegated(format!("{own}/daemon")), own);
        assert_eq!(delegated(own.to_owned()), own);
        assert_eq!(delegated("/daemon".to_owned()), "/daemon");
    }

    #[test]
    fn nothing_is_swapped_where_that_can_be_said() {
        let directory = tempfile::tempdir().unwrap();
        let swap = directory.path().join("memory.swap.max");
        forbid_swap(directory.path()).unwrap();
        assert!(!swap.exists(), "cgroupfs has the files that it has");
        fs::write(&swap, "max").unwrap();
        forbid_swap(directory.path()).unwrap();
        assert_eq!(fs::read_to_string(&swap).unwrap(), "0");
    }

    /// The group of a VM, and of a worker, in a directory that has the files of the kernel's.
    #[test]
    fn groups_have_all_limits() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        let cgroups = Cgroups {
            base: base.to_path_buf(),
            disk: Some(("8:0".to_owned(), 1000)),
        };
        let groups = ["tenants/a/7", "workers/8"].map(|group| base.join(group));
        for group in &groups {
            fs::create_dir_all(group).unwrap();
            fs::write(group.join(SWAP), "max").unwrap();
        }
        // The directories are not empty, so the kernel's operation of deleting a group would fail.
        let vm = cgroups.limit_vm((70, 7), ("a", 300), 64 << 20, 512);
        let worker = cgroups.limit_worker(80, 8, 1 << 30, 64);
        let _groups = [vm, worker].map(|group| std::mem::ManuallyDrop::new(group.unwrap()));
        let memory = ((64_u64 + 256) << 20).to_string();
        for (file, expected) in [
            ("tenants/a/cpu.weight", "300"),
            ("tenants/a/cgroup.subtree_control", "+memory +pids +io"),
            ("tenants/a/7/memory.max", memory.as_str()),
            ("tenants/a/7/memory.swap.max", "0"),
            ("tenants/a/7/memory.oom.group", "1"),
            ("tenants/a/7/pids.max", "512"),
            ("tenants/a/7/io.max", "8:0 rbps=1000 wbps=1000"),
            ("tenants/a/7/cgroup.procs", "70"),
            ("workers/8/memory.max", "1073741824"),
            ("workers/8/memory.swap.max", "0"),
            ("workers/8/pids.max", "64"),
            ("workers/8/cgroup.procs", "80"),
        ] {
            let found = fs::read_to_string(base.join(file)).unwrap();
            assert_eq!(found, expected, "{file}");
        }
    }

    #[test]
    fn the_kernel_counts_what_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let events = directory.path().join("memory.events");
        let group = std::mem::ManuallyDrop::new(Group(directory.path().to_path_buf()));
        for (text, expected) in [
            ("low 0\nmax 7\noom 0\noom_kill 0\noom_group_kill 0\n", false),
            ("low 0\nmax 7\noom 1\noom_kill 3\noom_group_kill 1\n", true),
        ] {
            fs::write(&events, text).unwrap();
            assert_eq!(group.is_out_of_memory(), expected, "{text}");
        }
        fs::remove_file(&events).unwrap();
        assert!(!group.is_out_of_memory());
    }
}
