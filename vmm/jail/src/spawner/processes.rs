//! Jailed processes: their users, their limits, and the service's operations on them.

use super::cgroup::{Cgroups, Group};
use super::protocol::{Done, Outcome, Part, ProcessId, Refused, Signal, Start, refused};
use super::volumes::VolumeDirectory;
use crate::{
    COUNTERS_FD, Channel, Child, INPUT_FD, Limits, NETWORK_FD, REQUESTS_FD, Role, mount, spawn,
};
use hartline_vmm::platform::{CoreMember, CoreScheduling};
use rustix::process;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The maximum time that the kernel takes to end a process.
const LAST_BREATH: Duration = Duration::from_secs(5);
/// The highest OOM score (proc_pid_oom_score_adj(5)): if the host runs out of memory, the kernel ends
/// such a process before others.
const OOM_FIRST: &str = "1000";
/// Standard output of a VMM's program.
const OUTPUT_FD: i32 = 1;
/// Number of the descriptor of standard input.
const OWN_INPUT_FD: i32 = 0;

/// An answer, with the descriptors that go with it.
pub(super) type Answer = Result<(Done, Vec<OwnedFd>), Refused>;

/// The common parameters of all processes.
#[derive(Debug)]
pub(super) struct Starter {
    /// This program.
    pub program: File,
    /// `/dev/kvm`.
    pub device: File,
    /// An empty directory, which becomes the root directory of the processes.
    pub root: PathBuf,
    /// The users that processes may have.
    pub uids: Range<u32>,
    /// Limits, if they can be enforced.
    pub cgroups: Option<Cgroups>,
    /// Keeps tenants off each other's cores, if possible.
    pub cores: Option<CoreScheduling>,
    /// The volumes.
    pub volumes: Arc<VolumeDirectory>,
}

impl Starter {
    /// Starts a process with a user.
    fn spawn(&self, start: &Start, uid: u32) -> Result<(Child, Channel), Refused> {
        let volumes = match start {
            Start::VmmWithVolumes(volumes) => volumes.as_slice(),
            Start::VolumeWorker { volume, .. } => std::slice::from_ref(volume),
            Start::Vmm | Start::Worker { .. } => &[],
        };
        let mounts = volumes.iter().map(|volume| {
            let directory = self.volumes.open(&volume.id)?;
            Ok(mount(&directory, uid, volume.read_only)?)
        });
        let mounts = mounts.collect::<Result<Vec<_>, Refused>>()?;
        let role = role_of(start);
        let device = match role {
            Role::Vmm | Role::VmmWithVolumes => Some(self.device.as_fd()),
            Role::Worker | Role::VolumeWorker => None,
        };
        let (program, root) = (&self.program, &self.root);
        Ok(spawn(program, role, root, uid, device, &mounts)?)
    }
}

/// Starts a process. The lock is not held meanwhile, because new namespaces take the kernel a
/// millisecond. The thread must not end before the spawner: the kernel ends the processes that do
/// not outlive the daemon together with the thread that started them (PR_SET_PDEATHSIG(2const)).
pub(super) fn start(all: &Mutex<Processes>, start: &Start) -> Answer {
    let (starter, uid) = {
        let mut all = lock(all);
        (Arc::clone(&all.starter), all.take_user()?)
    };
    let spawned = starter.spawn(start, uid);
    let mut all = lock(all);
    match spawned {
        Ok(spawned) => all.add(start, uid, spawned),
        Err(refused) => {
            all.taken.remove(&uid);
            Err(refused)
        }
    }
}

/// Locks the processes.
pub(super) fn lock(all: &Mutex<Processes>) -> MutexGuard<'_, Processes> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

fn role_of(start: &Start) -> Role {
    match start {
        Start::Vmm => Role::Vmm,
        Start::VmmWithVolumes(_) => Role::VmmWithVolumes,
        Start::Worker { .. } => Role::Worker,
        Start::VolumeWorker { .. } => Role::VolumeWorker,
    }
}

/// All processes.
#[derive(Debug)]
pub(super) struct Processes {
    starter: Arc<Starter>,
    last: ProcessId,
    known: HashMap<ProcessId, Process>,
    /// Users of known processes, and of processes that are about to end.
    taken: BTreeSet<u32>,
}

/// A process with its resources.
#[derive(Debug)]
struct Process {
    child: Child,
    uid: u32,
    /// The process's group. It is named after the user, so it is deleted before the user is reused.
    group: Option<Group>,
    /// The process has its tenant's cookie.
    core: Option<CoreMember>,
    /// Whether the service has forgotten the process.
    is_forgotten: bool,
}

impl Processes {
    /// An empty set of processes.
    pub(super) fn new(starter: Starter) -> Self {
        Self {
            starter: Arc::new(starter),
            last: 0,
            known: HashMap::new(),
            taken: BTreeSet::new(),
        }
    }

    /// Takes a user for a process that is about to be started.
    fn take_user(&mut self) -> Result<u32, Refused> {
        let mut uids = self.starter.uids.clone();
        let uid = uids.find(|uid| !self.taken.contains(uid));
        let uid = uid.ok_or(Refused::NoUser)?;
        self.taken.insert(uid);
        Ok(uid)
    }

    /// Adds a process that was started with a taken user, with its limits.
    fn add(&mut self, start: &Start, uid: u32, (child, channel): (Child, Channel)) -> Answer {
        let process = self.insert(child, uid);
        let limited = self.limit_worker(process, role_of(start));
        let limited = limited.and_then(|()| match start.tenant() {
            Some(tenant) => self.keep_to_cores_of(process, tenant),
            // `limit` does this once the tenant is known.
            None => Ok(()),
        });
        let descriptor = limited.and_then(|()| self.descriptor(process));
        if descriptor.is_err() {
            let child = &self.get(process)?.child;
            child.signal(process::Signal::KILL)?;
            // If the kernel does not end the process, its user stays taken.
            if child.wait(LAST_BREATH) {
                self.remove(process);
            }
        }
        let descriptors = vec![descriptor?, channel.into()];
        let pid = self.get(process)?.child.pid();
        Ok((Done::Process { process, pid }, descriptors))
    }

    /// Workers have limits from the start, VMMs once the tenant is known.
    fn limit_worker(&mut self, process: ProcessId, role: Role) -> Result<(), Refused> {
        let limits = match role {
            Role::Vmm | Role::VmmWithVolumes => return Ok(()),
            Role::Worker | Role::VolumeWorker => Limits::of(role),
        };
        let known = self.known.get_mut(&process);
        let known = known.ok_or(Refused::NoProcess(process))?;
        let (pid, memory) = (known.child.pid(), limits.address_space);
        // Nothing is lost with a worker. The child has not been reaped, so the number is its own.
        fs::write(format!("/proc/{pid}/oom_score_adj"), OOM_FIRST)?;
        let Some(cgroups) = &self.starter.cgroups else {
            return Ok(());
        };
        known.group = Some(cgroups.limit_worker(pid, known.uid, memory, limits.threads)?);
        Ok(())
    }

    /// Keeps a process off the cores of all tenants except `tenant`, if possible.
    fn keep_to_cores_of(&mut self, process: ProcessId, tenant: &str) -> Result<(), Refused> {
        if let (Some(cores), Some(known)) = (&self.starter.cores, self.known.get_mut(&process)) {
            known.core = Some(cores.assign(tenant, known.child.pid())?);
        }
        Ok(())
    }

    /// Adopts a VMM that an earlier spawner started: a process with the given start time, and a
    /// user that only jailed processes have.
    pub(super) fn adopt(&mut self, pid: i32, start: u64, tenant: &str) -> Answer {
        let gone = Ok((Done::Gone, Vec::new()));
        let Some(child) = Child::find(pid)? else {
            return gone;
        };
        if child.start_time().ok() != Some(start) {
            return gone;
        }
        let uids = users_of(pid);
        // The process is still there, so the fields that were read are its own.
        if child.wait(Duration::ZERO) {
            return gone;
        }
        let [uid, others @ ..] = uids.ok_or_else(|| refused("pid", pid, "has no users"))?;
        if others != [uid; 3] || !self.starter.uids.contains(&uid) {
            return Err(refused("pid", pid, "not a jailed process"));
        }
        if self.taken.contains(&uid) {
            return Err(refused("pid", pid, "is known already"));
        }
        let process = self.insert(child, uid);
        if let Some(known) = self.known.get_mut(&process) {
            let cgroups = self.starter.cgroups.as_ref();
            known.group = cgroups.and_then(|cgroups| cgroups.adopt(uid, tenant));
            let core = self.starter.cores.as_ref();
            let core = core.map(|cores| cores.adopt(tenant, pid));
            known.core = core.and_then(|adopted| {
                let failed = |error| tracing::warn!("core scheduling of process {pid}: {error}");
                adopted.map_err(failed).ok()
            });
        }
        let descriptor = self.descriptor(process)?;
        Ok((Done::Process { process, pid }, vec![descriptor]))
    }

    fn insert(&mut self, child: Child, uid: u32) -> ProcessId {
        self.last += 1;
        self.taken.insert(uid);
        let process = Process {
            child,
            uid,
            group: None,
            core: None,
            is_forgotten: false,
        };
        self.known.insert(self.last, process);
        self.last
    }

    fn get(&self, process: ProcessId) -> Result<&Process, Refused> {
        let known = self.known.get(&process);
        let known = known.filter(|known| !known.is_forgotten);
        known.ok_or(Refused::NoProcess(process))
    }

    fn descriptor(&self, process: ProcessId) -> Result<OwnedFd, Refused> {
        let descriptor = self.get(process)?.child.descriptor();
        Ok(descriptor.try_clone_to_owned()?)
    }

    /// Sends a signal.
    pub(super) fn signal(&self, process: ProcessId, signal: Signal) -> Answer {
        let signal = match signal {
            Signal::Terminate => process::Signal::TERM,
            Signal::Kill => process::Signal::KILL,
            Signal::Stop => process::Signal::STOP,
            Signal::Continue => process::Signal::CONT,
        };
        self.get(process)?.child.signal(signal)?;
        Ok((Done::Nothing, Vec::new()))
    }

    /// Limits a VMM to the resources of a tenant's VM, and to the tenant's cores, if possible.
    pub(super) fn limit(
        &mut self,
        process: ProcessId,
        (tenant, weight): (&str, u32),
        memory: u64,
    ) -> Answer {
        self.get(process)?;
        self.keep_to_cores_of(process, tenant)?;
        if let (Some(cgroups), Some(known)) = (&self.starter.cgroups, self.known.get_mut(&process))
        {
            let named = (known.child.pid(), known.uid);
            let group = cgroups.limit_vm(
                named,
                (tenant, weight),
                memory,
                Limits::of(Role::Vmm).threads,
            );
            known.group = Some(group?);
        }
        Ok((Done::Nothing, Vec::new()))
    }

    /// Duplicates a descriptor of a VMM that has the required kind.
    pub(super) fn duplicate(&self, process: ProcessId, part: Part) -> Answer {
        let child = &self.get(process)?.child;
        let duplicate: OwnedFd = match part {
            Part::Input => child.take_socket(INPUT_FD)?.into(),
            Part::OwnInput => child.take_socket(OWN_INPUT_FD)?.into(),
            Part::Requests => child.take_channel(REQUESTS_FD)?.into(),
            Part::Output => child.take_file(OUTPUT_FD)?.into(),
            Part::Counters => child.take_file(COUNTERS_FD)?.into(),
            Part::VcpuCounters(number) => {
                child.take_counters(number)?.as_fd().try_clone_to_owned()?
            }
        };
        Ok((Done::Duplicate, vec![duplicate]))
    }

    /// The TAP interface of a VMM.
    pub(super) fn tap(&self, process: ProcessId) -> Result<File, Refused> {
        Ok(self.get(process)?.child.take_tap(NETWORK_FD)?)
    }

    /// The end of a process.
    pub(super) fn outcome(&self, process: ProcessId) -> Answer {
        let known = self.get(process)?;
        let group = known.group.as_ref();
        let outcome = Outcome {
            out_of_memory: group.is_some_and(Group::is_out_of_memory),
            signal: known.child.ended_by(),
        };
        Ok((Done::Outcome(outcome), Vec::new()))
    }

    /// Ends a process, and forgets it.
    pub(super) fn end(&mut self, process: ProcessId) -> Result<Option<OwnedFd>, Refused> {
        self.get(process)?.child.signal(process::Signal::KILL)?;
        self.forget(process)
    }

    /// Forgets a process. If it has not ended yet, the result is a descriptor that is readable once
    /// it has; then it must be [removed](Self::remove).
    pub(super) fn forget(&mut self, process: ProcessId) -> Result<Option<OwnedFd>, Refused> {
        if self.get(process)?.child.wait(Duration::ZERO) {
            self.remove(process);
            return Ok(None);
        }
        let descriptor = self.descriptor(process)?;
        if let Some(known) = self.known.get_mut(&process) {
            known.is_forgotten = true;
        }
        Ok(Some(descriptor))
    }

    /// Frees the resources of a forgotten process that has ended.
    pub(super) fn remove(&mut self, process: ProcessId) {
        if let Some(mut known) = self.known.remove(&process) {
            known.child.reap();
            (known.group, known.core) = (None, None);
            self.taken.remove(&known.uid);
        }
    }
}

/// The users of a process: real, effective, saved, and file system (proc_pid_status(5)).
fn users_of(pid: i32) -> Option<[u32; 4]> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    parse_users(&status)
}

fn parse_users(status: &str) -> Option<[u32; 4]> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let uids: Option<Vec<u32>> = line
        .split_whitespace()
        .map(|uid| uid.parse().ok())
        .collect();
    uids?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn processes() -> (tempfile::TempDir, Processes) {
        let directory = tempfile::tempdir().unwrap();
        let starter = Starter {
            program: File::open("/proc/self/exe").unwrap(),
            device: File::open("/dev/null").unwrap(),
            root: directory.path().to_path_buf(),
            uids: 0x7100_0001..0x7100_0003,
            cgroups: None,
            cores: None,
            volumes: Arc::new(VolumeDirectory::open_at(directory.path(), 0).unwrap()),
        };
        (directory, Processes::new(starter))
    }

    #[test]
    fn users_are_read() {
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t0\t0\t0\t0\n";
        assert_eq!(parse_users(status), Some([1, 2, 3, 4]));
        assert_eq!(parse_users("Uid:\t1\t2\t3\n"), None);
        assert_eq!(parse_users("Uid:\t1\t2\t3\tx\n"), None);
    }

    #[test]
    fn foreign_processes_are_refused() {
        let (_directory, mut all) = processes();
        let mut sleep = Command::new("sleep");
        let mut other = sleep.arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(other.id()).unwrap();
        let start = Child::find(pid).unwrap().unwrap().start_time().unwrap();
        let refused = all.adopt(pid, start, "a").unwrap_err();
        assert!(
            matches!(&refused, Refused::Value { name, .. } if name == "pid"),
            "{refused}"
        );
        // The number belonged to another process.
        let (done, _) = all.adopt(pid, start + 1, "a").unwrap();
        assert_eq!(done, Done::Gone);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(all.adopt(pid, start, "a").unwrap().0, Done::Gone);
        let unknown = |answer: Answer| matches!(answer, Err(Refused::NoProcess(_)));
        for process in [0, 1, u64::MAX] {
            assert!(unknown(all.signal(process, Signal::Kill)));
            assert!(unknown(all.duplicate(process, Part::Input)));
            assert!(unknown(all.outcome(process)));
            assert!(unknown(all.limit(process, ("a", 1), 1)));
            assert!(all.end(process).is_err() && all.forget(process).is_err());
            assert!(all.tap(process).is_err());
        }
    }
}
