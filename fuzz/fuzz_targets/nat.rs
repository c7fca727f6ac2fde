//! Packets of a hostile guest for the user-mode network in the VMM. The network survives any
//! packet, and its buffers for a guest that receives nothing are limited. A guest that is reset has no connections.

#![no_main]

mod packet;

use hartline_abi::virtio::{MAX_FRAME, NetHeader};
use hartline_devices::net::Backend;
use hartline_devices::net::user::{GATEWAY, GUEST, GUEST_MAC, Gate, User, Visit};
use hartline_devices::virtio::{Buffers, Memory};
use libfuzzer_sys::fuzz_target;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;

/// The length of a packet before which the guest is reset.
const RESET: u8 = 0;
/// The length of a packet before which a host connects to [`PORT`].
const CONNECTION: u8 = u8::MAX;
/// A port of the guest.
const PORT: u16 = 80;

/// No packet leaves this machine, and no server answers.
fn nowhere(to: SocketAddrV4) -> Option<SocketAddr> {
    (*to.ip() != GATEWAY).then(|| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1))
}

fuzz_target!(|input: &[u8]| {
    let Ok(mut user) = User::with_policy(&[], nowhere) else {
        return;
    };
    let gate = Gate::new(|| ()).expect("eventfd");
    user.guard(Vec::new(), Arc::clone(&gate))
        .expect("an epoll set");
    let length = NetHeader::LENGTH + MAX_FRAME;
    let memory = Memory::anonymous(2 * length, 0).expect("memory");
    let taken = buffer(&memory, 0, length);
    let mut rest = input;
    // The first byte gives the length of the next packet, and the parts of it that are repaired. Two lengths also mean
    // something else.
    while let Some((&length, after)) = rest.split_first() {
        match length {
            RESET => {
                user.forget_guest();
                assert_ne!(gate.visit(), Visit::Present);
            }
            CONNECTION => gate.give(connection(), PORT),
            _ => {}
        }
        let (body, later) = after.split_at(after.len().min(usize::from(length)));
        rest = later;
        let mut packet = vec![0; NetHeader::LENGTH];
        packet.extend(body);
        if length & 1 == 0 {
            packet::repair(
                &mut packet[NetHeader::LENGTH..],
                GUEST_MAC,
                GUEST.octets(),
                None,
            );
        }
        let sent = buffer(&memory, taken.length(), packet.len());
        sent.store(0, &packet);
        let _ = user.write(&sent);
        if length & 2 == 0 {
            let _ = user.read(&taken);
        }
    }
    let mut left = 0;
    while let Ok(length) = user.read(&taken) {
        assert!((NetHeader::LENGTH + 14..=NetHeader::LENGTH + MAX_FRAME).contains(&length));
        left += 1;
        assert!(left < 10_000);
    }
});

/// A connection of a host.
fn connection() -> TcpStream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("an address"));
    let (host, _) = listener.accept().expect("the connection");
    // It has ended already when the guest gets it.
    drop(client);
    host
}

/// A buffer at an address.
fn buffer(memory: &Memory, at: usize, length: usize) -> Buffers {
    let mut buffers = Buffers::new(memory);
    buffers.push(at as u64, length).expect("inside the memory");
    buffers
}
