//! The console (virtio 1.3, section 5.3): ports for what the program writes to standard output
//! and standard error, and for traces, and one thread that writes it to descriptors of the host.
//!
//! The device only takes: standard input is read by the library OS with host calls, when a
//! program wants it and no further, since what is not read is the host's next reader's. So no
//! port ever has anything for the driver, and a driver may leave their receive queues out.

mod control;
mod output;
mod ports;
mod stats;
#[cfg(test)]
mod tests;

pub use ports::Outputs;
pub use stats::{Counters, Statistics};

use crate::virtio::stats::count;
use crate::virtio::worker::{self, Bell, Work};
use crate::virtio::{
    Begin, Device, DeviceError, Direction, Guest, MAX_BUFFERS, Memory, give_back, interrupt_for,
    next_chain, want_doorbell,
};
use control::Controls;
use hartline_abi::console::{
    CONTROL_RECEIVE, CONTROL_TRANSMIT, ConsoleConfig, console_feature, queues, receive_queue,
    transmit_queue,
};
use hartline_abi::virtio::{device, feature};
use output::Output;
use ports::Port;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use virtio_queue::Queue;

/// Longest time for which the thread watches the queues before it sleeps.
const POLLING: Duration = Duration::from_micros(200);
/// Buffers of a chain are written together with those of others while there are no more.
const BATCH: usize = MAX_BUFFERS;
/// Longest chain, bytes. With it, what is still to be written when a VM ends has a limit.
const MAX_LENGTH: usize = 1 << 20;

/// The console of one VM: its thread, and what the VMM wants of it.
#[derive(Debug)]
pub struct Console {
    common: Arc<Common>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread, the vCPUs' and the VMM share.
#[derive(Debug)]
struct Common {
    ports: Vec<Port>,
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    bell: Bell,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// None while it is reset, or has stopped.
    queues: Option<Queues>,
    /// Counts resets: what was taken before one is not given back after it.
    resets: u64,
    /// Ports whose host's end takes no more.
    closed: Vec<bool>,
    /// All that was sent when this was last counted up is to be written and `flushed` set to
    /// the same number.
    flush_requests: u64,
    flushed: u64,
    /// The VM has ended: the thread is to write what is left, and end.
    stop: bool,
    ended: Option<Result<(), DeviceError>>,
}

#[derive(Debug)]
struct Queues {
    controls: Controls,
    /// By port.
    transmit: Vec<Queue>,
}

impl Console {
    /// A console whose queues and buffers are in `memory`, which writes to these outputs, to
    /// each `limit` bytes at most; one that got so many takes nothing more. Its thread calls
    /// `begin` first.
    ///
    /// # Errors
    /// The host has no descriptor left, or no thread.
    pub fn new(
        outputs: Outputs,
        limit: u64,
        begin: Begin,
        (memory, guest): (Memory, Arc<dyn Guest>),
    ) -> io::Result<Self> {
        let Outputs {
            ports, descriptors, ..
        } = outputs;
        let state = State {
            queues: None,
            resets: 0,
            closed: vec![false; ports.len()],
            flush_requests: 0,
            flushed: 0,
            stop: false,
            ended: None,
        };
        let common = Arc::new(Common {
            ports,
            memory,
            guest,
            counters: Arc::default(),
            bell: Bell::new()?,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let outputs = descriptors.into_iter();
        let worker = Worker {
            common: Arc::clone(&common),
            outputs: outputs.map(|fd| Output::new(fd, limit)).collect(),
        };
        // Not when the driver starts the device: this is a thread of the VMM, which may do
        // less than one that a vCPU's has started, and is ready by then.
        let thread = thread::Builder::new().name("console".into());
        let thread = thread.spawn(move || {
            begin();
            worker.run();
        })?;
        Ok(Self {
            common,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// What the driver sees of it.
    #[must_use]
    pub fn device(&self) -> Box<dyn Device> {
        let ports = self.common.ports.len() as u32;
        Box::new(Registers {
            config: ConsoleConfig { ports }.to_bytes(),
            common: Arc::clone(&self.common),
        })
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.common.counters)
    }

    /// Waits until all that the guest has sent so far is written. `give_up` is asked now and
    /// then whether to go on waiting.
    ///
    /// # Errors
    /// The guest has broken a queue.
    pub fn flush(&self, give_up: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        let mut state = self.common.lock();
        state.flush_requests += 1;
        let mine = state.flush_requests;
        self.common.bell.ring();
        loop {
            if let Some(result) = state.ended {
                return result;
            }
            if state.flushed >= mine || give_up() {
                return Ok(());
            }
            state = self.common.wait(state, Duration::from_millis(50));
        }
    }

    /// The guest no longer runs: lets the thread write what is left and end. The queues stay
    /// when the device is reset now.
    pub fn stop(&self) {
        self.common.lock().stop = true;
        self.common.bell.stop(true);
    }

    /// Waits until the thread has ended, for at most `patience` (`None`: as long as it takes).
    ///
    /// # Errors
    /// The guest has broken a queue.
    pub fn finish(&self, patience: Option<Duration>) -> Result<(), DeviceError> {
        let deadline = patience.map(|p| Instant::now() + p);
        self.stop();
        let mut state = self.common.lock();
        loop {
            if let Some(result) = state.ended {
                drop(state);
                let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(thread) = thread.take() {
                    // One that panicked has ended too.
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
            state = self.common.wait(state, left);
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // Who wants to know whether all was written has called `finish`.
        self.stop();
    }
}

impl Common {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        let result = self.changed.wait_timeout(state, time);
        result.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Serves the control queues.
    fn serve_controls(&self, state: &mut State) -> Result<(), DeviceError> {
        let Some(queues) = &mut state.queues else {
            return Ok(());
        };
        let ports = (&self.ports[..], &state.closed[..]);
        let interrupts = queues.controls.serve(&self.memory, &*self.guest, ports)?;
        count(&self.counters.interrupts, interrupts);
        Ok(())
    }
}

/// The device behind its registers.
#[derive(Debug)]
struct Registers {
    config: [u8; ConsoleConfig::LENGTH],
    common: Arc<Common>,
}

impl Device for Registers {
    fn kind(&self) -> u32 {
        device::CONSOLE
    }

    fn features(&self) -> u64 {
        console_feature::MULTIPORT | feature::IN_ORDER
    }

    fn queues(&self) -> usize {
        // Few ports.
        queues(self.common.ports.len() as u16).into()
    }

    fn may_lack(&self, queue: usize) -> bool {
        let mut ports = 0..self.common.ports.len() as u16;
        ports.any(|port| usize::from(receive_queue(port)) == queue)
    }

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn activate(&mut self, features: u64, queues: Vec<Queue>) -> bool {
        if features & console_feature::MULTIPORT == 0 {
            return false;
        }
        let mut queues: Vec<Option<Queue>> = queues.into_iter().map(Some).collect();
        let mut take = |queue: u16| queues.get_mut(usize::from(queue)).and_then(Option::take);
        let (Some(receive), Some(transmit)) = (take(CONTROL_RECEIVE), take(CONTROL_TRANSMIT))
        else {
            return false;
        };
        let ports = 0..self.common.ports.len() as u16;
        let Some(ports) = ports.map(|port| take(transmit_queue(port))).collect() else {
            return false;
        };
        self.common.lock().queues = Some(Queues {
            controls: Controls::new(receive, transmit),
            transmit: ports,
        });
        self.common.bell.ring();
        true
    }

    fn notify(&self, queue: u32) {
        count(&self.common.counters.doorbells, 1);
        if ![CONTROL_RECEIVE, CONTROL_TRANSMIT]
            .map(u32::from)
            .contains(&queue)
        {
            return self.common.bell.ring();
        }
        let mut state = self.common.lock();
        if let Err(error) = self.common.serve_controls(&mut state) {
            state.queues = None;
            drop(state);
            self.common.guest.fail(error);
        }
    }

    fn reset(&mut self) {
        // A write may be waiting for its reader, so the thread is not waited for: it sees that
        // it has to give nothing back.
        let mut state = self.common.lock();
        if !state.stop {
            state.resets += 1;
            state.queues = None;
        }
    }
}

struct Worker {
    common: Arc<Common>,
    /// By port.
    outputs: Vec<Output>,
}

/// Chains that were taken from a queue.
#[derive(Default)]
struct Batch {
    heads: Vec<u16>,
    buffers: Vec<libc::iovec>,
    length: usize,
}

impl Batch {
    /// The next chains of a queue, as many as are written at a time.
    fn take(queue: &mut Queue, memory: &Memory) -> Result<Self, DeviceError> {
        let mut batch = Self::default();
        while batch.buffers.len() < BATCH
            && batch.heads.len() < BATCH
            && let Some(chain) = next_chain(queue, memory, Direction::Read)?
        {
            if chain.length > MAX_LENGTH {
                return Err(DeviceError::Buffer);
            }
            batch.heads.push(chain.head);
            batch.buffers.extend(chain.buffers);
            batch.length += chain.length;
        }
        Ok(batch)
    }
}

impl Worker {
    /// Writes what the guest sends until the VM has ended, or the guest breaks a queue.
    fn run(mut self) {
        let common = Arc::clone(&self.common);
        let _ending = Ending(&common);
        let result = worker::run(&mut self, &common.bell, POLLING).and_then(|()| self.drain());
        common.lock().ended = Some(result);
        if let Err(error) = result {
            common.lock().queues = None;
            common.guest.fail(error);
        }
    }

    /// Writes what is left.
    fn drain(&mut self) -> Result<(), DeviceError> {
        while self.turn()? {}
        Ok(())
    }

    /// Writes some of what was sent through a port. Result: whether there was anything.
    fn write_some(&mut self, port: usize) -> Result<bool, DeviceError> {
        let Common {
            memory,
            counters,
            guest,
            ..
        } = &*self.common;
        let (mut batch, resets) = {
            let mut state = self.common.lock();
            let resets = state.resets;
            let Some(queues) = &mut state.queues else {
                return Ok(false);
            };
            (Batch::take(&mut queues.transmit[port], memory)?, resets)
        };
        if batch.heads.is_empty() {
            return Ok(false);
        }
        // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`; fewer than
        // BATCH, and those of the last chain.
        let is_open = unsafe { self.outputs[port].write(&mut batch.buffers) };
        count(&counters.sent_buffers, batch.heads.len() as u64);
        count(&counters.sent_bytes, batch.length as u64);
        let mut state = self.common.lock();
        let was_open = !std::mem::replace(&mut state.closed[port], !is_open);
        let is_current = state.resets == resets;
        let Some(queues) = state.queues.as_mut().filter(|_| is_current) else {
            return Ok(true);
        };
        if was_open && !is_open {
            // Before its buffers come back, so that the guest cannot miss it.
            queues.controls.close(port as u32);
            self.common.serve_controls(&mut state)?;
        }
        let Some(queues) = &mut state.queues else {
            return Ok(true);
        };
        let queue = &mut queues.transmit[port];
        for head in batch.heads {
            give_back(queue, memory, head, 0)?;
        }
        if interrupt_for(queue, memory, &**guest)? {
            count(&counters.interrupts, 1);
        }
        Ok(true)
    }

    /// All that was sent before so many requests is written.
    fn flushed(&self, requests: u64) {
        let mut state = self.common.lock();
        if state.flushed != requests {
            state.flushed = requests;
            self.common.changed.notify_all();
        }
    }
}

impl Work for Worker {
    fn guest(&self) -> &dyn Guest {
        &*self.common.guest
    }

    fn turn(&mut self) -> Result<bool, DeviceError> {
        // Requests that came before the queues are looked at are fulfilled when they are empty.
        let requests = self.common.lock().flush_requests;
        let mut any = false;
        for port in 0..self.outputs.len() {
            any |= self.write_some(port)?;
        }
        if !any {
            self.flushed(requests);
        }
        Ok(any)
    }

    fn watches(&self) {
        count(&self.common.counters.polls, 1);
    }

    fn sleep(&mut self) -> Result<(), DeviceError> {
        let mut state = self.common.lock();
        for queue in state
            .queues
            .iter_mut()
            .flat_map(|queues| &mut queues.transmit)
        {
            if want_doorbell(queue, &self.common.memory)? {
                return Ok(());
            }
        }
        drop(state);
        count(&self.common.counters.sleeps, 1);
        self.common.bell.wait(None);
        Ok(())
    }
}

/// Tells who waits that the thread ended, also in a panic.
struct Ending<'a>(&'a Common);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.lock().ended.get_or_insert(Ok(()));
        self.0.changed.notify_all();
    }
}
