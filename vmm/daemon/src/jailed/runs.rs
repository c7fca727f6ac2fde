//! A jailed VMM that continues one snapshot again and again, for one run of its tenant after another.

use super::JailedError;
use super::images::{FromDaemon, Next};
use super::protocol::{FromVmm, ImageName, NextRun, RunJob, RunResult};
use hartline_jail::{Channel, MAX_OUTPUT, RESULT_FD};
use hartline_tree::TreeImage;
use hartline_vmm::End;
use hartline_vmm::boot::Arguments;
use hartline_vmm::exports::{CallError, Exports, Sandbox, StartError, Streams};
use hartline_vmm::images::ImageSource;
use hartline_vmm::live::LiveCounters;
use hartline_vmm::machine::{self, Blank, Outcome, Settings};
use hartline_vmm::placement::Placement;
use hartline_vmm::report::{FAILURE, Program, TIMED_OUT, judge};
use hartline_vmm::snapshot::Snapshot;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// The longest time until the guest is ready for its first run.
const START: Duration = Duration::from_secs(60);

/// What the VM is made of.
pub struct Machine {
    pub job: RunJob,
    pub tree: Arc<TreeImage>,
    /// Description and memory.
    pub snapshot: [File; 2],
    pub images: Arc<FromDaemon>,
    pub live: Arc<LiveCounters>,
    pub threads: Arc<Placement>,
}

/// A run of the VM.
pub struct Run {
    pub streams: Streams,
    /// The file for the result.
    pub result: File,
    pub timeout: Option<Duration>,
}

impl Run {
    /// The first run, with the descriptors of the job.
    pub fn first(job: &RunJob, streams: [OwnedFd; 3], result: File) -> Self {
        Self {
            streams: streams_of(streams, job.streams),
            result,
            timeout: job.timeout_ms.map(Duration::from_millis),
        }
    }

    /// Another run.
    fn next((run, descriptors): Next) -> Result<Self, JailedError> {
        let [input, output, error, result] =
            <[OwnedFd; 4]>::try_from(descriptors).map_err(|_| JailedError::Descriptor)?;
        let result = File::from(result);
        super::vmm::put(Some(result.try_clone()?.into()), RESULT_FD)?;
        let NextRun {
            next_timeout_ms,
            streams,
        } = run;
        Ok(Self {
            streams: streams_of([input, output, error], streams),
            result,
            timeout: Some(Duration::from_millis(next_timeout_ms)),
        })
    }
}

fn streams_of([input, output, error]: [OwnedFd; 3], are_streams: bool) -> Streams {
    Streams {
        input: Some(input),
        outputs: [output, error],
        output_limit: match are_streams {
            true => u64::MAX,
            false => MAX_OUTPUT,
        },
    }
}

/// Serves runs until the daemon closes the channel, or the VM cannot be reset.
///
/// # Errors
/// [`JailedError`].
pub fn serve(
    blank: Blank,
    machine: Machine,
    (first, next): (Run, Receiver<Next>),
    channel: &Channel,
) -> Result<(), JailedError> {
    let begun = Instant::now();
    let (name, live) = (
        machine.job.arguments.first().cloned().unwrap_or_default(),
        Arc::clone(&machine.live),
    );
    let exports = Exports::of_runs();
    let vm = Sandbox::begin(exports.clone(), move |exports| machine.run(blank, exports));
    let started = vm.and_then(|mut vm| match exports.wait_until_ready(Some(START)) {
        Ok(()) => Ok(vm),
        // The VM's own error says more.
        Err(error) => vm.end().and(Err(error.into())),
    });
    let vm = match started {
        Ok(vm) => vm,
        Err(error) => {
            let message = match error {
                StartError::Machine(error) => error.to_string(),
                error => format!("the snapshot: {error}"),
            };
            return tell(first.result, RunResult::not_run(FAILURE, message), channel);
        }
    };
    let mut restored = begun.elapsed();
    let mut run = first;
    loop {
        let preparation = std::mem::take(&mut restored);
        let (result, given) = measure(vm.exports(), run, (&name, &live), preparation);
        tell(given, result, channel)?;
        if vm.exports().reset().is_err() {
            // The daemon starts another VMM.
            return Ok(());
        }
        channel.send(&serde_json::to_vec(&FromVmm::Ready)?, &[])?;
        let Ok(next) = next.recv() else {
            return Ok(());
        };
        run = Run::next(next)?;
    }
}

/// Reports the end of a run.
fn tell(mut file: File, result: RunResult, channel: &Channel) -> Result<(), JailedError> {
    file.write_all(&serde_json::to_vec(&result)?)?;
    channel.send(&serde_json::to_vec(&FromVmm::Ended(Box::new(result)))?, &[])?;
    Ok(())
}

/// Makes a run, whose program has this name. `preparation` is the time that was needed for it before. Result: also the
/// file for the result.
fn measure(
    exports: &Exports,
    run: Run,
    (name, live): (&str, &LiveCounters),
    preparation: Duration,
) -> (RunResult, File) {
    let before = live.exits(0);
    let asked = Instant::now();
    let begun = exports.begin_run(run.streams);
    let now = Instant::now();
    let restore_us = micros(preparation + (now - asked)).max(1);
    let deadline = run.timeout.and_then(|limit| now.checked_add(limit));
    let end = match begun.and_then(|()| exports.await_end(deadline)) {
        // The limit is the program's. The daemon has one for the output.
        Err(CallError::Late) if exports.is_run_over() => exports.await_end(None),
        end => end,
    };
    let (code, message) = verdict(end, name);
    let result = RunResult {
        boot_us: restore_us,
        restore_us,
        run_us: micros(now.elapsed()),
        exits: live.exits(0).since(&before).into(),
        ..RunResult::not_run(code, message)
    };
    (result, run.result)
}

/// The exit code and the message of a run.
fn verdict(end: Result<End, CallError>, name: &str) -> (u8, String) {
    let program = Program {
        name,
        elf: &[],
        locate: &|_| None,
        stack: &|_, _, _| Vec::new(),
    };
    match end {
        Ok(end) => {
            let verdict = judge(&end, &program);
            (verdict.code, verdict.message)
        }
        Err(CallError::Late) => {
            let message = format!("{name}: ended: its time limit is over");
            (TIMED_OUT, message)
        }
        Err(error) => (FAILURE, error.to_string()),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Machine {
    /// Runs the VM to its end.
    fn run(self, blank: Blank, exports: Exports) -> Result<Outcome, machine::Error> {
        let Self {
            job,
            tree,
            snapshot: [description, memory],
            images,
            live,
            threads,
        } = self;
        let files = (&description, memory, job.snapshot_checked);
        let mut snapshot = Snapshot::of_files(files, Arc::clone(&tree))?;
        snapshot.share_file()?;
        let variant = snapshot.variant();
        let inode = snapshot.inode();
        let arguments = Arguments {
            program: inode,
            path: job.path.into_bytes(),
            user: job.user,
            host_name: job.host_name.into_bytes(),
            read_only: job.read_only,
            ..Arguments::default()
        };
        let settings = Settings {
            live: Some(live),
            ram: snapshot.ram(),
            tree: Some(&tree),
            program_image: images.take(ImageName { inode, variant }),
            images: Some(images as Arc<dyn ImageSource>),
            confine: Some(threads),
            variant,
            exports: Some(exports),
            from: Some(&snapshot),
            ..Settings::new(&arguments)
        };
        blank.run(settings)
    }
}
