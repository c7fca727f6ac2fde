//! Time limits for a silent peer: `SO_KEEPALIVE` and its settings, and `TCP_USER_TIMEOUT` (tcp(7)).
//! smoltcp sends probes at one interval; this module decides when they start and when the
//! connection is given up.

/// The limits that a program has set for a silent peer. Times are in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Patience {
    /// Keep-alive probes; none if they are off.
    pub probes: Option<Probes>,
    /// How long sent data may stay unacknowledged; none: as long as Linux's default.
    pub limit: Option<i64>,
}

/// The settings of keep-alive probes. Times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probes {
    /// Silence before the first probe (`TCP_KEEPIDLE`).
    pub idle: i64,
    /// Time between two probes (`TCP_KEEPINTVL`).
    pub interval: i64,
    /// Number of unanswered probes before the connection is given up (`TCP_KEEPCNT`).
    pub count: i64,
}

/// `tcp_retries2`: the sum of Linux's 15 retransmission timeouts, microseconds.
const RETRIES: i64 = 924_600_000;
/// Granularity of probe times, microseconds. Each packet of the peer moves them, and a timer should
/// not be set each time.
const UNIT: i64 = 250_000;

/// The next step for a connection with a silent peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Let smoltcp send probes at this interval, microseconds.
    Probe(i64),
    /// Give the connection up.
    GiveUp,
}

/// The state of a peer. Times are in microseconds of the caller's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Vigil {
    pub patience: Patience,
    /// When the peer's last segment was received.
    heard: i64,
    /// Since when the peer has acknowledged none of the unacknowledged data.
    owes: Option<i64>,
    /// Probes are being sent.
    probing: bool,
}

impl Vigil {
    /// Records a segment of the peer. Returns whether that ends probing.
    pub fn received(&mut self, now: i64) -> bool {
        self.heard = now;
        self.stop()
    }

    /// Ends probing. Returns whether probes were being sent.
    pub fn stop(&mut self) -> bool {
        core::mem::take(&mut self.probing)
    }

    /// Records that the peer acknowledged data.
    pub fn acknowledged(&mut self, now: i64) {
        self.owes = self.owes.map(|_| now);
    }

    /// Records whether the peer has data to acknowledge.
    pub fn see(&mut self, owes: bool, now: i64) {
        self.owes = owes.then(|| self.owes.unwrap_or(now));
    }

    /// Returns the next step, and when it is due.
    pub fn next(&self) -> Option<(i64, Step)> {
        if let Some(owes) = self.owes {
            // A peer with a closed window may leave data unacknowledged for ever, while it answers.
            let at = match self.patience.limit {
                Some(limit) => owes.saturating_add(limit),
                None => owes.max(self.heard) + RETRIES,
            };
            return Some((at, Step::GiveUp));
        }
        let probes = self.patience.probes?;
        let first = self.heard + probes.idle;
        let (at, step) = match self.probing {
            false => (first, Step::Probe(probes.interval)),
            true => {
                let count = match self.patience.limit {
                    Some(limit) => div_ceil(limit - probes.idle, probes.interval).max(1),
                    None => probes.count,
                };
                (first + count * probes.interval, Step::GiveUp)
            }
        };
        Some((div_ceil(at, UNIT) * UNIT, step))
    }

    /// Returns the step that is due now.
    pub fn due(&mut self, now: i64) -> Option<Step> {
        let (_, step) = self.next().filter(|(at, _)| *at <= now)?;
        self.probing |= matches!(step, Step::Probe(_));
        Some(step)
    }
}

/// Divides and rounds up; negative results become 0.
fn div_ceil(value: i64, unit: i64) -> i64 {
    let value = value.max(0).cast_unsigned();
    value.div_ceil(unit.cast_unsigned()).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const PROBES: Probes = Probes {
        idle: 10 * SECOND,
        interval: 2 * SECOND,
        count: 3,
    };

    #[test]
    fn a_silent_peer_is_asked_and_given_up() {
        let mut vigil = Vigil::default();
        vigil.received(5 * SECOND);
        assert_eq!(vigil.next(), None);
        vigil.patience.probes = Some(PROBES);
        assert_eq!(vigil.due(15 * SECOND - 1), None);
        assert_eq!(vigil.due(15 * SECOND), Some(Step::Probe(2 * SECOND)));
        assert_eq!(vigil.next(), Some((21 * SECOND, Step::GiveUp)));
        // The connection stays open while the peer answers.
        assert!(vigil.received(16 * SECOND));
        assert_eq!(vigil.next(), Some((26 * SECOND, Step::Probe(2 * SECOND))));
        assert!(!vigil.received(16 * SECOND));
        vigil.due(26 * SECOND);
        // The user timeout replaces the number of probes, but at least one probe is sent.
        for (limit, seconds) in [(20, 36), (13, 30), (1, 28)] {
            vigil.patience.limit = Some(limit * SECOND);
            assert_eq!(vigil.next(), Some((seconds * SECOND, Step::GiveUp)));
        }
    }

    #[test]
    fn what_is_owed_has_a_limit() {
        let mut vigil = Vigil::default();
        vigil.patience.probes = Some(PROBES);
        vigil.see(true, SECOND);
        vigil.see(true, 2 * SECOND);
        assert_eq!(vigil.next(), Some((SECOND + RETRIES, Step::GiveUp)));
        vigil.received(50 * SECOND);
        assert_eq!(vigil.next(), Some((50 * SECOND + RETRIES, Step::GiveUp)));
        // The user timeout applies although the peer sends segments.
        vigil.patience.limit = Some(5 * SECOND);
        assert_eq!(vigil.due(6 * SECOND), Some(Step::GiveUp));
        vigil.acknowledged(4 * SECOND);
        assert_eq!(vigil.next(), Some((9 * SECOND, Step::GiveUp)));
        vigil.see(false, 7 * SECOND);
        assert_eq!(vigil.next(), Some((60 * SECOND, Step::Probe(2 * SECOND))));
        vigil.acknowledged(8 * SECOND);
        vigil.patience = Patience::default();
        assert_eq!(vigil.next(), None);
    }
}
