//! The virtio-net device: features, configuration space, queues and activation.

use super::backend::Backend;
use super::control;
use super::queue_pair::QueuePair;
use super::shared::Shared;
use super::stats::Counters;
use crate::limiter::{Limiter, Limits};
use crate::virtio::kick::Kick;
use crate::virtio::stats::count;
use crate::virtio::{ActivateError, Device, Guest, Memory, ThreadInit, feature_bit};
use hartline_abi::virtio::{MAX_QUEUE_PAIRS, NetConfig, net_control};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use virtio_bindings::virtio_ids::VIRTIO_ID_NET;
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CTRL_VQ, VIRTIO_NET_F_MAC, VIRTIO_NET_F_MQ, VIRTIO_NET_F_MRG_RXBUF,
    VIRTIO_NET_F_MTU,
};
use virtio_queue::{Queue, QueueState};

const NAME: &str = "virtio-net";
/// The feature of several pairs of queues.
pub(super) const MQ: u64 = feature_bit(VIRTIO_NET_F_MQ);
/// The feature of the control queue.
pub(super) const CTRL_VQ: u64 = feature_bit(VIRTIO_NET_F_CTRL_VQ);

/// A network device.
pub struct Net {
    config: [u8; 12],
    /// Number of pairs of queues.
    pairs: u16,
    /// The offloads that all backends have.
    offloads: u64,
    /// Dropped before `shared`: the backends need the memory of the guest's buffers.
    state: Mutex<State>,
    shared: Arc<Shared>,
    /// Counters and kicks of all pairs.
    counters: Vec<Arc<Counters>>,
    kicks: Vec<Arc<Kick>>,
}

/// The state that the driver has set up.
#[derive(Debug)]
struct State {
    pairs: Vec<QueuePair>,
    /// Number of pairs that the driver uses, from the first one on.
    active: usize,
    /// The control queue and its number, if the driver uses it.
    control: Option<(Queue, u16)>,
}

impl Net {
    /// A device with the address `mac`, a pair of queues for each backend, and rings and buffers in
    /// `memory`. `limits` hold for each direction of all pairs together and may change at any
    /// time. Each thread of the device calls `init_thread` first.
    ///
    /// # Errors
    /// The host has no event descriptor left, or the number of backends is not between 1 and
    /// [`MAX_QUEUE_PAIRS`].
    pub fn new(
        backends: Vec<Box<dyn Backend>>,
        mac: [u8; 6],
        polling: Duration,
        limits: Arc<dyn Limits>,
        init_thread: ThreadInit,
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
        let pairs = backends.into_iter().map(QueuePair::new);
        let pairs = pairs.collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            config: config.to_bytes(),
            pairs: count,
            offloads,
            shared: Arc::new(Shared {
                memory,
                guest,
                polling,
                rx_limiter: Limiter::new(Arc::clone(&limits)),
                tx_limiter: Limiter::new(limits),
                init_thread,
            }),
            counters: pairs
                .iter()
                .map(|pair| Arc::clone(&pair.counters))
                .collect(),
            kicks: pairs.iter().map(|pair| Arc::clone(&pair.kick)).collect(),
            state: Mutex::new(State {
                pairs,
                active: 0,
                control: None,
            }),
        })
    }

    /// The counters of each pair.
    #[must_use]
    pub fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of pairs that a driver with these features sets up.
    pub(super) fn pairs_with(&self, features: u64) -> u16 {
        match features & MQ {
            0 => 1,
            _ => self.pairs,
        }
    }

    /// Serves the control queue, if `queue` is its number. Returns whether it is.
    fn serve_control(&self, queue: u32) -> bool {
        let mut state = self.state();
        let State {
            pairs,
            active,
            control,
        } = &mut *state;
        let own = control.as_mut().filter(|(_, own)| u32::from(*own) == queue);
        let Some((queue, _)) = own else {
            return false;
        };
        let set_pairs =
            |count: u16| set_active_pairs(pairs, active, count.into(), &self.shared).is_ok();
        let (memory, guest) = (&self.shared.memory, &*self.shared.guest);
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

/// Starts or stops pairs until `count` of them are active.
///
/// # Errors
/// `InvalidInput`: `count` is 0 or exceeds the number of pairs. Errors of the host: a backend
/// refuses, or a thread does not start.
fn set_active_pairs(
    pairs: &mut [QueuePair],
    active: &mut usize,
    count: usize,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    if !(1..=pairs.len()).contains(&count) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    while *active > count {
        *active -= 1;
        let pair = &mut pairs[*active];
        pair.stop();
        // A backend that stays attached receives packets that the guest does not get.
        pair.set_active(false)?;
    }
    while *active < count {
        let pair = &mut pairs[*active];
        // The first pair is always active.
        if *active > 0 {
            pair.set_active(true)?;
        }
        pair.start(shared)?;
        *active += 1;
    }
    Ok(())
}

impl Device for Net {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device_id(&self) -> u32 {
        VIRTIO_ID_NET
    }

    fn features(&self) -> u64 {
        let multiqueue = match self.pairs {
            1 => 0,
            _ => CTRL_VQ | MQ,
        };
        let always = [VIRTIO_NET_F_MTU, VIRTIO_NET_F_MAC, VIRTIO_NET_F_MRG_RXBUF];
        let always = always.map(feature_bit).into_iter();
        always.fold(self.offloads | multiqueue, |set, bit| set | bit)
    }

    fn queues(&self) -> usize {
        match self.pairs {
            1 => 2,
            pairs => 2 * usize::from(pairs) + 1,
        }
    }

    fn queues_with(&self, features: u64) -> usize {
        let pairs = self.pairs_with(features);
        2 * usize::from(pairs) + usize::from(features & CTRL_VQ != 0)
    }

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn activate(&mut self, features: u64, mut queues: Vec<Queue>) -> Result<(), ActivateError> {
        let has_control = features & CTRL_VQ != 0;
        if features & MQ != 0 && !has_control {
            return Err(ActivateError::Features {
                device: NAME,
                features,
                missing: CTRL_VQ,
            });
        }
        if queues.len() != self.queues_with(features) {
            return Err(ActivateError::QueueCount {
                device: NAME,
                found: queues.len(),
                expected: self.queues_with(features),
            });
        }
        let number = net_control(self.pairs_with(features));
        let failed = |queue| {
            move |source| ActivateError::Backend {
                device: NAME,
                queue,
                source,
            }
        };
        let mut state = self.state();
        let State {
            pairs,
            active,
            control,
        } = &mut *state;
        pairs[0].set_offloads(features).map_err(failed(0))?;
        *control = has_control
            .then(|| queues.pop())
            .flatten()
            .map(|queue| (queue, number));
        let mut queues = queues.into_iter();
        for (pair, queue) in pairs.iter_mut().zip((0..).step_by(2)) {
            let (Some(rx), Some(tx)) = (queues.next(), queues.next()) else {
                break;
            };
            let set = pair.set_queues([rx, tx], features, &self.shared);
            set.map_err(failed(queue))?;
        }
        let started = set_active_pairs(pairs, active, 1, &self.shared);
        started.map_err(|source| ActivateError::Thread {
            device: NAME,
            queue: 0,
            source,
        })
    }

    fn queue_states(&self) -> Option<Vec<QueueState>> {
        let mut state = self.state();
        let State {
            pairs,
            active,
            control,
        } = &mut *state;
        // The number of active pairs would be lost.
        match (&mut pairs[..], *active, control) {
            ([pair], 1, None) => pair.stop_queues().map(Vec::from),
            _ => None,
        }
    }

    fn notify(&self, queue: u32) {
        if self.serve_control(queue) {
            return;
        }
        let pair = queue as usize / 2;
        if let (Some(kick), Some(counters)) = (self.kicks.get(pair), self.counters.get(pair)) {
            count(&counters.kicks, 1);
            kick.notify();
        }
    }

    fn finish(&mut self, limit: Duration) {
        self.state()
            .pairs
            .iter_mut()
            .for_each(|pair| pair.finish(limit));
    }

    fn reset(&mut self) {
        let mut state = self.state();
        let State {
            pairs,
            active,
            control,
        } = &mut *state;
        *control = None;
        if *active > 1 {
            // A backend that cannot be detached receives packets that the guest does not get.
            let _ = set_active_pairs(pairs, active, 1, &self.shared);
        }
        pairs.iter_mut().for_each(QueuePair::reset);
        *active = 0;
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
