//! Acknowledgements in segments beyond the receive window.
//!
//! A window is advertised in units of the window scale (RFC 7323, section 2.2). If less than a unit
//! arrives, its right edge moves back by some bytes, but the peer may have sent up to the old edge.
//! Segments beyond the edge are not accepted, but their acknowledgements are (RFC 9293, section
//! 3.10.7.4). smoltcp drops both. A program that reads nothing until its own data is acknowledged
//! then waits for ever. So this module tracks the window, and smoltcp receives the acknowledgement
//! again in an acceptable segment.

use super::frame::{Advertised, Segment};
use crate::convert::low_u32;

/// The receive window of a connection, in sequence numbers of the peer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    /// The first byte that the program has not read; none before the peer's SYN.
    start: Option<u32>,
    /// The right edge of the advertised window; none before the first advertisement.
    end: Option<u32>,
    /// Sequence number and acknowledgement number of the last advertisement.
    last: Option<(u32, u32)>,
    /// The window scale: windows are advertised in units of 2 to this power.
    shift: u8,
}

impl Window {
    /// Records a received segment.
    pub fn see(&mut self, segment: &Segment) {
        if segment.is_syn {
            self.start = Some(segment.sequence.wrapping_add(1));
            if !segment.scales {
                // Without the option from both sides, neither side scales.
                self.shift = 0;
            }
        }
    }

    /// Records that the program read bytes.
    pub fn take(&mut self, bytes: usize) {
        // Buffers are far shorter than the range of sequence numbers.
        self.start = self
            .start
            .map(|start| start.wrapping_add(low_u32(bytes as u64)));
    }

    /// Records an advertised window.
    pub fn advertise(&mut self, advertised: Advertised) {
        if let Some(scale) = advertised.scale {
            self.shift = scale;
        }
        let shift = if advertised.is_syn { 0 } else { self.shift };
        let length = u32::from(advertised.window) << shift;
        self.end = Some(advertised.acknowledged.wrapping_add(length));
        self.last = Some((advertised.sequence, advertised.acknowledged));
    }

    /// Whether a sequence number is beyond everything that was acknowledged, so that its segment
    /// belongs to no earlier connection.
    pub fn is_new(&self, sequence: u32) -> bool {
        let is_behind = |(_, last): (u32, u32)| sequence.wrapping_sub(last).cast_signed() > 0;
        self.last.is_some_and(is_behind)
    }

    /// Returns a number that the peer cannot acknowledge, because no byte near it was sent.
    pub fn never_sent(&self) -> Option<u32> {
        Some(self.last?.0.wrapping_add(1 << 30))
    }

    /// Whether a window was advertised.
    pub fn is_told(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the sequence number with which smoltcp accepts the acknowledgement of a segment
    /// beyond the window; none if the segment is within it. `queued` bytes wait for the program.
    pub fn accepts_at(&self, segment: &Segment, queued: usize) -> Option<u32> {
        let next = self.start?.wrapping_add(low_u32(queued as u64));
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

    fn advertised(acknowledged: u32, window: u16) -> Advertised {
        Advertised {
            sequence: 0,
            acknowledged,
            window,
            is_syn: false,
            scale: None,
        }
    }

    /// Creates a window after a SYN with this sequence number, with or without scaling.
    fn window(first: u32, scales: bool) -> Window {
        let mut window = Window::default();
        let syn = Segment {
            is_syn: true,
            scales,
            is_plain_ack: false,
            ..segment(first, 0)
        };
        window.see(&syn);
        window.advertise(Advertised {
            is_syn: true,
            scale: scales.then_some(3),
            ..advertised(first.wrapping_add(1), 1000)
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
            // 500 bytes arrived and the program read 100 of them; 3 units remain.
            window.advertise(advertised(at(500), 3));
            window.take(100);
            assert_eq!(window.accepts_at(&segment(at(523), 0), 400), None);
            assert_eq!(window.accepts_at(&segment(at(524), 0), 400), Some(at(500)));
            assert_eq!(window.accepts_at(&segment(at(100), 50), 400), None);
            // The edge moved back, and all bytes up to the old edge arrived.
            window.advertise(advertised(at(524), 0));
            assert_eq!(window.accepts_at(&segment(at(524), 0), 424), None);
            assert_eq!(window.accepts_at(&segment(at(524), 4), 424), Some(at(524)));
            assert_eq!(window.accepts_at(&segment(at(528), 0), 424), Some(at(524)));
        }
    }

    #[test]
    fn a_peer_that_does_not_scale_is_told_bytes() {
        let mut window = window(0, false);
        window.advertise(advertised(1, 2000));
        assert_eq!(window.accepts_at(&segment(2000, 1), 0), None);
        assert_eq!(window.accepts_at(&segment(2001, 1), 0), Some(1));
    }

    #[test]
    fn new_numbers_are_told_from_old_ones() {
        for first in [7, u32::MAX - 5] {
            let mut window = window(first, true);
            let end = first.wrapping_add(11);
            window.advertise(advertised(end, 3));
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
