//! Jobs of jailed workers, with limits of time.

use super::error::host;
use super::turns::Turn;
use super::{Library, LibraryError};
use crate::jailed::protocol::{FromWorker, WorkerJob};
use crate::process::Jailed;
use crate::violations::reported_by;
use hartline_jail::spawner::protocol::Start;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// Period of the checks of a worker's processor time.
const LOOK: Duration = Duration::from_millis(100);

/// Most workers that try a job, one after another.
const ATTEMPTS: u32 = 3;

/// The time limit of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    /// Time on processors that no other job uses. A job may take longer while others run.
    pub(super) time: Duration,
    /// Number of jobs that run at once.
    pub(super) at_once: u32,
}

impl Limit {
    /// The processor time that a job may use.
    fn processor_time(self) -> Duration {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.time
            .saturating_mul(u32::try_from(processors).unwrap_or(u32::MAX))
    }

    /// The elapsed time that a job may take.
    fn elapsed(self) -> Duration {
        self.time.saturating_mul(self.at_once)
    }
}

/// Measures a worker's processor time with the kernel's counters.
struct Meter {
    worker: Jailed,
    start: Instant,
}

impl Meter {
    fn used(&self) -> Duration {
        // The kernel has no counters of a process that is gone. Assume that it used one processor.
        let used = self.worker.processor_time();
        used.unwrap_or_else(|_| self.start.elapsed())
    }
}

/// The answer of a worker, and the file that came with it.
pub(super) type Answer = (FromWorker, Option<File>);

impl Library {
    /// Makes a worker do a job on a file. If it is killed by something that is not its own fault,
    /// another one tries.
    pub(super) async fn work(
        &self,
        turn: &mut Turn,
        job: (&WorkerJob, &File),
        limit: (&'static str, Limit),
        progress: impl Fn((usize, usize)) + Send + Sync,
    ) -> Result<Answer, LibraryError> {
        for _ in 1..ATTEMPTS {
            match self.attempt(turn, job, limit, &progress).await {
                Err(error @ LibraryError::Killed { .. }) => tracing::warn!("{error}"),
                done => return done,
            }
        }
        self.attempt(turn, job, limit, &progress).await
    }

    async fn attempt(
        &self,
        turn: &mut Turn,
        (job, input): (&WorkerJob, &File),
        (what, limit): (&'static str, Limit),
        progress: &(impl Fn((usize, usize)) + Send + Sync),
    ) -> Result<Answer, LibraryError> {
        let before = turn.used();
        let message = serde_json::to_vec(job).map_err(|error| host(what)(error.into()))?;
        let tenant = turn.tenant().to_owned();
        let worker = self.launcher.start(Start::Worker { tenant }).await;
        let worker = worker.map_err(host(what))?;
        let line = worker.line().clone();
        let meter = Meter {
            worker,
            start: Instant::now(),
        };
        let conversation = async {
            line.send(&message, &[input.as_fd()]).await?;
            loop {
                let (answer, mut descriptors) = line.receive().await?;
                match serde_json::from_slice(&answer)? {
                    FromWorker::Progress { done, total } => progress((done, total)),
                    answer => return io::Result::Ok((answer, descriptors.pop())),
                }
            }
        };
        tokio::pin!(conversation);
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let answer = loop {
            tokio::select! {
                answer = &mut conversation => break Some(answer),
                _ = looks.tick() => {
                    let used = meter.used();
                    turn.note(before + used);
                    let is_late = meter.start.elapsed() > limit.elapsed();
                    if is_late || used > limit.processor_time() {
                        break None;
                    }
                }
            }
        };
        turn.note(before + meter.used());
        // Dropping the meter ends the worker. Messages that it has sent can still be received.
        let time = limit.time;
        match answer {
            None => Err(LibraryError::Time { what, time }),
            Some(Ok((FromWorker::Failed { message }, _))) => Err(LibraryError::Upload(message)),
            Some(Ok((answer, file))) => {
                let file = file.map(File::from);
                // Reading other kinds of files may block for ever.
                let is_file = |file: &File| file.metadata().is_ok_and(|found| found.is_file());
                Ok((answer, file.filter(is_file)))
            }
            Some(Err(_)) if meter.worker.was_killed().await => Err(LibraryError::Killed { what }),
            Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let process_name = format!("a worker ({what})");
                let message = match meter
                    .worker
                    .violation(&process_name, reported_by(&error))
                    .await
                {
                    Some(violation) => format!("{what}: the worker was ended: {violation}"),
                    None => format!("{what}: the worker ended by its limits or a fault"),
                };
                Err(LibraryError::Upload(message))
            }
            Some(Err(error)) => Err(host(what)(error)),
        }
    }
}
