//! An RX and a TX queue of a network device, and the thread that serves both while they are active.

use super::backend::Backend;
use super::shared::Shared;
use super::stats::Counters;
use super::worker::Worker;
use crate::virtio::kick::Kick;
use std::io;
use std::mem;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use virtio_queue::{Queue, QueueState};

/// The state of a pair of queues.
#[derive(Debug)]
enum State {
    /// The device is reset.
    Reset(Box<dyn Backend>),
    /// The pair has its queues, and no thread serves them.
    Stopped(Box<Worker>),
    /// A thread moves packets.
    Running(JoinHandle<Box<Worker>>),
    /// The thread panicked or could not be started. The pair cannot be started again.
    Lost,
}

/// A pair of an RX and a TX queue.
#[derive(Debug)]
pub(super) struct QueuePair {
    state: State,
    pub counters: Arc<Counters>,
    pub kick: Arc<Kick>,
}

/// The error of a pair whose state does not allow a call.
fn not_connected() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl QueuePair {
    /// A pair that is reset.
    ///
    /// # Errors
    /// The host has no descriptor left.
    pub fn new(backend: Box<dyn Backend>) -> io::Result<Self> {
        Ok(Self {
            state: State::Reset(backend),
            counters: Arc::default(),
            kick: Arc::new(Kick::new()?),
        })
    }

    /// Sets the offloads of the backend by the driver's features.
    ///
    /// # Errors
    /// The host's; `NotConnected` unless the pair is reset.
    pub fn set_offloads(&mut self, features: u64) -> io::Result<()> {
        match &mut self.state {
            State::Reset(backend) => backend.set_offloads(features),
            _ => Err(not_connected()),
        }
    }

    /// Sets the RX and the TX queue.
    ///
    /// # Errors
    /// `NotConnected` unless the pair is reset.
    pub fn set_queues(
        &mut self,
        queues: [Queue; 2],
        features: u64,
        shared: &Arc<Shared>,
    ) -> io::Result<()> {
        match mem::replace(&mut self.state, State::Lost) {
            State::Reset(backend) => {
                let (counters, kick) = (Arc::clone(&self.counters), Arc::clone(&self.kick));
                let shared = Arc::clone(shared);
                let worker = Worker::new(backend, queues, features, shared, counters, kick);
                self.state = State::Stopped(Box::new(worker));
                Ok(())
            }
            other => {
                self.state = other;
                Err(not_connected())
            }
        }
    }

    /// Starts the thread, unless it runs.
    ///
    /// # Errors
    /// `NotConnected` if the pair has no queues or is lost, or the host's.
    pub fn start(&mut self, shared: &Arc<Shared>) -> io::Result<()> {
        let mut worker = match mem::replace(&mut self.state, State::Lost) {
            State::Stopped(worker) => worker,
            other => {
                self.state = other;
                return match self.state {
                    State::Running(_) => Ok(()),
                    _ => Err(not_connected()),
                };
            }
        };
        self.kick.set_stop(false);
        let shared = Arc::clone(shared);
        let run = move || {
            (shared.init_thread)();
            worker.run();
            worker
        };
        let thread = thread::Builder::new().name("net".into()).spawn(run)?;
        self.state = State::Running(thread);
        Ok(())
    }

    /// Ends the thread, if there is one. Packets in progress are sent or dropped then.
    pub fn stop(&mut self) {
        self.state = match mem::replace(&mut self.state, State::Lost) {
            State::Running(thread) => {
                self.kick.set_stop(true);
                thread.join().map_or(State::Lost, State::Stopped)
            }
            other => other,
        };
    }

    /// Attaches the backend of a stopped pair before it starts, or detaches it.
    ///
    /// # Errors
    /// The host's; `NotConnected` if the pair has no queues or is lost.
    pub fn set_active(&mut self, active: bool) -> io::Result<()> {
        match &mut self.state {
            State::Stopped(worker) => worker.backend().set_active(active),
            State::Running(_) => Ok(()),
            State::Reset(_) | State::Lost => Err(not_connected()),
        }
    }

    /// Stops the pair, and delivers what the guest has sent, for at most `limit`.
    pub fn finish(&mut self, limit: Duration) {
        self.stop();
        if let State::Stopped(worker) = &mut self.state {
            worker.backend().finish(limit);
        }
    }

    /// Stops the pair and drops its queues.
    pub fn reset(&mut self) {
        self.stop();
        self.state = match mem::replace(&mut self.state, State::Lost) {
            State::Stopped(worker) => {
                let mut backend = worker.into_backend();
                backend.forget_guest();
                State::Reset(backend)
            }
            other => other,
        };
    }

    /// Stops the pair. Result: its queues, with the positions in their rings; `None`: it has none.
    pub fn stop_queues(&mut self) -> Option<[QueueState; 2]> {
        self.stop();
        match &self.state {
            State::Stopped(worker) => Some(worker.queue_states()),
            _ => None,
        }
    }
}
