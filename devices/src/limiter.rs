//! Rate limits of a device: token buckets for bytes and for operations. The limits may change while
//! the device works.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Rate limits of each direction of a device. They may change at any time.
pub trait Limits: fmt::Debug + Send + Sync {
    /// Bytes per second, and packets or requests per second. 0 is no limit.
    fn get(&self) -> [u64; 2];
}

/// Limits in the memory of this process.
#[derive(Debug, Default)]
pub struct OwnLimits {
    /// Bytes per second.
    pub bytes: AtomicU64,
    /// Packets or requests per second.
    pub operations: AtomicU64,
}

impl OwnLimits {
    /// Limits of bytes and operations per second. 0 is no limit.
    #[must_use]
    pub fn new(bytes: u64, operations: u64) -> Self {
        Self {
            bytes: AtomicU64::new(bytes),
            operations: AtomicU64::new(operations),
        }
    }
}

impl Limits for OwnLimits {
    fn get(&self) -> [u64; 2] {
        [&self.bytes, &self.operations].map(|limit| limit.load(Ordering::Relaxed))
    }
}

/// Time for which unused tokens are kept, seconds.
const BURST: f64 = 0.02;

/// The tokens of one limit. One operation may overdraw the bucket, and the next operation waits for
/// it. So operations may be larger than the burst.
#[derive(Debug, Default)]
struct Bucket {
    left: f64,
}

impl Bucket {
    /// Adds the tokens of a time, seconds.
    fn fill(&mut self, rate: u64, passed: f64) {
        if rate == 0 {
            // Operations without a limit are no debt for a later limit.
            self.left = 0.0;
            return;
        }
        let rate = rate as f64;
        self.left = (self.left + rate * passed).min((rate * BURST).max(1.0));
    }

    /// The time until the next operation may start, seconds.
    fn wait(&self, rate: u64) -> f64 {
        match rate {
            0 => 0.0,
            rate => (-self.left).max(0.0) / rate as f64,
        }
    }
}

/// The limiter of one direction of a device, which its threads share.
#[derive(Debug)]
pub(crate) struct Limiter {
    limits: Arc<dyn Limits>,
    buckets: Mutex<Buckets>,
}

impl Limiter {
    /// A limiter with empty buckets.
    pub fn new(limits: Arc<dyn Limits>) -> Self {
        Self {
            limits,
            buckets: Mutex::new(Buckets::new(Instant::now())),
        }
    }

    /// The time until the next operation may start. `None` if it may start now.
    pub fn wait(&self) -> Option<Duration> {
        // Without a limit there is no need to read the clock.
        let limits = self.limits.get();
        let is_limited = limits != [0; 2];
        is_limited.then(|| self.buckets().wait(limits, Instant::now()))?
    }

    /// Takes the tokens of an operation.
    pub fn take(&self, bytes: usize) {
        if self.limits.get() != [0; 2] {
            self.buckets().take(bytes);
        }
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The buckets of one direction.
#[derive(Debug)]
struct Buckets {
    bytes: Bucket,
    operations: Bucket,
    last: Instant,
}

impl Buckets {
    fn new(now: Instant) -> Self {
        Self {
            bytes: Bucket::default(),
            operations: Bucket::default(),
            last: now,
        }
    }

    fn wait(&mut self, [bytes, operations]: [u64; 2], now: Instant) -> Option<Duration> {
        let passed = now.duration_since(self.last).as_secs_f64();
        self.last = now;
        self.bytes.fill(bytes, passed);
        self.operations.fill(operations, passed);
        let wait = self.bytes.wait(bytes).max(self.operations.wait(operations));
        (wait > 0.0).then(|| Duration::from_secs_f64(wait.min(1.0)))
    }

    fn take(&mut self, bytes: usize) {
        self.bytes.left -= bytes as f64;
        self.operations.left -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that operations of some length take, seconds.
    fn time(limits: [u64; 2], operations: usize, bytes: usize) -> f64 {
        let start = Instant::now();
        let (mut now, mut limiter) = (start, Buckets::new(start));
        for _ in 0..operations {
            while let Some(wait) = limiter.wait(limits, now) {
                now += wait;
            }
            limiter.take(bytes);
        }
        (now - start).as_secs_f64()
    }

    #[test]
    fn limits_hold_over_time() {
        let near = |time: f64, expected: f64| (time - expected).abs() < 0.05 * expected + 0.03;
        assert!(near(time([1_000_000, 0], 1000, 5000), 5.0));
        assert!(near(time([0, 100], 300, 5000), 3.0));
        assert!(near(time([1_000_000, 100], 300, 5000), 3.0));
        // One operation may be larger than the burst.
        assert!(near(time([1000, 0], 3, 10_000), 20.0));
    }

    #[test]
    fn limits_can_be_changed() {
        let limits = Arc::new(OwnLimits::new(1000, 0));
        let limiter = Limiter::new(Arc::clone(&limits) as _);
        limiter.take(1_000_000);
        assert!(limiter.wait().is_some());
        limits.bytes.store(0, Ordering::Relaxed);
        assert_eq!(limiter.wait(), None);
        limits.operations.store(1, Ordering::Relaxed);
        limiter.take(0);
        limiter.take(0);
        assert!(limiter.wait().is_some());
        let mut buckets = limiter.buckets();
        let later = Instant::now() + Duration::from_secs(3);
        assert_eq!(buckets.wait(limits.get(), later), None);
    }

    #[test]
    fn threads_share_limits() {
        let limiter = Limiter::new(Arc::new(OwnLimits::new(0, 200)));
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        while let Some(wait) = limiter.wait() {
                            std::thread::sleep(wait);
                        }
                        limiter.take(100);
                    }
                });
            }
        });
        // 40 operations, less the burst and the operations that two threads take at once.
        assert!(start.elapsed() > Duration::from_millis(150));
    }
}
