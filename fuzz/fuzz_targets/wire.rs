//! Packets of a hostile peer for the guest's TCP/IP stack: a listening server, a connecting client,
//! and a UDP socket survive any packet.

#![no_main]

mod packet;

use hartline_abi::boot::NetSettings;
use hartline_abi::virtio::NetHeader;
use hartline_guest::net::Network;
use hartline_guest::net::address::Family;
use hartline_guest::net::socket::{Socket, SocketId, Type};
use hartline_guest::net::wire::{Capabilities, Packet, Receive, Transmit, Wire};
use hartline_linux::socket::Ucred;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

const WHO: Ucred = Ucred {
    pid: 1,
    uid: 0,
    gid: 0,
};
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OWN: [u8; 4] = [10, 0, 0, 2];
const PEER: [u8; 4] = [10, 0, 0, 1];

/// Packets; a packet with several datagrams has the length of each datagram.
type Pipe = Rc<RefCell<VecDeque<(Vec<u8>, Option<u16>)>>>;

#[derive(Debug)]
struct In {
    pipe: Pipe,
    current: Vec<u8>,
    segment: Option<u16>,
}

impl Receive for In {
    fn is_pending(&self) -> bool {
        !self.pipe.borrow().is_empty()
    }

    fn begin(&mut self) {}

    fn next(&mut self) -> Option<Packet> {
        (self.current, self.segment) = self.pipe.borrow_mut().pop_front()?;
        Some(Packet {
            length: self.current.len(),
            is_verified: true,
            segment: self.segment,
        })
    }

    fn bytes(&self, packet: &Packet) -> &[u8] {
        &self.current[..packet.length]
    }

    fn release(&mut self, _: Packet) {}

    fn rest(&mut self) -> bool {
        self.is_pending()
    }

    unsafe fn free(&mut self) {}
}

/// Discards what is sent.
#[derive(Debug, Default)]
struct Out(Vec<u8>);

impl Transmit for Out {
    fn has_room(&mut self) -> bool {
        true
    }

    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        self.0.resize(length, 0);
        self.0.get_mut(..length)
    }

    fn commit(&mut self, length: usize, _: NetHeader, _: u32) {
        assert!(length <= self.0.len());
    }

    fn flush(&mut self) {}

    fn is_idle(&mut self) -> bool {
        true
    }

    fn want_room(&mut self) -> bool {
        true
    }

    unsafe fn free(&mut self) {}
}

fn open(net: &mut Network, kind: Type, port: u16) -> Option<SocketId> {
    let id = net.add(Socket::new(Family::Inet, kind, WHO)).ok()?;
    net.bind_inet(id, SocketAddr::new(OWN.into(), port), true)
        .ok()?;
    Some(id)
}

fuzz_target!(|input: &[u8]| {
    let pipe = Pipe::default();
    let receive = In {
        pipe: Rc::clone(&pipe),
        current: Vec::new(),
        segment: None,
    };
    let settings = NetSettings {
        present: 1,
        ipv4: OWN,
        gateway4: PEER,
        prefixes: [24, 0],
        ..NetSettings::default()
    };
    let capabilities = Capabilities {
        mac: MAC,
        mtu: 1500,
        segments: true,
        segments6: true,
        datagrams: true,
    };
    let mut net = Network::default();
    let (receive, transmit) = (Box::new(receive), Box::new(Out::default()));
    let wire = Wire::new(receive, transmit, capabilities, &settings, [7, 8], 1 << 20);
    net.set_wire(wire);
    let Some(listener) = open(&mut net, Type::Stream, 80) else {
        return;
    };
    let _ = net.listen(listener, 5, WHO);
    let datagrams = open(&mut net, Type::Datagram, 53);
    if let Some(client) = open(&mut net, Type::Stream, 4000) {
        let _ = net.connect_inet(client, SocketAddr::new(PEER.into(), 80), WHO);
    }
    let mut rest = input;
    // The first byte gives the length of the next packet, and the parts of it that are repaired.
    while let Some((&length, after)) = rest.split_first() {
        let (body, later) = after.split_at(after.len().min(usize::from(length)));
        rest = later;
        let mut frame = body.to_vec();
        if length & 1 == 0 {
            packet::repair(&mut frame, MAC, PEER, Some(OWN));
        }
        let segment = (length & 6 == 6).then_some(u16::from(length >> 3));
        pipe.borrow_mut().push_back((frame, segment));
        net.poll_wire();
        while let Ok(server) = net.accept(listener) {
            let _ = net.send(server, b"hello", &[], WHO);
            let _ = net.receive(server, 1000, false);
        }
        if let Some(id) = datagrams {
            let _ = net.receive(id, 1000, false);
        }
    }
    // The end of the VM.
    net.close_all();
    net.poll_wire();
    let _ = net.is_delivered(true);
});
