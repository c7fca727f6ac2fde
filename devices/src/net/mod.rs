//! The network device (virtio 1.3, section 5.1): pairs of queues, each with a [`Backend`], which
//! is a queue of a TAP interface of the host or a network that ends in this process, and with a
//! thread that moves packets between it and the rings.
//!
//! A packet fills as many receive buffers as it needs, if the driver agrees to that; otherwise each
//! has room for the largest packet. What is not used of them is not touched.

mod backend;
mod control;
mod pair;
mod spares;
mod stats;
mod tap;
#[cfg(test)]
mod tests;
pub mod user;
mod worker;

pub use backend::Backend;
pub use stats::{Counters, Statistics};
pub use tap::{Batch, Tap, TapError};

use crate::limiter::{Limiter, Limits};
use crate::virtio::stats::count;
use crate::virtio::worker::Bell;
use crate::virtio::{Begin, Device, Guest, Memory};
use hartline_abi::virtio::{MAX_QUEUE_PAIRS, NetConfig, device, net_control, net_feature};
use pair::{Common, Pair};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use virtio_queue::Queue;

/// A network device.
pub struct Net {
    config: [u8; 12],
    /// What all backends do.
    offloads: u64,
    common: Arc<Common>,
    /// Counters and doorbells of all pairs.
    counters: Vec<Arc<Counters>>,
    bells: Vec<Arc<Bell>>,
    state: Mutex<State>,
}

/// What the guest has set up.
#[derive(Debug)]
struct State {
    pairs: Vec<Pair>,
    /// How many of them the guest uses, from the first one on.
    used: usize,
    /// The control queue and its number, if the guest uses it.
    control: Option<(Queue, u16)>,
}

impl Net {
    /// A device with the address `mac`, a pair of queues for each backend, and its rings and
    /// buffers in `memory`. `limits` hold for each direction of all pairs together, and may be
    /// changed at any time. Its threads call `begin` first.
    ///
    /// # Errors
    /// If the host has no event descriptor left, or there is no backend, or more than
    /// [`MAX_QUEUE_PAIRS`].
    pub fn new(
        backends: Vec<Box<dyn Backend>>,
        mac: [u8; 6],
        polling: Duration,
        limits: Arc<dyn Limits>,
        begin: Begin,
        (memory, guest): (Memory, Arc<dyn Guest>),
    ) -> io::Result<Self> {
        let count = u16::try_from(backends.len()).unwrap_or(u16::MAX);
        if !(1..=MAX_QUEUE_PAIRS).contains(&count) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let config = NetConfig {
            mac,
            status: 0,
            queue_pairs: count,
            mtu: backends[0].mtu(),
        };
        let offloads = backends.iter().map(|backend| backend.offloads());
        let offloads = offloads.fold(u64::MAX, |all, one| all & one);
        let pairs = backends.into_iter().map(Pair::new);
        let pairs = pairs.collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            config: config.to_bytes(),
            offloads,
            common: Arc::new(Common {
                memory,
                guest,
                polling,
                limiters: [0; 2].map(|_| Limiter::new(Arc::clone(&limits))),
                begin,
            }),
            counters: pairs
                .iter()
                .map(|pair| Arc::clone(&pair.counters))
                .collect(),
            bells: pairs.iter().map(|pair| Arc::clone(&pair.bell)).collect(),
            state: Mutex::new(State {
                pairs,
                used: 0,
                control: None,
            }),
        })
    }

    /// Counters of each pair.
    #[must_use]
    pub fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many pairs a driver with these features sets up.
    fn pairs_with(&self, features: u64) -> usize {
        match features & net_feature::MULTIQUEUE {
            0 => 1,
            _ => self.bells.len(),
        }
    }

    /// The doorbell of a queue was rung. Result: whether it is the control queue.
    fn serve_control(&self, queue: u32) -> bool {
        let mut state = self.state();
        let State {
            pairs,
            used,
            control,
        } = &mut *state;
        let own = control.as_mut().filter(|(_, own)| u32::from(*own) == queue);
        let Some((queue, _)) = own else {
            return false;
        };
        let set_pairs = |count: u16| set_used(pairs, used, count.into(), &self.common);
        let (memory, guest) = (&self.common.memory, &*self.common.guest);
        match control::serve(queue, memory, guest, set_pairs) {
            Ok(true) => count(&self.counters[0].interrupts, 1),
            Ok(false) => {}
            Err(error) => {
                *control = None;
                guest.fail(error);
            }
        }
        true
    }
}

/// Lets `count` pairs move packets, in place of `used`, and the others not. Result: whether that
/// is so now; it is not if the guest asks for what there is not, or the host fails.
fn set_used(pairs: &mut [Pair], used: &mut usize, count: usize, common: &Arc<Common>) -> bool {
    if !(1..=pairs.len()).contains(&count) {
        return false;
    }
    while *used > count {
        *used -= 1;
        let pair = &mut pairs[*used];
        pair.stop();
        // One that is still attached gets packets that nobody takes.
        if pair.set_used(false).is_err() {
            return false;
        }
    }
    while *used < count {
        let pair = &mut pairs[*used];
        // The first one always is.
        if *used > 0 && pair.set_used(true).is_err() || !pair.start(common) {
            return false;
        }
        *used += 1;
    }
    true
}

impl Device for Net {
    fn kind(&self) -> u32 {
        device::NET
    }

    fn features(&self) -> u64 {
        let several = match self.bells.len() {
            1 => 0,
            _ => net_feature::CONTROL_QUEUE | net_feature::MULTIQUEUE,
        };
        let own = net_feature::MTU | net_feature::MAC | net_feature::MERGEABLE;
        self.offloads | several | own
    }

    fn queues(&self) -> usize {
        match self.bells.len() {
            1 => 2,
            pairs => 2 * pairs + 1,
        }
    }

    fn queues_with(&self, features: u64) -> usize {
        let pairs = self.pairs_with(features);
        2 * pairs + usize::from(features & net_feature::CONTROL_QUEUE != 0)
    }

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn activate(&mut self, features: u64, mut queues: Vec<Queue>) -> bool {
        let has_control = features & net_feature::CONTROL_QUEUE != 0;
        if features & net_feature::MULTIQUEUE != 0 && !has_control
            || queues.len() != self.queues_with(features)
        {
            return false;
        }
        let number = net_control(self.pairs_with(features) as u16);
        let mut state = self.state();
        let State {
            pairs,
            used,
            control,
        } = &mut *state;
        if pairs[0].set_offloads(features).is_err() {
            return false;
        }
        *control = has_control
            .then(|| queues.pop())
            .flatten()
            .map(|queue| (queue, number));
        let mut queues = queues.into_iter();
        for pair in pairs.iter_mut() {
            let (Some(receive), Some(transmit)) = (queues.next(), queues.next()) else {
                break;
            };
            if !pair.set_queues([receive, transmit], features, &self.common) {
                return false;
            }
        }
        set_used(pairs, used, 1, &self.common)
    }

    fn notify(&self, queue: u32) {
        if self.serve_control(queue) {
            return;
        }
        let pair = queue as usize / 2;
        if let (Some(bell), Some(counters)) = (self.bells.get(pair), self.counters.get(pair)) {
            count(&counters.doorbells, 1);
            bell.ring();
        }
    }

    fn reset(&mut self) {
        let mut state = self.state();
        let State {
            pairs,
            used,
            control,
        } = &mut *state;
        *control = None;
        if *used > 1 {
            // One that cannot be detached gets packets that nobody takes.
            set_used(pairs, used, 1, &self.common);
        }
        pairs.iter_mut().for_each(Pair::reset);
        *used = 0;
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.reset();
    }
}
