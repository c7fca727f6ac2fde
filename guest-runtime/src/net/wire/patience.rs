//! When a connection is given up whose peer says nothing: `SO_KEEPALIVE` and its settings, and
//! `TCP_USER_TIMEOUT` (tcp(7)). smoltcp sends the probes, at one interval; here is when they
//! begin, and when it is enough.

/// What a program has patience for. Times are microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Patience {
    /// Whether and how a peer that is silent is asked whether it is there.
    pub probes: Option<Probes>,
    /// How long what was sent may stay unacknowledged; none: as long as Linux without settings.
    pub limit: Option<i64>,
}

/// How a silent peer is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probes {
    /// Silence before the first probe.
    pub idle: i64,
    /// Time between two.
    pub interval: i64,
    /// How many without an answer are enough.
    pub count: i64,
}

/// `tcp_retries2`: the sum of the times after which Linux sends again, 15 of them.
const RETRIES: i64 = 924_600_000;
/// Times of probes are multiples of this: they follow every packet of the peer, and shall not
/// be noted each time.
const UNIT: i64 = 250_000;

/// What there is to do about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Let smoltcp probe, at this interval (µs).
    Probe(i64),
    /// End it.
    GiveUp,
}

/// What is known about a peer. Times are those of the caller's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Vigil {
    pub patience: Patience,
    /// When it was heard last.
    heard: i64,
    /// Since when it has acknowledged nothing though there is something.
    owes: Option<i64>,
    /// Probes are being sent.
    probing: bool,
}

impl Vigil {
    /// A segment of the peer came. Result: whether probing ends with that.
    pub fn hear(&mut self, now: i64) -> bool {
        self.heard = now;
        self.stop()
    }

    /// Ends probing. Result: whether there was any.
    pub fn stop(&mut self) -> bool {
        core::mem::take(&mut self.probing)
    }

    /// It acknowledged some of what it owes.
    pub fn acknowledged(&mut self, now: i64) {
        self.owes = self.owes.map(|_| now);
    }

    /// Whether there is anything that it has to acknowledge.
    pub fn see(&mut self, owes: bool, now: i64) {
        self.owes = owes.then(|| self.owes.unwrap_or(now));
    }

    /// The next thing to do, and when.
    pub fn next(&self) -> Option<(i64, Step)> {
        if let Some(owes) = self.owes {
            // With a closed window it may owe for ever, as long as it says so.
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

    /// What there is to do now.
    pub fn due(&mut self, now: i64) -> Option<Step> {
        let (_, step) = self.next().filter(|(at, _)| *at <= now)?;
        self.probing |= matches!(step, Step::Probe(_));
        Some(step)
    }
}

/// The smallest number of units, at least 0, that are not less than `value`.
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
        vigil.hear(5 * SECOND);
        assert_eq!(vigil.next(), None);
        vigil.patience.probes = Some(PROBES);
        assert_eq!(vigil.due(15 * SECOND - 1), None);
        assert_eq!(vigil.due(15 * SECOND), Some(Step::Probe(2 * SECOND)));
        assert_eq!(vigil.next(), Some((21 * SECOND, Step::GiveUp)));
        // As long as it answers it stays.
        assert!(vigil.hear(16 * SECOND));
        assert_eq!(vigil.next(), Some((26 * SECOND, Step::Probe(2 * SECOND))));
        assert!(!vigil.hear(16 * SECOND));
        vigil.due(26 * SECOND);
        // The other limit is in place of the number of probes, of which there is one at least.
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
        vigil.hear(50 * SECOND);
        assert_eq!(vigil.next(), Some((50 * SECOND + RETRIES, Step::GiveUp)));
        // This one counts though the peer is heard.
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
