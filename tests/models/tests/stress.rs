//! The handshakes between real threads with random delays, for `HARTLINE_STRESS_SECONDS` (default
//! 10). A lost wake-up stops both threads for ever, and the test times out.

use hartline_abi::handshake::{ask, begin_sleep, end_sleep, publish, raise, take};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time that a wake-up may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most entries in a ring at once.
const ROOM: u16 = 64;

fn duration() -> Duration {
    let seconds = std::env::var("HARTLINE_STRESS_SECONDS").ok();
    let seconds = seconds.map_or(10, |text| text.parse().expect("a number of seconds"));
    // Two tests share the time.
    Duration::from_secs(seconds) / 2
}

/// An event that stays until it is taken.
#[derive(Default)]
struct Event {
    signalled: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    fn signal(&self) {
        *self.signalled.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn take(&self, what: &str) {
        let guard = self.signalled.lock().unwrap();
        let waited = self
            .changed
            .wait_timeout_while(guard, PATIENCE, |signalled| !*signalled);
        let (mut guard, result) = waited.unwrap();
        assert!(!result.timed_out(), "{what}: a wake-up was lost");
        *guard = false;
    }
}

/// Random numbers (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Delays by nothing most often, sometimes by a few instructions, and at times long enough for
    /// the other side to fall asleep.
    fn delay(&mut self) {
        let random = self.next();
        let rounds = match random % 64 {
            0 => 20_000,
            1..=8 => 500,
            9..=24 => 20,
            _ => 0,
        };
        for _ in 0..black_box(random >> 8) % (rounds + 1) {
            spin_loop();
        }
        if random % 4096 == 0 {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Runs the two handshakes one after the other, so that neither takes CPU time from the other.
#[test]
fn no_wake_up_is_lost() {
    let (kicks, entries) = ring();
    println!("ring: {entries} entries, {kicks} kicks");
    assert!(entries > 1000 && kicks > 10, "nothing was stressed");
    let (wakes, interrupts) = halt();
    println!("halt: {interrupts} interrupts, {wakes} wake-ups");
    assert!(interrupts > 1000 && wakes > 10, "nothing was stressed");
}

/// Runs a ring in both directions; each side asks for a kick before it sleeps. Results: kicks, and
/// entries that went there and back.
fn ring() -> (u64, u64) {
    let (available, used) = (AtomicU16::new(0), AtomicU16::new(0));
    let (available_event, used_event) = (AtomicU16::new(u16::MAX), AtomicU16::new(u16::MAX));
    let (device_bell, driver_bell) = (Event::default(), Event::default());
    let (kicks, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let ring_bell = |bell: &Event| {
        kicks.fetch_add(1, Ordering::Relaxed);
        bell.signal();
    };
    let end = Instant::now() + duration();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut random, mut seen) = (Random(0x9e37_79b9), 0u16);
            loop {
                random.delay();
                let new = available.load(Ordering::Acquire);
                if new != seen {
                    let wanted = publish(&used, &used_event, seen, new);
                    seen = new;
                    if wanted {
                        ring_bell(&driver_bell);
                    }
                } else if stop.load(Ordering::SeqCst) {
                    return;
                } else if !ask(&available_event, &available, seen) {
                    device_bell.take("device");
                }
            }
        });
        let (mut random, mut sent, mut done, mut total) = (Random(0x1234_5678), 0u16, 0u16, 0);
        while Instant::now() < end {
            random.delay();
            let now = used.load(Ordering::Acquire);
            total += u64::from(now.wrapping_sub(done));
            done = now;
            let room = ROOM - sent.wrapping_sub(done);
            let more = (random.next() % 4) as u16;
            if more > 0 && more <= room {
                let new = sent.wrapping_add(more);
                if publish(&available, &available_event, sent, new) {
                    ring_bell(&device_bell);
                }
                sent = new;
            } else if sent != done && !ask(&used_event, &used, done) {
                driver_bell.take("driver");
            }
        }
        stop.store(true, Ordering::SeqCst);
        device_bell.signal();
        (kicks.load(Ordering::Relaxed), total)
    })
}

/// Runs a vCPU that sleeps whenever nothing is pending, and a device that interrupts it and waits
/// until the interrupt is taken. Results: wake-ups and interrupts.
fn halt() -> (u64, u64) {
    let (pending, sleepers) = (AtomicU64::new(0), AtomicU64::new(0));
    let (vcpu, device) = (Event::default(), Event::default());
    let stop = AtomicBool::new(false);
    let end = Instant::now() + duration();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(0xdead_beef);
            while !stop.load(Ordering::SeqCst) {
                random.delay();
                if take(&pending, 1) {
                    device.signal();
                    continue;
                }
                begin_sleep(&sleepers, 1);
                if pending.load(Ordering::SeqCst) == 0 {
                    vcpu.take("vCPU");
                }
                end_sleep(&sleepers, 1);
            }
        });
        let (mut random, mut wakes, mut interrupts) = (Random(0xcafe_f00d), 0, 0);
        while Instant::now() < end {
            random.delay();
            interrupts += 1;
            if raise(&pending, 1, &sleepers) & 1 != 0 {
                wakes += 1;
                vcpu.signal();
            }
            device.take("device");
        }
        stop.store(true, Ordering::SeqCst);
        vcpu.signal();
        (wakes, interrupts)
    })
}
