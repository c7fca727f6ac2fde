//! Traffic of the interfaces of running machines, as the host counts it.

use crate::jailed::protocol::Traffic;
use std::fs::File;
use std::io::{self, Read};

/// The traffic of the machine at the other end of a TAP interface, from the open counters of the
/// interfaces of its network (proc_pid_net(5), `/proc/PID/net/dev`).
///
/// # Errors
/// There is no interface of that name.
pub fn of(mut counters: File, interface: &str) -> io::Result<Traffic> {
    let mut text = String::new();
    counters.read_to_string(&mut text)?;
    parse(&text, interface).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Reads an interface's counters. The host receives the packets that the machine sends.
fn parse(text: &str, interface: &str) -> Option<Traffic> {
    let counters = text.lines().find_map(|line| {
        let (name, counters) = line.split_once(':')?;
        (name.trim() == interface).then_some(counters)
    })?;
    let counters: Vec<u64> = counters
        .split_whitespace()
        .map_while(|counter| counter.parse().ok())
        .collect();
    let &[sent_bytes, sent_packets, ..] = counters.as_slice() else {
        return None;
    };
    let &[received_bytes, received_packets, ..] = counters.get(8..)? else {
        return None;
    };
    Some(Traffic {
        received_packets,
        received_bytes,
        sent_packets,
        sent_bytes,
        dropped: None,
        throttled: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_seen_from_the_other_end() {
        let text = "Inter-|   Receive                |  Transmit\n \
            face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs\n\
            lo:       0       0    0    0    0     0          0         0        0       0\n  \
            tap1:  1400      12    1    2    0     0          0         0    99000      80 0 0\n";
        let traffic = parse(text, "tap1").unwrap();
        assert_eq!((traffic.sent_bytes, traffic.sent_packets), (1400, 12));
        assert_eq!(
            (traffic.received_bytes, traffic.received_packets),
            (99_000, 80)
        );
        assert_eq!(parse(text, "tap"), None);
        assert_eq!(parse("tap1: 7 8\n", "tap1"), None);
    }
}
