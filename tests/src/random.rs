//! A small generator of random numbers, the same for the same seed everywhere.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns `HARTLINE_SEED`, or a new seed.
pub fn seed() -> u64 {
    number("HARTLINE_SEED").unwrap_or_else(|| {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |time| time.as_nanos() as u64)
    })
}

/// Returns the number in an environment variable, if there is one.
pub fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

/// Xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators").
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Starts with `seed`; each seed gives another sequence.
    pub fn new(seed: u64) -> Self {
        // Mixed once (splitmix64), so that neighbouring seeds give unrelated sequences.
        let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self {
            state: (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) | 1,
        }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// A number from `low` up to and including `high`.
    pub fn within(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    /// True with probability `percent` / 100.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, which is not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
