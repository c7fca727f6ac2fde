//! A pair of queues of a network device: one for packets that come, one for those that go, and
//! the thread that serves both while the guest uses them.

use super::worker::Worker;
use super::{Backend, Begin, Counters};
use crate::limiter::Limiter;
use crate::virtio::worker::Bell;
use crate::virtio::{Guest, Memory};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use virtio_queue::Queue;

/// What all pairs of a device share.
pub(super) struct Common {
    /// Where their rings and buffers are.
    pub memory: Memory,
    pub guest: Arc<dyn Guest>,
    /// Longest time that a thread watches its rings before it sleeps.
    pub polling: Duration,
    /// Of packets that go, and that come.
    pub limiters: [Limiter; 2],
    /// What each thread does first.
    pub begin: Begin,
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common")
            .field("limiters", &self.limiters)
            .finish_non_exhaustive()
    }
}

/// What a pair is doing.
#[derive(Debug)]
enum State {
    /// The device is reset.
    Reset(Box<dyn Backend>),
    /// It has its queues, and does not look at them.
    Stopped(Box<Worker>),
    /// A thread moves packets.
    Runs(JoinHandle<Box<Worker>>),
    /// Its thread panicked, or could not be started. There is no second start.
    Lost,
}

/// A pair of queues.
#[derive(Debug)]
pub(super) struct Pair {
    state: State,
    pub counters: Arc<Counters>,
    pub bell: Arc<Bell>,
}

impl Pair {
    /// # Errors
    /// If the host has no descriptor left.
    pub fn new(backend: Box<dyn Backend>) -> io::Result<Self> {
        Ok(Self {
            state: State::Reset(backend),
            counters: Arc::default(),
            bell: Arc::new(Bell::new()?),
        })
    }

    /// Tells the backend what packets the guest takes.
    ///
    /// # Errors
    /// The host's.
    pub fn set_offloads(&mut self, features: u64) -> io::Result<()> {
        match &mut self.state {
            State::Reset(backend) => backend.set_offloads(features),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Gives it its queues, receiving and sending. Result: whether it has a backend for them.
    pub fn set_queues(&mut self, queues: [Queue; 2], features: u64, common: &Arc<Common>) -> bool {
        match std::mem::replace(&mut self.state, State::Lost) {
            State::Reset(backend) => {
                let (counters, bell) = (Arc::clone(&self.counters), Arc::clone(&self.bell));
                let common = Arc::clone(common);
                let worker = Worker::new(backend, queues, features, common, counters, bell);
                self.state = State::Stopped(Box::new(worker));
                true
            }
            other => {
                self.state = other;
                false
            }
        }
    }

    /// Starts its thread, unless it runs. Result: whether it runs.
    pub fn start(&mut self, common: &Arc<Common>) -> bool {
        let mut worker = match std::mem::replace(&mut self.state, State::Lost) {
            State::Stopped(worker) => worker,
            other => {
                self.state = other;
                return matches!(self.state, State::Runs(_));
            }
        };
        self.bell.stop(false);
        let common = Arc::clone(common);
        let run = move || {
            (common.begin)();
            worker.run();
            worker
        };
        match thread::Builder::new().name("net".into()).spawn(run) {
            Ok(thread) => {
                self.state = State::Runs(thread);
                true
            }
            Err(_) => false,
        }
    }

    /// Ends its thread, if there is one: what that was doing is done or forgotten then.
    pub fn stop(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Lost) {
            State::Runs(thread) => {
                self.bell.stop(true);
                thread.join().map_or(State::Lost, State::Stopped)
            }
            other => other,
        };
    }

    /// Tells the backend of a pair that does not run whether it is about to.
    ///
    /// # Errors
    /// The host's.
    pub fn set_used(&mut self, used: bool) -> io::Result<()> {
        match &mut self.state {
            State::Stopped(worker) => worker.backend().set_used(used),
            State::Runs(_) => Ok(()),
            State::Reset(_) | State::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Stops it and takes its queues away.
    pub fn reset(&mut self) {
        self.stop();
        self.state = match std::mem::replace(&mut self.state, State::Lost) {
            State::Stopped(worker) => State::Reset(worker.into_backend()),
            other => other,
        };
    }
}
