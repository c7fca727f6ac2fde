//! The virtio-console device: features, configuration space, queues and activation; and the VMM's
//! handle of it.

use super::backend::Output;
use super::control::Controls;
use super::ports::Outputs;
use super::shared::{Queues, Shared, State};
use super::stats::Counters;
use super::worker::Worker;
use crate::virtio::kick::Kick;
use crate::virtio::stats::count;
use crate::virtio::{
    ActivateError, Device, DeviceError, Guest, MAX_QUEUE_SIZE, Memory, ThreadInit, feature_bit,
};
use hartline_abi::console::{
    CONTROL_RECEIVE, CONTROL_TRANSMIT, ConsoleConfig, console_feature, queues, receive_queue,
    transmit_queue,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use virtio_bindings::virtio_config::VIRTIO_F_IN_ORDER;
use virtio_bindings::virtio_ids::VIRTIO_ID_CONSOLE;
use virtio_queue::{Queue, QueueState, QueueT};

const NAME: &str = "virtio-console";
/// Interval at which [`Console::flush`] asks whether to give up.
const GIVE_UP_INTERVAL: Duration = Duration::from_millis(50);

/// The console of one VM, for the VMM.
#[derive(Debug)]
pub struct Console {
    pub(super) shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Console {
    /// A console whose queues and buffers are in `memory` and which writes to these outputs. With a
    /// `limit` other than `u64::MAX`, the outputs are files that keep the newest bytes
    /// ([`super::log`]). The console's thread calls `init_thread` first.
    ///
    /// # Errors
    /// The host has no descriptor or no thread left.
    pub fn new(
        outputs: Outputs,
        limit: u64,
        init_thread: ThreadInit,
        (memory, guest): (Memory, Arc<dyn Guest>),
    ) -> io::Result<Self> {
        let Outputs {
            ports, descriptors, ..
        } = outputs;
        let state = State {
            queues: None,
            resets: 0,
            closed: vec![false; ports.len()],
            next_outputs: None,
            flush_requests: 0,
            flushed: 0,
            stop: false,
            broken: None,
            ended: None,
        };
        let shared = Arc::new(Shared {
            ports,
            memory,
            guest,
            counters: Arc::default(),
            kick: Kick::new()?,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let outputs = descriptors.into_iter();
        let outputs = outputs.map(|fd| Output::new(fd, limit)).collect();
        let worker = Worker::new(Arc::clone(&shared), outputs);
        // The VMM starts the thread before the driver activates the device: a thread of the VMM can
        // confine itself more than a thread that a vCPU thread starts, and is ready by then.
        let thread = thread::Builder::new().name("console".into());
        let thread = thread.spawn(move || {
            init_thread();
            worker.run();
        })?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The device that the driver sees.
    #[must_use]
    pub fn device(&self) -> Box<dyn Device> {
        let ports = self.shared.port_numbers().end.into();
        Box::new(ConsoleDevice {
            config: ConsoleConfig { ports }.to_bytes(),
            shared: Arc::clone(&self.shared),
        })
    }

    /// The counters of the device.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// Whether all bytes that the guest has sent so far are written. Another thread may send more.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let state = self.shared.lock();
        let memory = self.shared.memory.map();
        let is_empty = |queue: &Queue| {
            let available = queue.avail_idx(memory, Ordering::Acquire);
            let states = [queue.next_avail(), queue.next_used()];
            available.is_ok_and(|available| states == [available.0; 2])
        };
        match &state.queues {
            Some(queues) => queues.tx.iter().all(is_empty),
            None => state.broken.is_none(),
        }
    }

    /// Waits until all bytes that the guest has sent so far are written. `give_up` is asked at
    /// intervals whether to stop waiting.
    ///
    /// # Errors
    /// The guest broke a queue.
    pub fn flush(&self, give_up: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        let mut state = self.shared.lock();
        state.flush_requests += 1;
        let request = state.flush_requests;
        self.shared.kick.notify();
        loop {
            if let Some(result) = state.ended {
                return result;
            }
            if let Some(error) = state.broken {
                return Err(error);
            }
            if state.flushed >= request || give_up() {
                return Ok(());
            }
            state = self.shared.wait(state, GIVE_UP_INTERVAL);
        }
    }

    /// Replaces the outputs, by port; `None` discards bytes. The thread uses the new ones, and closes the earlier ones,
    /// when the write that it may be in has returned ([`has_replaced`](Self::has_replaced)). `limit` is as in
    /// [`new`](Self::new).
    pub fn replace_outputs(&self, outputs: [Option<OwnedFd>; 2], limit: u64) {
        let outputs = outputs.into_iter().map(|fd| Output::new(fd, limit));
        let mut outputs: Vec<Output> = outputs.collect();
        outputs.resize_with(self.shared.ports.len(), || Output::new(None, limit));
        let mut state = self.shared.lock();
        state.closed.fill(false);
        let unused = state.next_outputs.replace(outputs);
        drop(state);
        drop(unused);
        self.shared.kick.notify();
    }

    /// Waits until the thread uses the outputs of the last [`replace_outputs`](Self::replace_outputs), for at most
    /// `patience`. Result: whether it does.
    #[must_use]
    pub fn has_replaced(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.shared.lock();
        while state.next_outputs.is_some() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.ended.is_some() {
                return false;
            }
            state = self.shared.wait(state, left);
        }
        true
    }

    /// Lets the thread write the remaining bytes and end, after the guest has stopped. A reset of
    /// the device keeps the queues from now on.
    pub fn stop(&self) {
        self.shared.lock().stop = true;
        self.shared.kick.set_stop(true);
    }

    /// Waits until the thread has ended, for at most `patience` if that is given.
    ///
    /// # Errors
    /// The guest broke a queue.
    pub fn finish(&self, patience: Option<Duration>) -> Result<(), DeviceError> {
        let deadline = patience.map(|p| Instant::now() + p);
        self.stop();
        let mut state = self.shared.lock();
        loop {
            if let Some(result) = state.ended {
                drop(state);
                let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(thread) = thread.take() {
                    // A thread that panicked has ended too.
                    let _ = thread.join();
                }
                return result;
            }
            let left = match deadline {
                None => Duration::from_secs(3600),
                Some(at) => at.saturating_duration_since(Instant::now()),
            };
            if left.is_zero() {
                return Ok(());
            }
            state = self.shared.wait(state, left);
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // `finish` has reported the result to callers that need it.
        self.stop();
    }
}

/// The device behind the transport.
#[derive(Debug)]
struct ConsoleDevice {
    config: [u8; ConsoleConfig::LENGTH],
    shared: Arc<Shared>,
}

impl Device for ConsoleDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device_id(&self) -> u32 {
        VIRTIO_ID_CONSOLE
    }

    fn features(&self) -> u64 {
        console_feature::MULTIPORT | feature_bit(VIRTIO_F_IN_ORDER)
    }

    fn queues(&self) -> usize {
        queues(self.shared.port_numbers().end).into()
    }

    fn is_optional(&self, queue: usize) -> bool {
        let mut ports = self.shared.port_numbers();
        ports.any(|port| usize::from(receive_queue(port)) == queue)
    }

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn activate(&mut self, features: u64, queues: Vec<Queue>) -> Result<(), ActivateError> {
        if features & console_feature::MULTIPORT == 0 {
            return Err(ActivateError::Features {
                device: NAME,
                features,
                missing: console_feature::MULTIPORT,
            });
        }
        let count = queues.len();
        let missing = || ActivateError::QueueCount {
            device: NAME,
            found: count,
            expected: self.queues(),
        };
        let mut queues: Vec<Option<Queue>> = queues.into_iter().map(Some).collect();
        let mut take = |queue: u16| {
            let queue = queues.get_mut(usize::from(queue)).and_then(Option::take);
            queue.ok_or_else(missing)
        };
        let (control_rx, control_tx) = (take(CONTROL_RECEIVE)?, take(CONTROL_TRANSMIT)?);
        let ports = self.shared.port_numbers();
        let tx = ports.map(|port| take(transmit_queue(port)));
        let queues = Queues {
            controls: Controls::new(control_rx, control_tx),
            tx: tx.collect::<Result<_, _>>()?,
        };
        let mut state = self.shared.lock();
        (state.queues, state.broken) = (Some(queues), None);
        drop(state);
        self.shared.kick.notify();
        Ok(())
    }

    fn queue_states(&self) -> Option<Vec<QueueState>> {
        let state = self.shared.lock();
        let queues = state.queues.as_ref()?;
        let [receive, transmit] = queues.controls.queue_states()?;
        // Receive queues, which the device does not use, stay as they are at first.
        let unused = Queue::new(MAX_QUEUE_SIZE).ok()?.state();
        let mut states = vec![unused; self.queues()];
        let mut set = |queue: u16, state| {
            if let Some(place) = states.get_mut(usize::from(queue)) {
                *place = state;
            }
        };
        set(CONTROL_RECEIVE, receive);
        set(CONTROL_TRANSMIT, transmit);
        for (port, queue) in self.shared.port_numbers().zip(&queues.tx) {
            set(transmit_queue(port), queue.state());
        }
        Some(states)
    }

    fn notify(&self, queue: u32) {
        count(&self.shared.counters.kicks, 1);
        if ![CONTROL_RECEIVE, CONTROL_TRANSMIT]
            .map(u32::from)
            .contains(&queue)
        {
            return self.shared.kick.notify();
        }
        let mut state = self.shared.lock();
        if let Err(error) = self.shared.serve_controls(&mut state) {
            (state.queues, state.broken) = (None, Some(error));
            drop(state);
            self.shared.guest.fail(error);
        }
    }

    fn reset(&mut self) {
        // A write may be waiting for its reader, so this does not wait for the thread. The thread
        // sees the number of resets and does not return its chains.
        let mut state = self.shared.lock();
        if !state.stop {
            state.resets += 1;
            state.queues = None;
        }
    }
}
