//! Runs a program in a VMM.

use super::library::{Files, Library};
use super::network::{Interface, Lease};
use super::pool::{Pool, Supply};
use super::process::{Jailed, Launcher, Line};
use super::processors::Claim;
use super::secrets::Opened;
use super::snapshots;
use super::store::{Mount, Program, ProgramState, Spec, TerminalSize};
use super::volumes::{VolumeError, Volumes};
use crate::jailed::protocol::{
    FromVmm, ImageName, LogJob, NextRun, PROGRAM_PATH, RunJob, RunResult, ToVmm, UploadKind,
};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hartline_jail::{Channel, Violation};
use hartline_vmm::platform::memory_file;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Additional time that a VMM may take beyond its program's.
pub const VMM_PATIENCE: Duration = Duration::from_secs(10);

/// The message for a VMM that ended without a result.
#[must_use]
pub fn why_it_died(out_of_memory: bool, violation: Option<Violation>) -> String {
    match (out_of_memory, violation) {
        (_, Some(violation)) => format!("the VMM was ended: {violation}"),
        (true, None) => "the VMM was ended: it used more memory than its limit".to_owned(),
        (false, None) => "the VMM ended without a result: it crashed or was killed".to_owned(),
    }
}

/// Host name of a VM whose spec has none, as the runtime sets it.
const HOST_NAME: &str = "hartline";
/// Kind of the terminals of VMs.
const TERM: &str = "xterm";
/// Most VMMs that are tried one after another.
const TRIES: u32 = 3;
/// Most images that a VMM waits for at once.
const MAX_WANTED: usize = 512;

/// Descriptors that a program, or its VMM, gets.
#[derive(Debug)]
pub struct Outputs {
    /// Standard input.
    pub input: File,
    /// Standard output.
    pub output: File,
    /// Standard error.
    pub error: File,
    /// File for the VMM's [`RunResult`].
    pub result: File,
    /// File for a core dump, if there may be one.
    pub core: Option<File>,
    /// The other end of standard input, if standard input is to stay open.
    pub keep_input: Option<OwnedFd>,
    /// Both ends of the channel for requests of processes in the VM, the VMM's own first, if it takes
    /// any.
    pub requests: Option<[Channel; 2]>,
    /// The TAP interface, if the VM has a network.
    pub tap: Option<File>,
    /// If the outputs are the first files of a [log](crate::log), the rest that the VMM needs for
    /// standard output and standard error.
    pub log: Option<[LogOutput; 2]>,
}

/// The descriptors of an output that is kept in a [log](crate::log), besides its first file.
#[derive(Debug)]
pub struct LogOutput {
    /// Takes the output to the thread that writes the files.
    pub pipe: (PipeReader, PipeWriter),
    /// The files after the first.
    pub files: Vec<File>,
}

impl LogOutput {
    /// The descriptors in the order of [`RunJob`].
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pipe = [self.pipe.0.as_fd(), self.pipe.1.as_fd()];
        pipe.into_iter().chain(self.files.iter().map(AsFd::as_fd))
    }
}

/// The reason why a program cannot be run, as a message for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRunnable {
    /// The program is not packed yet.
    #[error("the program is still being packed: ask again when its state is translating or ready")]
    NotYet,
    /// The program cannot be used.
    #[error("the program cannot be used: {0}")]
    Failed(String),
    /// A root file system needs the path of a program.
    #[error("the upload is a root file system: give the path of a program in it")]
    NoPath,
    /// A single program must not have a path.
    #[error("the upload is one program: it has no paths")]
    Path,
}

/// The job for a VMM, with its descriptors.
#[derive(Debug)]
pub struct Order {
    job: RunJob,
    library: Arc<Library>,
    files: Arc<Files>,
    /// Description and memory of the snapshot that the VM continues.
    snapshot: Option<snapshots::Opened>,
    /// The program's secrets.
    secrets: Option<File>,
}

impl Order {
    /// Makes the order for a spec and its program.
    ///
    /// # Errors
    /// [`NotRunnable`].
    pub async fn new(
        spec: &Spec,
        program: &Program,
        library: &Arc<Library>,
        outlives_daemon: bool,
    ) -> Result<Self, NotRunnable> {
        let path = path_in_tree(spec, program)?;
        let files = library.files(program).await;
        let files = files.map_err(|error| NotRunnable::Failed(error.to_string()))?;
        let name = spec.path.as_ref().unwrap_or(&program.name);
        let arguments = std::iter::once(name).chain(&spec.args).cloned().collect();
        let job = RunJob {
            memory: spec.memory,
            cpus: spec.cpus,
            path,
            arguments,
            environment: environment(spec),
            user: spec.user.unwrap_or_default().ids(),
            directory: spec.workdir.clone().unwrap_or_default(),
            host_name: spec.hostname.clone().unwrap_or_default(),
            read_only: spec.read_only,
            timeout_ms: spec.timeout_ms,
            images: files.images.iter().map(|(inode, _)| *inode).collect(),
            features: library.features().to_owned(),
            interactive: spec.interactive,
            outlives_daemon,
            spawns: false,
            snapshots: false,
            from_snapshot: false,
            snapshot_checked: false,
            repeats: false,
            volumes: Vec::new(),
            network: None,
            processors: Vec::new(),
            log: None,
            terminal: spec.terminal.map(TerminalSize::size),
            streams: false,
            holds: false,
            core_limit: spec.core_limit,
            secrets: None,
        };
        let library = Arc::clone(library);
        Ok(Self {
            job,
            library,
            files,
            snapshot: None,
            secrets: None,
        })
    }

    /// The open files of the program.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Continues a snapshot of a VM of the same program.
    pub fn continue_from(&mut self, snapshot: snapshots::Opened) {
        self.job.from_snapshot = true;
        self.job.snapshot_checked = snapshot.check.is_done();
        self.snapshot = Some(snapshot);
    }

    /// Lets the VMM wait for another run after the program's end, if it can be seen then that the snapshot has not changed:
    /// the VM shows its file. Only a VM with one vCPU can be reset.
    pub fn repeat(&mut self) {
        let snapshot = self.snapshot.as_ref();
        let sees_changes = snapshot.is_some_and(|snapshot| snapshot.check.sees_changes());
        self.job.repeats = sees_changes && self.job.cpus == 1;
    }

    /// Whether the VMM waits for another run.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.job.repeats
    }

    /// Closes the snapshot after a run, so that it may be deleted for its age. Result: what it was; `None`: the program
    /// continued none.
    pub fn close_snapshot(&mut self) -> Option<snapshots::Check> {
        self.snapshot.take().map(|snapshot| snapshot.check)
    }

    /// Sends another run to a VMM that waits for one.
    ///
    /// # Errors
    /// The VMM has ended, or any other I/O error of the host.
    pub async fn send_again(
        &self,
        vmm: &Line,
        outputs: &Outputs,
        (next_timeout_ms, streams): (u64, bool),
    ) -> io::Result<()> {
        let descriptors = [
            outputs.input.as_fd(),
            outputs.output.as_fd(),
            outputs.error.as_fd(),
            outputs.result.as_fd(),
        ];
        let run = ToVmm::Run(NextRun {
            next_timeout_ms,
            streams,
        });
        vmm.send(&serde_json::to_vec(&run)?, &descriptors).await
    }

    /// Whether the outputs are sockets.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.job.streams
    }

    /// Notes the result of the program: if it has gone on from a snapshot, the checksums were right.
    pub fn note(&self, result: &RunResult) {
        if let Some(snapshot) = self.snapshot.as_ref().filter(|_| result.restore_us > 0) {
            snapshot.check.note_right();
        }
    }

    /// Sets the program's time limit, milliseconds.
    pub fn set_time_limit(&mut self, limit_ms: u64) {
        self.job.timeout_ms = Some(limit_ms);
    }

    /// Gives secrets to the program.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn give(&mut self, secrets: &Opened) -> io::Result<()> {
        if !secrets.is_empty() {
            let text = serde_json::to_vec(secrets)?;
            self.job.secrets = Some(text.len() as u64);
            self.secrets = Some(memory_file(c"secrets", &text)?);
        }
        Ok(())
    }

    /// Adds a tenant's volumes. Result: the source of the VMM, which is one that may use them.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub async fn supply<'a>(
        &mut self,
        tenant: &str,
        mounts: &[Mount],
        (pool, launcher, volumes): (&'a Pool, &'a Arc<Launcher>, &Volumes),
    ) -> Result<Supply<'a>, VolumeError> {
        // VMMs of the pool cannot write files that are longer than a log's.
        if mounts.is_empty() && self.job.core_limit.is_none() {
            return Ok(Supply::Pool(pool));
        }
        let attached = volumes.attach(tenant, mounts).await?;
        let (shared, volumes) = attached.into_iter().unzip();
        self.job.volumes = volumes;
        Ok(Supply::Started(launcher, shared))
    }

    /// Keeps the outputs in a [log](crate::log).
    pub fn keep_log(&mut self, log: LogJob) {
        self.job.log = Some(log);
    }

    /// Writes the outputs to sockets, which take any number of bytes.
    pub fn stream(&mut self) {
        self.job.streams = true;
    }

    /// Lets the VMM take requests for processes in the VM, and for snapshots if it can make some.
    pub fn take_requests(&mut self, snapshots: bool) {
        self.job.spawns = true;
        self.job.snapshots = snapshots;
    }

    /// Runs no program: the VM takes requests until it is ended.
    pub fn hold(&mut self) {
        self.job.holds = true;
        self.job.spawns = true;
    }

    /// Keeps the program on its dedicated processors, if it has any.
    pub fn pin(&mut self, claim: &Claim) {
        self.job.processors = claim.processors().to_vec();
    }

    /// Adds a network interface, whose other end is passed with the outputs. Result: the program's
    /// address, which the VMM must [keep](Jailed::keep).
    pub fn connect(&mut self, interface: Interface, outputs: &mut Outputs) -> Arc<Lease> {
        self.job.network = Some(interface.job);
        outputs.tap = Some(interface.tap);
        interface.lease
    }

    /// Sends the order to a VMM that `prepare` has set up, or to another one if that VMM was killed
    /// while it waited.
    ///
    /// # Errors
    /// Errors of `prepare`, and any I/O error of the host.
    pub async fn send_to_any<E: From<io::Error>>(
        &self,
        supply: &Supply<'_>,
        outputs: &Outputs,
        mut prepare: impl FnMut(&mut Jailed) -> Result<(), E>,
    ) -> Result<Jailed, E> {
        let mut left = TRIES;
        loop {
            let mut vmm = supply.take().await?;
            prepare(&mut vmm)?;
            left -= 1;
            match self.send(vmm.line(), outputs).await {
                Ok(()) => return Ok(vmm),
                Err(error) if left > 0 && error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// As [`send_to_any`](Self::send_to_any), and waits until the VMM has [taken](Self::taken) the order: another VMM gets it if this one
    /// was killed before, when it has begun nothing. Result: also whether it has taken the order; `None` if it
    /// did not answer in time.
    ///
    /// # Errors
    /// As `send_to_any`.
    pub async fn begin_in_any<E: From<io::Error>>(
        &self,
        supply: &Supply<'_>,
        outputs: &Outputs,
        mut prepare: impl FnMut(&mut Jailed) -> Result<(), E>,
    ) -> Result<(Jailed, Option<io::Result<()>>), E> {
        let mut left = TRIES;
        loop {
            let vmm = self.send_to_any(supply, outputs, &mut prepare).await?;
            left -= 1;
            let taken = tokio::time::timeout(VMM_PATIENCE, self.taken(vmm.line())).await;
            match taken {
                // Without a report of a violation.
                Ok(Err(error))
                    if left > 0
                        && error.kind() == io::ErrorKind::UnexpectedEof
                        && error.get_ref().is_none() =>
                {
                    tracing::warn!("a VMM has ended before it took its order: another one gets it");
                }
                taken => return Ok((vmm, taken.ok())),
            }
        }
    }

    async fn send(&self, vmm: &Line, outputs: &Outputs) -> io::Result<()> {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![
            outputs.input.as_fd(),
            outputs.output.as_fd(),
            outputs.error.as_fd(),
            outputs.result.as_fd(),
            self.files.tree.as_fd(),
        ];
        let snapshot = self.snapshot.iter().flat_map(|snapshot| &snapshot.files);
        descriptors.extend(snapshot.map(AsFd::as_fd));
        descriptors.extend(outputs.core.iter().map(AsFd::as_fd));
        descriptors.extend(outputs.keep_input.iter().map(AsFd::as_fd));
        descriptors.extend(outputs.tap.iter().map(AsFd::as_fd));
        let logs = outputs.log.iter().flatten();
        descriptors.extend(logs.flat_map(LogOutput::descriptors));
        descriptors.extend(outputs.requests.iter().flatten().map(AsFd::as_fd));
        descriptors.extend(self.secrets.iter().map(AsFd::as_fd));
        descriptors.extend(self.files.images.iter().map(|(_, image)| image.as_fd()));
        let message = serde_json::to_vec(&self.job)?;
        vmm.send(&message, &descriptors).await
    }

    /// Waits until the VMM has taken the order. If the daemon ends before, the VMM may end with it.
    /// If the daemon ends later, a VMM whose order outlives the daemon continues.
    ///
    /// # Errors
    /// `UnexpectedEof`: the VMM ended before it took the order. `InvalidData`: an invalid message.
    pub async fn taken(&self, vmm: &Line) -> io::Result<()> {
        match understood(&vmm.receive().await?.0)? {
            FromVmm::Started => Ok(()),
            FromVmm::Ready | FromVmm::Wants(_) | FromVmm::Ended(_) => {
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }

    /// Sends the images that a VMM requests, until its program has ended. The VMM must have
    /// [taken](Self::taken) the order.
    ///
    /// # Errors
    /// `UnexpectedEof`: the VMM ended without a result. `InvalidData`: an invalid message.
    pub async fn result(&self, vmm: &Line) -> io::Result<RunResult> {
        let ended = |message| match message {
            FromVmm::Ended(result) => Some(*result),
            _ => None,
        };
        self.serve_until(vmm, ended).await
    }

    /// Sends the images that a VMM requests, until it waits for another run.
    ///
    /// # Errors
    /// `UnexpectedEof`: the VMM ended. `InvalidData`: an invalid message.
    pub async fn ready_again(&self, vmm: &Line) -> io::Result<()> {
        let is_ready = |message| matches!(message, FromVmm::Ready).then_some(());
        self.serve_until(vmm, is_ready).await
    }

    /// Sends the images that a VMM requests, until it sends the message that `last` takes.
    async fn serve_until<T>(
        &self,
        vmm: &Line,
        last: impl Fn(FromVmm) -> Option<T>,
    ) -> io::Result<T> {
        let mut wanted = FuturesUnordered::new();
        loop {
            // A request is begun before the next message is read, which may be the end.
            tokio::select! {
                biased;
                Some((name, image)) = wanted.next() => {
                    let message = serde_json::to_vec(&ToVmm::Image(name))?;
                    let image: Option<File> = image;
                    let image = image.as_ref().map(AsFd::as_fd);
                    match vmm.send(&message, image.as_slice()).await {
                        // Its program has ended; what it sent before is still to be received.
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                        sent => sent?,
                    }
                }
                message = vmm.receive() => match understood(&message?.0)? {
                    // An honest VMM requests each image once, and no more than this number.
                    FromVmm::Wants(name) if wanted.len() < MAX_WANTED => {
                        wanted.push(self.image(name));
                    }
                    message => {
                        return last(message).ok_or_else(|| io::ErrorKind::InvalidData.into());
                    }
                },
            }
        }
    }

    async fn image(&self, name: ImageName) -> (ImageName, Option<File>) {
        (name, self.library.image(&self.files, name).await)
    }
}

/// Parses a message of a VMM. Incomplete JSON is invalid too, and not the VMM's end.
fn understood(message: &[u8]) -> io::Result<FromVmm> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    serde_json::from_slice(message).map_err(invalid)
}

/// The environment of a spec's program (`NAME=value`), by name. Without a value of its own, `HOME` is the home of
/// its user, `HOSTNAME` the host name, and `TERM` the kind of its terminal, if it has one.
#[must_use]
pub fn environment(spec: &Spec) -> Vec<String> {
    let is_root = spec.user.unwrap_or_default().ids().0 == 0;
    let home = if is_root { "/root" } else { "/" };
    let host_name = spec.hostname.as_deref().unwrap_or(HOST_NAME);
    let mut all = BTreeMap::from([("HOME", home), ("HOSTNAME", host_name)]);
    all.extend(spec.terminal.map(|_| ("TERM", TERM)));
    all.extend(
        spec.env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    let pairs = all.into_iter();
    pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

/// Checks that a spec fits its program. Result: path of the program in the tree.
///
/// # Errors
/// [`NotRunnable`].
pub fn path_in_tree(spec: &Spec, program: &Program) -> Result<String, NotRunnable> {
    match program.state {
        // A VMM asks for translations that are not there yet.
        ProgramState::Translating | ProgramState::Ready => {}
        ProgramState::Failed => return Err(NotRunnable::Failed(program.message.clone())),
        ProgramState::Packing => return Err(NotRunnable::NotYet),
    }
    match (program.kind, &spec.path) {
        (UploadKind::Elf, None) => Ok(PROGRAM_PATH.to_owned()),
        (UploadKind::Elf, Some(_)) => Err(NotRunnable::Path),
        (UploadKind::Rootfs, None) => Err(NotRunnable::NoPath),
        (UploadKind::Rootfs, Some(path)) => Ok(format!("/{}", path.trim_start_matches('/'))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_a_home_and_a_host_name() {
        let of = |json| environment(&serde_json::from_str(json).unwrap());
        let root = of(r#"{"program": "a", "env": {"A": "1"}}"#);
        assert_eq!(root, ["A=1", "HOME=/root", "HOSTNAME=hartline"]);
        let user = of(r#"{"program": "a", "user": "1000:7", "hostname": "web"}"#);
        assert_eq!(user, ["HOME=/", "HOSTNAME=web"]);
        let own = of(r#"{"program": "a", "env": {"HOME": "/x", "HOSTNAME": ""}}"#);
        assert_eq!(own, ["HOME=/x", "HOSTNAME="]);
    }
}
