//! Times to wait for.

/// No time limit, as a time of `CLOCK_MONOTONIC`.
pub const NEVER: u64 = u64::MAX;

/// An expiration time that may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timer {
    /// Next expiration, ns of the timer's clock; 0: not armed.
    pub next: u64,
    /// Time between expirations, ns; 0: the timer expires once.
    pub interval: u64,
}

impl Timer {
    /// Time until expiration, ns; 0 if the timer is not armed.
    #[must_use]
    pub fn left(&self, now: u64) -> u64 {
        match self.next {
            0 => 0,
            next => next.saturating_sub(now).max(1),
        }
    }

    /// Counts the expirations up to `now` and sets the next one; returns their number.
    pub fn expire(&mut self, now: u64) -> u64 {
        if self.next == 0 || self.next > now {
            return 0;
        }
        let Some(periods) = (now - self.next).checked_div(self.interval) else {
            self.next = 0;
            return 1;
        };
        let count = periods + 1;
        self.next = self
            .next
            .saturating_add(count.saturating_mul(self.interval));
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expirations_are_counted() {
        let mut timer = Timer {
            next: 100,
            interval: 10,
        };
        assert_eq!((timer.expire(99), timer.left(99)), (0, 1));
        assert_eq!((timer.expire(100), timer.next), (1, 110));
        assert_eq!((timer.expire(139), timer.next), (3, 140));
        timer.interval = 0;
        assert_eq!((timer.expire(1000), timer.next), (1, 0));
        assert_eq!((timer.expire(2000), timer.left(0)), (0, 0));
    }
}
