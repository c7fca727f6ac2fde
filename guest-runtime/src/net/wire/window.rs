//! Acknowledgements in segments behind the receive window.
//!
//! A window is told in units of the window scale (RFC 7323, section 2.2), so its end moves back
//! by some bytes when less than a unit came: an honest peer may have sent up to where it was.
//! Segments behind the end are not accepted, but their acknowledgements count (RFC 9293,
//! section 3.10.7.4). smoltcp drops both. If the program reads nothing before what it has
//! written is acknowledged, nothing goes on then, ever. So smoltcp is given the acknowledgement
//! once more, in a segment that it accepts; for that the window is followed here.

use super::frame::{Segment, Told};

/// Where the receive window of a connection is, in sequence numbers of the peer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    /// The first byte that the program has not taken; none before the peer's SYN.
    start: Option<u32>,
    /// Behind the last byte that the peer was told it may send; none if it was told nothing.
    end: Option<u32>,
    /// What the peer was told last: this side's sequence number, and what it acknowledged.
    last: Option<(u32, u32)>,
    /// Windows are told in units of two to this power.
    shift: u8,
}

impl Window {
    /// A segment came.
    pub fn see(&mut self, segment: &Segment) {
        if segment.is_syn {
            self.start = Some(segment.sequence.wrapping_add(1));
            if !segment.scales {
                // Neither side scales then.
                self.shift = 0;
            }
        }
    }

    /// The program took bytes.
    pub fn take(&mut self, bytes: usize) {
        // Buffers are far shorter than the numbers go.
        self.start = self.start.map(|start| start.wrapping_add(bytes as u32));
    }

    /// The peer was told.
    pub fn tell(&mut self, told: Told) {
        if let Some(scale) = told.scale {
            self.shift = scale;
        }
        let shift = if told.is_syn { 0 } else { self.shift };
        let length = u32::from(told.window) << shift;
        self.end = Some(told.acknowledged.wrapping_add(length));
        self.last = Some((told.sequence, told.acknowledged));
    }

    /// Whether a sequence number is behind all that was acknowledged, so that a segment with it
    /// belongs to no earlier one.
    pub fn is_new(&self, sequence: u32) -> bool {
        let is_behind = |(_, last): (u32, u32)| sequence.wrapping_sub(last).cast_signed() > 0;
        self.last.is_some_and(is_behind)
    }

    /// A number that the peer cannot acknowledge, since nothing near it was sent.
    pub fn never_sent(&self) -> Option<u32> {
        Some(self.last?.0.wrapping_add(1 << 30))
    }

    /// Whether the peer was told anything.
    pub fn is_told(&self) -> bool {
        self.end.is_some()
    }

    /// The sequence number with which smoltcp accepts the acknowledgement of a segment that
    /// is behind the window, if it is. `queued` bytes wait for the program.
    pub fn accepts_at(&self, segment: &Segment, queued: usize) -> Option<u32> {
        let next = self.start?.wrapping_add(queued as u32);
        // Sequence numbers are compared modulo 2^32.
        let is_behind = segment.sequence.wrapping_sub(self.end?).cast_signed() >= 0;
        let is_next = segment.sequence == next && segment.length == 0;
        (segment.is_plain_ack && is_behind && !is_next).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(sequence: u32, length: usize) -> Segment {
        Segment {
            sequence,
            length,
            is_syn: false,
            scales: false,
            is_plain_ack: true,
        }
    }

    fn told(acknowledged: u32, window: u16) -> Told {
        Told {
            sequence: 0,
            acknowledged,
            window,
            is_syn: false,
            scale: None,
        }
    }

    /// A window of which the SYN had this sequence number, and both sides scale, or not.
    fn window(first: u32, scales: bool) -> Window {
        let mut window = Window::default();
        let syn = Segment {
            is_syn: true,
            scales,
            is_plain_ack: false,
            ..segment(first, 0)
        };
        window.see(&syn);
        window.tell(Told {
            is_syn: true,
            scale: scales.then_some(3),
            ..told(first.wrapping_add(1), 1000)
        });
        window
    }

    #[test]
    fn segments_behind_the_window_are_found() {
        for first in [7, u32::MAX, u32::MAX - 600] {
            let at = |distance: u32| first.wrapping_add(1 + distance);
            let mut window = window(first, true);
            assert_eq!(window.accepts_at(&segment(at(999), 4), 0), None);
            assert_eq!(window.accepts_at(&segment(at(1000), 4), 0), Some(at(0)));
            // 500 bytes came, of which the program has taken 100; 3 units are left.
            window.tell(told(at(500), 3));
            window.take(100);
            assert_eq!(window.accepts_at(&segment(at(523), 0), 400), None);
            assert_eq!(window.accepts_at(&segment(at(524), 0), 400), Some(at(500)));
            assert_eq!(window.accepts_at(&segment(at(100), 50), 400), None);
            // The end moved back, and all that was asked for came.
            window.tell(told(at(524), 0));
            assert_eq!(window.accepts_at(&segment(at(524), 0), 424), None);
            assert_eq!(window.accepts_at(&segment(at(524), 4), 424), Some(at(524)));
            assert_eq!(window.accepts_at(&segment(at(528), 0), 424), Some(at(524)));
        }
    }

    #[test]
    fn a_peer_that_does_not_scale_is_told_bytes() {
        let mut window = window(0, false);
        window.tell(told(1, 2000));
        assert_eq!(window.accepts_at(&segment(2000, 1), 0), None);
        assert_eq!(window.accepts_at(&segment(2001, 1), 0), Some(1));
    }

    #[test]
    fn new_numbers_are_told_from_old_ones() {
        for first in [7, u32::MAX - 5] {
            let mut window = window(first, true);
            let end = first.wrapping_add(11);
            window.tell(told(end, 3));
            assert!(!window.is_new(end) && !window.is_new(end.wrapping_sub(1)));
            assert!(window.is_new(end.wrapping_add(1)));
            assert_eq!(window.never_sent(), Some(1 << 30));
        }
    }

    #[test]
    fn nothing_is_known_before_the_first_segment() {
        assert_eq!(Window::default().accepts_at(&segment(5, 1), 0), None);
    }
}
