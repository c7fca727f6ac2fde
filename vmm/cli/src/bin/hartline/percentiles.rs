//! Percentiles of times.

use serde::Serialize;
use std::time::Duration;

/// Percentiles, µs.
#[derive(Debug, Serialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

impl Percentiles {
    /// Those of times; `None`: there are none.
    pub fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let last = times.len().checked_sub(1)?;
        let at = |percent: usize| times[last * percent / 100].as_secs_f64() * 1e6;
        Some(Self {
            p50: at(50),
            p90: at(90),
            p99: at(99),
        })
    }
}
