//! The files of machines: input, output and result.

use super::{MachineError, Machines};
use crate::exec::{self, Command, Exec};
use crate::execute::{LogOutput, Outputs};
use crate::jailed::protocol::{DebuggerLost, LogJob, RunResult, SUSPENDED};
use crate::log::{self, Reader};
use crate::spawner::Process;
use crate::store::{KeptSnapshot, Machine, MachineState, NetworkKind, Spec};
use crate::violations::reported_in;
use hartline_abi::copy::Request;
use hartline_abi::spawn::Window;
use hartline_jail::{Channel, MAX_MESSAGE, Violation};
use hartline_vmm::live::{Live, write_network_limits};
use hartline_vmm::platform::Counters;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Most bytes of a result, as of a message. A compromised VMM may write as many bytes to it as to a
/// file of its log.
const MAX_RESULT: u64 = MAX_MESSAGE as u64;
/// The reason why the result of a VMM is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoResult {
    /// The VMM has written nothing.
    #[error("no result")]
    Missing,
    /// The VMM holds its guest, whose snapshot is complete, or has ended so.
    #[error("no result: the machine was being suspended")]
    Suspended,
    /// The file is longer than an honest VMM's result.
    #[error("an invalid result: it is longer than {MAX_RESULT} bytes")]
    Long,
    /// The file has something else. (The message does not quote it.)
    #[error("an invalid result: line {}, column {}", .0.line(), .0.column())]
    Invalid(#[from] serde_json::Error),
}

/// Name of the file with standard input.
const INPUT: &str = "stdin";
/// Name of the file with what a suspended program has not read of its standard input: a byte that says
/// whether the input is closed then, and the input.
const UNREAD: &str = "unread";
/// Name of the file with the result.
const RESULT: &str = "result";
/// Names of the files with core dumps: the one that is kept, and the one that the VMM may write.
const CORES: [&str; 2] = ["core", "core.new"];
/// Bytes of the disk that are reserved for a result: a disk that becomes full must not lose it.
const RESULT_ROOM: u64 = 8 << 10;
/// Names of the outputs' first files.
const OUTPUTS: [&str; 2] = ["stdout", "stderr"];
/// Files of a machine besides those of its outputs: its directory, its input, and its result.
const OTHER_FILES: u32 = 3;

/// Most bytes of the outputs and the result, by the limit of a VMM's files, and of a new core dump.
pub(super) fn max_outputs(log: LogJob, spec: &Spec) -> u64 {
    let outputs = u64::from(2 * log.files + 1) * log.size;
    outputs.saturating_add(spec.core_limit.unwrap_or(0))
}

/// Number of inodes of a machine.
#[must_use]
pub fn inodes(log: LogJob, spec: &Spec) -> u64 {
    let cores = spec.core_limit.map_or(0, |_| CORES.len() as u64);
    u64::from(OTHER_FILES + 2 * log.files) + cores
}

/// The error of a request that a VMM has not taken: it may have ended since its state was read.
fn not_taken(error: io::Error) -> MachineError {
    match error.kind() {
        // The machine's state says so soon.
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            MachineError::State(MachineState::Exited)
        }
        _ => error.into(),
    }
}

/// Deletes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Machines {
    /// How machines that start now keep their outputs.
    #[must_use]
    pub fn log_job(&self) -> LogJob {
        let config = self.config.get();
        LogJob {
            files: config.log_max_files,
            size: config.log_max_size,
        }
    }

    /// A reader of one of a machine's outputs, `stdout` or `stderr`; `None`: it has none yet.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn output(&self, id: &str, name: &str) -> io::Result<Option<Reader>> {
        Reader::open(&self.directory.join(id), name)
    }

    /// The path of a machine's file: `stdout` or `stderr`, the first of an output, or `result`.
    #[must_use]
    pub fn file(&self, id: &str, name: &str) -> PathBuf {
        self.directory.join(id).join(name)
    }

    /// Writes the standard input of a new machine. The file is on the disk when this returns.
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

    /// Deletes the outputs of a machine's last start. Readers that have them open are not disturbed.
    pub(super) fn remove_outputs(&self, id: &str) -> io::Result<()> {
        let mut files = self.output_files(id);
        files.try_for_each(|file| remove(&file))
    }

    /// The files that a machine's outputs have, or had: the number of files may have been changed
    /// since the machine was started.
    fn output_files(&self, id: &str) -> impl Iterator<Item = PathBuf> {
        let directory = self.directory.join(id);
        (0..log::MAX_FILES)
            .flat_map(move |index| OUTPUTS.map(|name| log::path(&directory, name, index)))
    }

    /// Makes the files of a machine whose outputs have been removed. The outputs of a suspended machine
    /// are kept.
    pub(super) fn make_files(&self, machine: &Machine, log: LogJob) -> io::Result<Outputs> {
        let directory = self.directory.join(&machine.id);
        fs::create_dir_all(&directory)?;
        let make = |name| File::create(directory.join(name));
        let goes_on = machine.suspended.is_some();
        let output = |name| -> io::Result<(File, LogOutput)> {
            // The VMM reads where the output goes on.
            let make = |index| {
                let mut options = File::options();
                let options = options.read(true).write(true).create(true);
                let path = log::path(&directory, name, index);
                options.truncate(!goes_on).open(path)
            };
            let files = (1..log.files).map(make).collect::<io::Result<_>>()?;
            let pipe = io::pipe()?;
            Ok((make(0)?, LogOutput { pipe, files }))
        };
        let (input, keep_input) = match machine.spec.interactive {
            true => {
                let (input, other) = UnixStream::pair()?;
                if goes_on {
                    self.give_unread(&machine.id, &other)?;
                }
                // A virtual CPU that moves bytes to a terminal must not wait.
                input.set_nonblocking(machine.spec.terminal.is_some())?;
                (File::from(OwnedFd::from(input)), Some(other.into()))
            }
            false => match File::open(directory.join(INPUT)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    (File::open("/dev/null")?, None)
                }
                input => (input?, None),
            },
        };
        let result = make(RESULT)?;
        match fallocate(&result, FallocateFlags::KEEP_SIZE, 0, RESULT_ROOM) {
            // This file system reserves nothing.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        let core = match machine.spec.core_limit {
            Some(_) => {
                remove(&directory.join(CORES[1]))?;
                Some(File::create_new(directory.join(CORES[1]))?)
            }
            None => None,
        };
        let (requests, other) = Channel::pair()?;
        requests.set_nonblocking()?;
        // Requests of a client must not wait for a VMM that does not take them.
        other.set_nonblocking()?;
        let [(output, stdout), (error, stderr)] = [output(OUTPUTS[0])?, output(OUTPUTS[1])?];
        Ok(Outputs {
            input,
            output,
            error,
            result,
            core,
            keep_input,
            requests: Some([requests, other]),
            tap: None,
            log: Some([stdout, stderr]),
        })
    }

    /// Keeps what the program of a machine that is being suspended has not read of its standard input,
    /// whose ends these are, the program's own first. Nobody can write there any more.
    pub(super) fn keep_unread(
        &self,
        id: &str,
        // The process is gone, and this is not closed: so the input has not ended with it.
        [mut input, _other]: [UnixStream; 2],
    ) -> io::Result<()> {
        input.set_nonblocking(true)?;
        let mut unread = vec![0];
        let is_closed = match input.read_to_end(&mut unread) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => return Err(error),
        };
        unread[0] = is_closed.into();
        // What came before is still read; later writers get an error.
        input.shutdown(Shutdown::Read)?;
        input.read_to_end(&mut unread)?;
        let mut file = File::create(self.file(id, UNREAD))?;
        file.write_all(&unread)?;
        file.sync_all()
    }

    /// Writes to the standard input of a machine that goes on what it has not read.
    fn give_unread(&self, id: &str, mut input: &UnixStream) -> io::Result<()> {
        let unread = match fs::read(self.file(id, UNREAD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            unread => unread?,
        };
        let (is_closed, unread) = unread.split_first().unwrap_or((&0, &[]));
        // It was in such a socket.
        input.set_nonblocking(true)?;
        input.write_all(unread)?;
        match is_closed {
            0 => Ok(()),
            _ => input.shutdown(Shutdown::Write),
        }
    }

    /// Deletes the input that a suspended machine has not read.
    pub(super) fn remove_unread(&self, id: &str) -> io::Result<()> {
        remove(&self.file(id, UNREAD))
    }

    /// The other end of the standard input of a running machine. The VMM keeps it open, so that it
    /// outlasts clients and the daemon.
    ///
    /// # Errors
    /// [`MachineError`]: the machine does not run, or is not interactive.
    pub fn input(&self, machine: &Machine) -> Result<UnixStream, MachineError> {
        if !machine.spec.interactive {
            return Err(MachineError::NoInput);
        }
        // A VMM that is starting has no input yet.
        let runs = matches!(machine.state, MachineState::Running | MachineState::Paused);
        let process = match self.lock().get(&machine.id) {
            Some(task) if runs => task.process.clone(),
            _ => None,
        };
        let process = process.ok_or(MachineError::State(machine.state))?;
        let stream = process.process().input()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Starts a process in a running machine.
    ///
    /// # Errors
    /// [`MachineError`]: the machine does not run, or its VMM's version does not support this.
    pub fn exec(&self, machine: &Machine, command: &Command) -> Result<Exec, MachineError> {
        Exec::start(&self.requests(machine)?, command).map_err(not_taken)
    }

    /// Connects a debugger with a running machine.
    ///
    /// # Errors
    /// As [`exec`](Self::exec).
    pub fn debug(&self, machine: &Machine, lost: DebuggerLost) -> Result<Exec, MachineError> {
        Exec::debug(&self.requests(machine)?, lost).map_err(not_taken)
    }

    /// Changes the size of the terminal of a running machine's program.
    ///
    /// # Errors
    /// As [`exec`](Self::exec); also if the program has no terminal.
    pub fn resize(&self, machine: &Machine, window: Window) -> Result<(), MachineError> {
        if machine.spec.terminal.is_none() {
            return Err(MachineError::NoTerminal);
        }
        exec::resize(&self.requests(machine)?, window).map_err(not_taken)
    }

    /// Starts a copy of files of a running machine.
    ///
    /// # Errors
    /// As [`exec`](Self::exec).
    pub fn copy(&self, machine: &Machine, copy: Request<'_>) -> Result<Exec, MachineError> {
        Exec::copy(&self.requests(machine)?, copy).map_err(not_taken)
    }

    /// The channel for requests to the VMM of a running machine.
    fn requests(&self, machine: &Machine) -> Result<Channel, MachineError> {
        let process = match self.lock().get(&machine.id) {
            Some(task) if machine.state == MachineState::Running => task.process.clone(),
            _ => None,
        };
        let process = process.ok_or(MachineError::State(machine.state))?;
        let process = process.process();
        process.requests().map_err(|error| {
            // A process that is ending has no descriptors any more; older kernels say so with EBADF.
            match error.raw_os_error() == Some(libc::ESRCH) || process.has_ended() {
                // The machine's state says so soon.
                true => MachineError::State(MachineState::Exited),
                false => error.into(),
            }
        })
    }

    /// Makes a snapshot of a running machine, which goes on.
    ///
    /// # Errors
    /// [`MachineError`]: the machine does not run, or there is no snapshot.
    pub async fn snapshot(
        &self,
        machine: &Machine,
        name: Option<String>,
    ) -> Result<KeptSnapshot, MachineError> {
        let process = match self.lock().get(&machine.id) {
            Some(task) if machine.state == MachineState::Running => task.process.clone(),
            _ => None,
        };
        let process = process.ok_or(MachineError::State(machine.state))?;
        let begun = Instant::now();
        let made = self.snapshots.make(machine, process.process(), name).await;
        self.metrics.count_snapshot(&made, begun.elapsed());
        Ok(made?)
    }

    /// The counters of a running machine, with the sum of KVM's counters of its vCPUs; `None` if it
    /// does not run yet, or its VMM's version has no counters.
    #[must_use]
    pub fn live(&self, machine: &Machine) -> Option<(Live, Option<Counters>)> {
        let process = Arc::clone(self.lock().get(&machine.id)?.process.as_ref()?);
        let vmm = process.process();
        let live = Live::read(&vmm.counters().ok()?, machine.spec.cpus).ok()?;
        let counters = |&number: &RawFd| vmm.vcpu_counters(number).ok()?.read().ok();
        let each: Vec<_> = live.descriptors.iter().filter_map(counters).collect();
        // A sum over only some vCPUs would be wrong.
        let all = each.len() == machine.spec.cpus as usize;
        Some((live, all.then(|| Counters::sum(each))))
    }

    /// Changes the limits of a running machine's network interface, until the machine ends: bytes
    /// and packets per second in each direction; 0: no limit.
    ///
    /// # Errors
    /// [`MachineError`]: the machine does not run, or has no network interface; or its VMM's
    /// version does not support this.
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

    /// The VMM's result.
    ///
    /// # Errors
    /// [`NoResult`].
    pub(super) fn read_result(&self, id: &str) -> Result<RunResult, NoResult> {
        let missing = |_| NoResult::Missing;
        let file = File::open(self.file(id, RESULT)).map_err(missing)?;
        let mut bytes = Vec::new();
        let read = file.take(MAX_RESULT + 1).read_to_end(&mut bytes);
        read.map_err(missing)?;
        match bytes.len() as u64 {
            _ if bytes == SUSPENDED => Err(NoResult::Suspended),
            // A VMM that has been about to end overwrote its note with spaces.
            _ if bytes.iter().all(|byte| *byte == b' ') => Err(NoResult::Missing),
            0..=MAX_RESULT => Ok(serde_json::from_slice(&bytes)?),
            _ => Err(NoResult::Long),
        }
    }

    /// Keeps the core dump of a machine that has ended, if it has left one, in place of an earlier one.
    pub(super) fn keep_core(&self, id: &str) -> io::Result<()> {
        let [kept, new] = CORES.map(|name| self.file(id, name));
        match fs::metadata(&new) {
            Ok(file) if file.len() > 0 => fs::rename(new, kept),
            Ok(_) => remove(&new),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The core dump that a machine has left; `None`: there is none.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn core(&self, id: &str) -> io::Result<Option<File>> {
        match File::open(self.file(id, CORES[0])) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file.map(Some),
        }
    }

    /// Bytes of the core dumps of a machine, without holes.
    pub(super) fn cores(&self, id: &str) -> u64 {
        let used = |name| fs::metadata(self.file(id, name)).map_or(0, |file| file.blocks() * 512);
        CORES.map(used).iter().sum()
    }

    /// Bytes of the outputs, the core dumps and the result of a machine. The result counts twice,
    /// because the database has it too.
    pub(super) fn outputs(&self, id: &str) -> u64 {
        let length = |path| fs::metadata(path).map_or(0, |file| file.len());
        let outputs = self.output_files(id).map(length);
        let outputs = outputs.fold(self.cores(id), u64::saturating_add);
        let outputs = outputs.saturating_add(length(self.file(id, UNREAD)));
        outputs.saturating_add(length(self.file(id, RESULT)).saturating_mul(2))
    }

    /// The violation of its jail that ended a machine's process, if one did. `reported` is the
    /// report in a message of the process.
    pub(super) fn violation(
        &self,
        id: &str,
        process: &Process,
        reported: Option<Violation>,
    ) -> Option<Violation> {
        let process_name = format!("the VMM of machine {id}");
        let reported = reported.or_else(|| self.reported(id));
        self.launcher
            .violations()
            .find(&process_name, process, reported)
    }

    /// The violation that a machine's process reported in its result file.
    pub(super) fn reported(&self, id: &str) -> Option<Violation> {
        reported_in(&File::open(self.file(id, RESULT)).ok()?)
    }

    pub(super) fn remove_files(&self, id: &str) -> Result<(), MachineError> {
        match fs::remove_dir_all(self.directory.join(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_vmm_that_has_ended_takes_no_requests() {
        let (own, other) = Channel::pair().unwrap();
        drop(own);
        let command = Command {
            arguments: vec!["id".into()],
            environment: Vec::new(),
            user: (0, 0),
            directory: "/".into(),
            terminal: None,
        };
        let window = Window {
            rows: 1,
            columns: 1,
        };
        let started = Exec::start(&other, &command).map(drop);
        for result in [started, exec::resize(&other, window)] {
            let error = not_taken(result.unwrap_err());
            assert!(
                matches!(error, MachineError::State(MachineState::Exited)),
                "{error}"
            );
        }
    }
}
