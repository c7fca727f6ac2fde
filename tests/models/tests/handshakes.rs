//! No interleaving loses a wake-up. The handshakes are the code that runtime and VMM use; the code
//! around them is minimal.

use hartline_abi::handshake::{Word, ask, begin_sleep, end_sleep, publish, raise, take};
use hartline_models::{Event, Shipped, Unfenced};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, AtomicU64};
use loom::thread;
use std::sync::atomic::Ordering;

/// The number of entries that go through a ring.
const ENTRIES: u16 = 2;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // More preemptions find nothing new and take very long. Switches where a thread blocks do not
    // count.
    builder.preemption_bound = Some(4);
    builder.check(body);
}

/// One direction of a virtqueue: the index of its ring, and the event index of the reader.
struct Ring<W> {
    index: W,
    event: W,
    bell: Event,
}

impl<W: Word<Value = u16>> Ring<W> {
    fn new(word: impl Fn(u16) -> W) -> Self {
        Self {
            index: word(0),
            // The reader is awake: it asks for no kick.
            event: word(u16::MAX),
            bell: Event::default(),
        }
    }

    fn write(&self) {
        for old in 0..ENTRIES {
            if publish(&self.index, &self.event, old, old + 1) {
                self.bell.signal();
            }
        }
    }

    fn read(&self) {
        let mut seen = 0;
        loop {
            while self.index.load(Ordering::Acquire) != seen {
                seen += 1;
            }
            if seen == ENTRIES {
                return;
            }
            if !ask(&self.event, &self.index, seen) {
                self.bell.take();
            }
        }
    }
}

fn kick<W: Word<Value = u16> + Send + Sync + 'static>(word: fn(u16) -> W) {
    model(move || {
        let ring = Arc::new(Ring::new(word));
        let writer = Arc::clone(&ring);
        let thread = thread::spawn(move || writer.write());
        ring.read();
        thread.join().expect("no panic");
    });
}

#[test]
fn a_side_that_sleeps_is_kicked() {
    kick(|value| Shipped(AtomicU16::new(value)));
}

#[test]
#[should_panic = "deadlock"]
fn without_the_fence_a_kick_is_lost() {
    kick(|value| Unfenced(AtomicU16::new(value)));
}

/// Two vCPUs and a device that interrupts them.
struct Vm<W> {
    pending: W,
    sleepers: W,
    wake: [Event; 2],
}

impl<W: Word<Value = u64>> Vm<W> {
    fn new(word: impl Fn(u64) -> W) -> Self {
        Self {
            pending: word(0),
            sleepers: word(0),
            wake: [Event::default(), Event::default()],
        }
    }

    /// Interrupts the VM as where safepoints poll for interrupts: wakes the first vCPU if all
    /// sleep.
    fn interrupt_any(&self) {
        if raise(&self.pending, 1, &self.sleepers).count_ones() == 2 {
            self.wake[0].signal();
        }
    }

    /// Interrupts one vCPU as with vectors: each vCPU has a bit, and is woken if it sleeps.
    fn interrupt(&self, cpu: usize) {
        if raise(&self.pending, 1 << cpu, &self.sleepers) & 1 << cpu != 0 {
            self.wake[cpu].signal();
        }
    }

    /// Sleeps once, unless an interrupt of `bits` is pending.
    fn sleep(&self, cpu: usize, bits: u64) {
        begin_sleep(&self.sleepers, 1 << cpu);
        if self.pending.load(Ordering::SeqCst) & bits == 0 {
            self.wake[cpu].take();
        }
        end_sleep(&self.sleepers, 1 << cpu);
    }
}

/// A guest takes an interrupt before it sleeps, or after it has been woken.
fn halt<W: Word<Value = u64> + Send + Sync + 'static>(word: fn(u64) -> W) {
    model(move || {
        let vm = Arc::new(Vm::new(word));
        let device = Arc::clone(&vm);
        let thread = thread::spawn(move || device.interrupt(1));
        while !take(&vm.pending, 2) {
            vm.sleep(1, 2);
        }
        thread.join().expect("no panic");
    });
}

#[test]
fn an_interrupt_wakes_its_vcpu() {
    halt(|value| Shipped(AtomicU64::new(value)));
}

#[test]
#[should_panic = "deadlock"]
fn without_the_fence_an_interrupt_is_lost() {
    halt(|value| Unfenced(AtomicU64::new(value)));
}

/// An interrupt is taken once, whether it comes before or after the first look.
fn looks<W: Word<Value = u64> + Send + Sync + 'static>(
    word: fn(u64) -> W,
    take: fn(&W, u64) -> bool,
) {
    model(move || {
        let vm = Arc::new(Vm::new(word));
        let device = Arc::clone(&vm);
        let thread = thread::spawn(move || device.interrupt(1));
        let first = take(&vm.pending, 2);
        thread.join().expect("no panic");
        assert!(first ^ take(&vm.pending, 2), "the interrupt is lost");
    });
}

#[test]
fn an_interrupt_is_taken_once() {
    looks(|value| Shipped(AtomicU64::new(value)), take);
}

/// What comes between the look and the clearing is cleared, and nobody has seen it.
#[test]
#[should_panic = "the interrupt is lost"]
fn looking_first_and_clearing_then_loses_an_interrupt() {
    let take = |pending: &Shipped<AtomicU64>, what: u64| {
        let is_set = pending.load(Ordering::Relaxed) & what != 0;
        pending.fetch_and(!what, Ordering::SeqCst);
        is_set
    };
    looks(|value| Shipped(AtomicU64::new(value)), take);
}

/// One of two vCPUs sees the interrupt at a safepoint, or the first one is woken.
#[test]
fn an_interrupt_finds_a_vcpu_that_runs_or_wakes_one() {
    model(|| {
        let vm = Arc::new(Vm::new(|value| Shipped(AtomicU64::new(value))));
        let (device, second) = (Arc::clone(&vm), Arc::clone(&vm));
        let device = thread::spawn(move || device.interrupt_any());
        let second = thread::spawn(move || {
            // The second vCPU has something to do, then sleeps until the VM ends.
            begin_sleep(&second.sleepers, 2);
            if second.pending.load(Ordering::SeqCst) == 0 {
                return;
            }
            // The second vCPU takes the interrupt.
            take(&second.pending, 1);
            end_sleep(&second.sleepers, 2);
            second.wake[0].signal();
        });
        begin_sleep(&vm.sleepers, 1);
        if vm.pending.load(Ordering::SeqCst) == 0 {
            vm.wake[0].take();
        }
        device.join().expect("no panic");
        second.join().expect("no panic");
    });
}

/// The whole path of a packet: used ring, event index, pending word, sleeping vCPU.
#[test]
fn a_packet_arrives() {
    model(|| {
        let ring = Arc::new(Ring::new(|value| Shipped(AtomicU16::new(value))));
        let vm = Arc::new(Vm::new(|value| Shipped(AtomicU64::new(value))));
        let (device_ring, device_vm) = (Arc::clone(&ring), Arc::clone(&vm));
        let device = thread::spawn(move || {
            if publish(&device_ring.index, &device_ring.event, 0, 1) {
                device_vm.interrupt(0);
            }
        });
        loop {
            // Acknowledge the interrupt before the ring is read.
            take(&vm.pending, 1);
            if ring.index.load(Ordering::Acquire) == 1 {
                break;
            }
            if !ask(&ring.event, &ring.index, 0) {
                vm.sleep(0, 1);
            }
        }
        device.join().expect("no panic");
    });
}
