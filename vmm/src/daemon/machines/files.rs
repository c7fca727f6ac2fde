//! The files of machines: input, output and result.

use super::{MachineError, Machines};
use crate::daemon::execute::Outputs;
use crate::daemon::store::{Machine, MachineState, NetworkKind};
use crate::daemon::violations::told_in;
use crate::jail::{MAX_MESSAGE, Violation};
use crate::jailed::MAX_OUTPUT;
use crate::jailed::protocol::RunResult;
use crate::live::{Live, write_network_limits};
use crate::platform::Counters;
use crate::spawner::client::Process;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

/// Most bytes of a result, as of a message: a VMM that was taken over may write as many to it as its
/// output may have.
const MAX_RESULT: u64 = MAX_MESSAGE as u64;
/// Name of the file with standard input.
const INPUT: &str = "stdin";
/// Name of the file with the result.
const RESULT: &str = "result";
/// Most bytes that the outputs and the result may take, as the limit of a VMM's files says.
pub(super) const MAX_OUTPUTS: u64 = 3 * MAX_OUTPUT;

impl Machines {
    /// Where a machine's file is: `stdout`, `stderr` or `result`.
    #[must_use]
    pub fn file(&self, id: &str, name: &str) -> PathBuf {
        self.directory.join(id).join(name)
    }

    /// Keeps the standard input of a machine that is to be made, on the disk when this
    /// returns.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn keep_input(&self, id: &str, input: &[u8]) -> io::Result<()> {
        let directory = self.directory.join(id);
        fs::create_dir_all(&directory)?;
        let mut file = File::create(directory.join(INPUT))?;
        file.write_all(input)?;
        file.sync_all()?;
        File::open(&directory)?.sync_all()?;
        File::open(&self.directory)?.sync_all()
    }

    pub(super) fn make_files(&self, machine: &Machine) -> io::Result<Outputs> {
        let directory = self.directory.join(&machine.id);
        fs::create_dir_all(&directory)?;
        let make = |name| File::create(directory.join(name));
        let (input, keep_input) = match machine.spec.interactive {
            true => {
                let (input, other) = UnixStream::pair()?;
                (File::from(OwnedFd::from(input)), Some(other.into()))
            }
            false => match File::open(directory.join(INPUT)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    (File::open("/dev/null")?, None)
                }
                input => (input?, None),
            },
        };
        Ok(Outputs {
            input,
            output: make("stdout")?,
            error: make("stderr")?,
            result: make(RESULT)?,
            keep_input,
            tap: None,
        })
    }

    /// The other end of the standard input of a machine that runs. The VMM keeps it open, so
    /// that it lasts longer than those who attach, and the daemon.
    ///
    /// # Errors
    /// [`MachineError`]: it does not run, or is not interactive.
    pub fn input(&self, machine: &Machine) -> Result<UnixStream, MachineError> {
        if !machine.spec.interactive {
            return Err(MachineError::NoInput);
        }
        let tasks = self.lock();
        let task = tasks.get(&machine.id);
        let Some(process) = task.and_then(|task| task.process.as_ref()) else {
            return Err(MachineError::State(machine.state));
        };
        let stream = process.process().input()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// What a machine that runs has done so far, with KVM's counters of its vCPUs together;
    /// `None` if it does not run yet, or its VMM is of a version that does not tell.
    #[must_use]
    pub fn live(&self, machine: &Machine) -> Option<(Live, Option<Counters>)> {
        let process = Arc::clone(self.lock().get(&machine.id)?.process.as_ref()?);
        let vmm = process.process();
        let live = Live::read(&vmm.counters().ok()?, machine.spec.cpus).ok()?;
        let counters = |&number: &RawFd| vmm.vcpu_counters(number).ok()?.read().ok();
        let each: Vec<_> = live.descriptors.iter().filter_map(counters).collect();
        // The sum of some is none.
        let all = each.len() == machine.spec.cpus as usize;
        Some((live, all.then(|| Counters::sum(each))))
    }

    /// Changes the limits of the network interface of a machine that runs, until it ends: most
    /// bytes and packets per second in each direction; 0: no limit.
    ///
    /// # Errors
    /// [`MachineError`]: it does not run, or has no network interface; or its VMM is of a version
    /// that cannot do this.
    pub fn set_network_limits(
        &self,
        machine: &Machine,
        limits: [u64; 2],
    ) -> Result<(), MachineError> {
        if machine.spec.network == NetworkKind::None {
            return Err(MachineError::NoNetwork);
        }
        let is_there = matches!(machine.state, MachineState::Running | MachineState::Paused);
        let process = match self.lock().get(&machine.id) {
            Some(task) if is_there => task.process.clone(),
            _ => None,
        };
        let process = process.ok_or(MachineError::State(machine.state))?;
        let file = process.process().counters()?;
        Ok(write_network_limits(&file, limits)?)
    }

    /// What the VMM wrote, if it wrote all of it, and not more than a VMM of ours writes.
    pub(super) fn read_result(&self, id: &str) -> Option<RunResult> {
        let file = File::open(self.file(id, RESULT)).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_RESULT + 1).read_to_end(&mut bytes).ok()?;
        match bytes.len() as u64 {
            0..=MAX_RESULT => serde_json::from_slice(&bytes).ok(),
            _ => None,
        }
    }

    /// What the outputs and the result of a machine take, bytes. The database has the result once
    /// more.
    pub(super) fn outputs(&self, id: &str) -> u64 {
        let length = |name| fs::metadata(self.file(id, name)).map_or(0, |file| file.len());
        let [stdout, stderr, result] = ["stdout", "stderr", RESULT].map(length);
        stdout
            .saturating_add(stderr)
            .saturating_add(result.saturating_mul(2))
    }

    /// The system call that its jail does not allow and that ended the process of a machine, if
    /// that was its end. `told` is what the process told in a message.
    pub(super) fn violation(
        &self,
        id: &str,
        process: &Process,
        told: Option<Violation>,
    ) -> Option<Violation> {
        let who = format!("the VMM of machine {id}");
        let told = told.or_else(|| self.told(id));
        self.launcher.violations().find(&who, process, told)
    }

    /// What the process of a machine told of a system call that its jail does not allow.
    pub(super) fn told(&self, id: &str) -> Option<Violation> {
        told_in(&File::open(self.file(id, RESULT)).ok()?)
    }

    pub(super) fn remove_files(&self, id: &str) -> Result<(), MachineError> {
        match fs::remove_dir_all(self.directory.join(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}
