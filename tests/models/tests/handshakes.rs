//! No order of steps loses a wake-up. The code of the handshakes is the one that runtime and
//! VMM use; what is around it is as small as it can be.

use hartline_abi::handshake::{Word, ask, lie_down, publish, raise, rise};
use hartline_models::{Event, Shipped, Unfenced};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, AtomicU64};
use loom::thread;
use std::sync::atomic::Ordering;

/// Entries that go through a ring.
const ENTRIES: u16 = 2;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // More changes of threads at other places than where they wait find nothing new, and
    // take very long.
    builder.preemption_bound = Some(4);
    builder.check(body);
}

/// One direction of a virtqueue: index of its ring, and the event index of who reads it.
struct Ring<W> {
    index: W,
    event: W,
    bell: Event,
}

impl<W: Word<Value = u16>> Ring<W> {
    fn new(word: impl Fn(u16) -> W) -> Self {
        Self {
            index: word(0),
            // Of a reader that is awake.
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

fn doorbell<W: Word<Value = u16> + Send + Sync + 'static>(word: fn(u16) -> W) {
    model(move || {
        let ring = Arc::new(Ring::new(word));
        let writer = Arc::clone(&ring);
        let thread = thread::spawn(move || writer.write());
        ring.read();
        thread.join().expect("no panic");
    });
}

#[test]
fn a_doorbell_is_rung_for_who_sleeps() {
    doorbell(|value| Shipped(AtomicU16::new(value)));
}

#[test]
#[should_panic = "deadlock"]
fn without_the_fence_a_doorbell_is_lost() {
    doorbell(|value| Unfenced(AtomicU16::new(value)));
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

    /// As where interrupts are read at safepoints: the first vCPU is woken if all sleep.
    fn interrupt_any(&self) {
        if raise(&self.pending, 1, &self.sleepers).count_ones() == 2 {
            self.wake[0].signal();
        }
    }

    /// As for vectors: a vCPU has its own bit, and is woken if it sleeps.
    fn interrupt(&self, cpu: usize) {
        if raise(&self.pending, 1 << cpu, &self.sleepers) & 1 << cpu != 0 {
            self.wake[cpu].signal();
        }
    }

    /// Sleeps once, unless there is something of `bits`.
    fn sleep(&self, cpu: usize, bits: u64) {
        lie_down(&self.sleepers, 1 << cpu);
        if self.pending.load(Ordering::SeqCst) & bits == 0 {
            self.wake[cpu].take();
        }
        rise(&self.sleepers, 1 << cpu);
    }
}

fn halt<W: Word<Value = u64> + Send + Sync + 'static>(word: fn(u64) -> W) {
    model(move || {
        let vm = Arc::new(Vm::new(word));
        let device = Arc::clone(&vm);
        let thread = thread::spawn(move || device.interrupt(1));
        // Taken in the guest before it sleeps, or after it has been woken.
        while vm.pending.fetch_and(!2, Ordering::SeqCst) & 2 == 0 {
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

/// One of two vCPUs sees the interrupt at a safepoint, or the first one is woken.
#[test]
fn an_interrupt_finds_a_vcpu_that_runs_or_wakes_one() {
    model(|| {
        let vm = Arc::new(Vm::new(|value| Shipped(AtomicU64::new(value))));
        let (device, second) = (Arc::clone(&vm), Arc::clone(&vm));
        let device = thread::spawn(move || device.interrupt_any());
        let second = thread::spawn(move || {
            // It has something to do, then sleeps until the VM ends.
            lie_down(&second.sleepers, 2);
            if second.pending.load(Ordering::SeqCst) == 0 {
                return;
            }
            // It takes the interrupt.
            second.pending.fetch_and(!1, Ordering::SeqCst);
            rise(&second.sleepers, 2);
            second.wake[0].signal();
        });
        lie_down(&vm.sleepers, 1);
        if vm.pending.load(Ordering::SeqCst) == 0 {
            vm.wake[0].take();
        }
        device.join().expect("no panic");
        second.join().expect("no panic");
    });
}

/// The whole way of a packet: used ring, event index, pending word, sleeping vCPU.
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
            // Taken back before the ring is looked at.
            vm.pending.fetch_and(!1, Ordering::SeqCst);
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
