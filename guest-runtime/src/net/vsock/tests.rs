//! Connections with a simulated host.

use super::*;
use crate::convert::{low_u8, low_u32};
use crate::mm::UserSlice;
use crate::net::address::{Address, Family};
use crate::net::connection::Connecting;
use crate::net::socket::{Socket, Type};
use alloc::rc::Rc;
use alloc::vec;
use core::cell::RefCell;
use hartline_abi::vsock::{CID_ANY, CID_HOST, CID_LOCAL};
use hartline_linux::socket::Ucred;
use hartline_linux::vm_sockets::VMADDR_PORT_ANY;

const WHO: Ucred = Ucred {
    pid: 2,
    uid: 1000,
    gid: 1000,
};
/// CID of this VM.
const CID: u32 = 7;
/// Length of the host's buffer, bytes.
const BUFFER: u32 = 1000;
const SECOND: u64 = 1_000_000_000;

/// The packets between the guest's device and the host.
#[derive(Debug, Default)]
struct Wires {
    /// Packets to the guest, and packets from it.
    to_guest: VecDeque<(VsockHeader, Vec<u8>)>,
    to_host: VecDeque<(VsockHeader, Vec<u8>)>,
    /// Most packets that wait for the host.
    room: usize,
    reset: bool,
}

#[derive(Debug)]
struct Device(Rc<RefCell<Wires>>);

impl Channel for Device {
    fn is_pending(&self) -> bool {
        !self.0.borrow().to_guest.is_empty()
    }

    fn begin(&mut self) {}

    fn was_reset(&mut self) -> bool {
        core::mem::take(&mut self.0.borrow_mut().reset)
    }

    fn next(&mut self) -> Option<(VsockHeader, Vec<u8>)> {
        self.0.borrow_mut().to_guest.pop_front()
    }

    fn rest(&mut self) -> bool {
        false
    }

    fn has_room(&mut self) -> bool {
        let wires = self.0.borrow();
        wires.to_host.len() < wires.room
    }

    fn most(&self) -> usize {
        400
    }

    fn send(&mut self, header: &VsockHeader, bytes: UserSlice<'_>) -> bool {
        assert_eq!(header.length as usize, bytes.len());
        assert!(bytes.len() <= self.most());
        let has_room = self.has_room();
        if has_room {
            let packet = (*header, bytes.to_vec());
            self.0.borrow_mut().to_host.push_back(packet);
        }
        has_room
    }
}

/// A VM and its host.
struct World {
    net: Network,
    wires: Rc<RefCell<Wires>>,
    now: u64,
}

impl World {
    fn new() -> World {
        let wires = Rc::new(RefCell::new(Wires {
            room: 100,
            ..Wires::default()
        }));
        let mut net = Network::default();
        net.set_vsock(Vsock::new(Box::new(Device(Rc::clone(&wires))), CID));
        World { net, wires, now: 0 }
    }

    fn socket(&mut self) -> SocketId {
        let socket = Socket::new(Family::Vsock, Type::Stream, WHO);
        self.net.add(socket).unwrap()
    }

    fn listener(&mut self, port: u32, backlog: i32) -> SocketId {
        let id = self.socket();
        self.net.bind_vsock(id, (CID_ANY, port), false).unwrap();
        self.net.listen(id, backlog, WHO).unwrap();
        id
    }

    fn connect(&mut self, to: (u32, u32)) -> (SocketId, Result<Connecting, Errno>) {
        let id = self.socket();
        let result = self.net.connect_vsock(id, to, WHO, self.now);
        (id, result)
    }

    /// Sends a packet from the host's port 5 to a port of the guest.
    fn say(&mut self, port: u32, op: u16, flags: u32, bytes: &[u8]) {
        let header = VsockHeader {
            src_cid: CID_HOST.into(),
            dst_cid: CID.into(),
            src_port: 5,
            dst_port: port,
            length: low_u32(bytes.len() as u64),
            kind: STREAM,
            op,
            flags,
            buffer: BUFFER,
            forwarded: 0,
        };
        self.say_all(header, bytes);
    }

    fn say_all(&mut self, header: VsockHeader, bytes: &[u8]) {
        let packet = (header, bytes.to_vec());
        self.wires.borrow_mut().to_guest.push_back(packet);
        self.net.poll_devices(self.now);
    }

    /// Returns the next packet to the host, which must have this operation.
    fn receive(&mut self, op: u16) -> (VsockHeader, Vec<u8>) {
        let packet = self.wires.borrow_mut().to_host.pop_front();
        let packet = packet.unwrap_or_else(|| panic!("no packet, and not {op}"));
        assert_eq!(packet.0.op, op);
        assert_eq!((packet.0.src_cid, packet.0.kind), (CID.into(), STREAM));
        packet
    }

    fn is_quiet(&self) -> bool {
        self.wires.borrow().to_host.is_empty()
    }

    /// Makes a connection from a port of the guest to the host's port 5.
    fn connected(&mut self) -> (SocketId, u32) {
        let (id, result) = self.connect((CID_HOST, 5));
        assert_eq!(result, Ok(Connecting::Waits));
        let port = self.receive(op::REQUEST).0.src_port;
        self.say(port, op::RESPONSE, 0, b"");
        assert!(self.net.get(id).unwrap().is_connected());
        (id, port)
    }

    fn read(&mut self, id: SocketId, most: usize) -> Result<Vec<u8>, Errno> {
        self.net.receive(id, most, false).map(|got| got.bytes)
    }
}

#[test]
fn no_more_is_sent_than_the_host_has_room_for() {
    let mut world = World::new();
    let (id, port) = world.connected();
    let bytes: Vec<u8> = (0..3000u32).map(|n| low_u8(u64::from(n))).collect();
    assert_eq!(world.net.send(id, &bytes, &[], WHO), Ok(BUFFER as usize));
    assert_eq!(world.net.send(id, &bytes, &[], WHO), Err(Errno::EAGAIN));
    let lengths = [400, 400, 200].map(|_| world.receive(op::DATA).1.len());
    assert_eq!(lengths, [400, 400, 200]);
    assert!(!world.net.can_send(id));
    let update = VsockHeader {
        forwarded: 300,
        ..world.connected_header(port, op::CREDIT_UPDATE)
    };
    world.say_all(update, b"");
    assert!(world.net.can_send(id));
    assert_eq!(world.net.send(id, &bytes, &[], WHO), Ok(300));
    assert_eq!(world.receive(op::DATA).1, bytes[..300]);
}

impl World {
    fn connected_header(&self, port: u32, op: u16) -> VsockHeader {
        VsockHeader {
            src_cid: CID_HOST.into(),
            dst_cid: CID.into(),
            src_port: 5,
            dst_port: port,
            kind: STREAM,
            op,
            buffer: BUFFER,
            ..VsockHeader::default()
        }
    }
}

#[test]
fn a_full_device_is_waited_for_in_order() {
    let mut world = World::new();
    let (id, port) = world.connected();
    world.wires.borrow_mut().room = 1;
    assert_eq!(world.net.send(id, &[1; 900], &[], WHO), Ok(400));
    assert_eq!(world.net.send(id, &[2; 10], &[], WHO), Err(Errno::EAGAIN));
    // The shutdown waits too.
    world.net.shutdown(id, 2).unwrap();
    assert_eq!(world.receive(op::DATA).1.len(), 400);
    assert!(world.is_quiet());
    world.net.poll_devices(0);
    assert_eq!(world.receive(op::SHUTDOWN).0.flags, shutdown::SEND);
    world.say(port, op::DATA, 0, b"still");
    assert_eq!(world.read(id, 10).unwrap(), b"still");
}

#[test]
fn the_host_is_told_when_there_is_room_again() {
    let mut world = World::new();
    let (id, port) = world.connected();
    let buffer = world.net.get(id).unwrap().options.vsock.buffer() as usize;
    for _ in 0..buffer / 400 {
        world.say(port, op::DATA, 0, &[7; 400]);
    }
    assert!(world.is_quiet());
    assert_eq!(
        world.read(id, buffer / 4 - 1).unwrap().len(),
        buffer / 4 - 1
    );
    assert!(world.is_quiet());
    world.read(id, 1).unwrap();
    let update = world.receive(op::CREDIT_UPDATE).0;
    assert_eq!(
        (update.forwarded as usize, update.buffer as usize),
        (buffer / 4, buffer)
    );
    // Peeking does not free the buffer.
    world.net.receive(id, buffer, true).unwrap();
    assert!(world.is_quiet());
    // A host that sends more than there is room for is disconnected.
    world.say(port, op::CREDIT_REQUEST, 0, b"");
    world.receive(op::CREDIT_UPDATE);
    for _ in 0..buffer / 400 {
        world.say(port, op::DATA, 0, &[8; 400]);
    }
    world.receive(op::RESET);
    while !world.read(id, 100_000).unwrap().is_empty() {}
    assert_eq!(world.net.send(id, b"x", &[], WHO), Err(Errno::EPIPE));
}

#[test]
fn connections_that_are_not_made() {
    let mut world = World::new();
    // The host refuses.
    let (id, _) = world.connect((CID_HOST, 5));
    let port = world.receive(op::REQUEST).0.src_port;
    assert_eq!(
        world.net.connect_vsock(id, (CID_HOST, 5), WHO, 0),
        Err(Errno::EALREADY)
    );
    world.say(port, op::RESET, 0, b"");
    assert_eq!(world.net.get(id).unwrap().error, Some(Errno::ECONNRESET));
    // The host does not answer.
    let (id, _) = world.connect((CID_HOST, 5));
    world.receive(op::REQUEST);
    assert_eq!(world.net.next_time(), Some(2 * SECOND));
    world.net.poll_devices(2 * SECOND - 1);
    assert!(world.is_quiet());
    world.net.poll_devices(2 * SECOND);
    world.receive(op::RESET);
    assert_eq!(world.net.get(id).unwrap().error, Some(Errno::ETIMEDOUT));
    assert_eq!(world.net.next_time(), None);
    // The host answers with another operation.
    let (id, _) = world.connect((CID_HOST, 5));
    let port = world.receive(op::REQUEST).0.src_port;
    world.say(port, op::DATA, 0, b"x");
    world.receive(op::RESET);
    assert_eq!(world.net.get(id).unwrap().error, Some(Errno::EPROTO));
    // The program closes the socket before an answer.
    let (id, _) = world.connect((CID_HOST, 5));
    world.receive(op::REQUEST);
    world.net.close(id);
    world.receive(op::RESET);
    // The device loses the connection.
    let (id, _) = world.connected();
    world.wires.borrow_mut().reset = true;
    world.net.poll_devices(0);
    assert_eq!(world.read(id, 1), Err(Errno::ECONNRESET));
}

#[test]
fn hosts_are_accepted_while_there_is_room() {
    let mut world = World::new();
    world.say(80, op::REQUEST, 0, b"");
    assert_eq!(world.receive(op::RESET).0.dst_port, 5);
    let server = world.listener(1080, 0);
    world.say(1080, op::REQUEST, 0, b"");
    world.receive(op::RESPONSE);
    world.say(1080, op::DATA, 0, b"early");
    let other = VsockHeader {
        src_port: 6,
        ..world.connected_header(1080, op::REQUEST)
    };
    world.say_all(other, b"");
    assert_eq!(world.receive(op::RESET).0.dst_port, 6);
    let accepted = world.net.accept(server).unwrap();
    let socket = world.net.get(accepted).unwrap();
    assert_eq!(socket.remote, Address::Vsock(CID_HOST, 5));
    assert_eq!(socket.local, Address::Vsock(CID, 1080));
    assert_eq!(world.read(accepted, 100).unwrap(), b"early");
    assert_eq!(world.read(accepted, 100), Err(Errno::EAGAIN));
    // The host shuts down sending, then the guest does.
    world.say(1080, op::SHUTDOWN, shutdown::SEND, b"");
    assert_eq!(world.read(accepted, 100).unwrap(), b"");
    assert_eq!(world.net.send(accepted, b"late", &[], WHO), Ok(4));
    assert_eq!(world.receive(op::DATA).1, b"late");
    world.net.close(accepted);
    assert_eq!(world.receive(op::SHUTDOWN).0.flags, shutdown::BOTH);
    // What comes then is nobody's, until the host has agreed.
    world.say(1080, op::SHUTDOWN, shutdown::BOTH, b"");
    world.receive(op::RESET);
    world.say(1080, op::DATA, 0, b"x");
    world.receive(op::RESET);
    world.say(1080, op::RESET, 0, b"");
    assert!(world.is_quiet());
}

#[test]
fn packets_for_nobody_are_answered_once() {
    let mut world = World::new();
    let server = world.listener(1080, 5);
    let request = world.connected_header(1080, op::REQUEST);
    for wrong in [
        VsockHeader { kind: 2, ..request },
        VsockHeader {
            dst_cid: 8,
            ..request
        },
        VsockHeader {
            src_cid: u64::MAX,
            ..request
        },
        VsockHeader { op: 9, ..request },
    ] {
        world.say_all(wrong, b"");
        let (header, _) = world.wires.borrow_mut().to_host.pop_front().unwrap();
        assert_eq!((header.op, header.kind), (op::RESET, wrong.kind));
        assert_eq!(
            (header.src_cid, header.dst_cid),
            (wrong.dst_cid, wrong.src_cid)
        );
        world.say_all(
            VsockHeader {
                op: op::RESET,
                ..wrong
            },
            b"",
        );
        assert!(world.is_quiet());
    }
    world.say_all(VsockHeader::default(), b"");
    assert!(world.is_quiet());
    assert_eq!(world.net.accept(server), Err(Errno::EAGAIN));
}

#[test]
fn within_the_vm() {
    let mut world = World::new();
    let server = world.listener(1080, 0);
    for cid in [CID_LOCAL, CID] {
        let (id, result) = world.connect((cid, 1080));
        assert_eq!(result, Ok(Connecting::Done));
        let (_, full) = world.connect((cid, 1080));
        assert_eq!(full, Err(Errno::ECONNRESET));
        let accepted = world.net.accept(server).unwrap();
        let Address::Vsock(CID_LOCAL, _) = world.net.get(accepted).unwrap().remote else {
            panic!("another peer");
        };
        assert_eq!(world.net.send(id, b"abc", &[], WHO), Ok(3));
        assert_eq!(world.read(accepted, 9).unwrap(), b"abc");
        world.net.send(id, b"unread", &[], WHO).unwrap();
        world.net.close(accepted);
        assert_eq!(world.read(id, 9), Ok(vec![]));
        assert_eq!(world.net.send(id, b"x", &[], WHO), Err(Errno::EPIPE));
    }
    assert!(world.is_quiet());
}

#[test]
fn ports_and_cids() {
    let mut world = World::new();
    let mut bind = |cid, port, privileged| {
        let id = world.socket();
        (world.net.bind_vsock(id, (cid, port), privileged), id)
    };
    assert_eq!(bind(CID_ANY, 80, false).0, Err(Errno::EACCES));
    assert_eq!(bind(CID_HOST, 2000, true).0, Err(Errno::EADDRNOTAVAIL));
    assert_eq!(bind(CID, 2000, true).0, Ok(()));
    assert_eq!(bind(CID_LOCAL, 2000, true).0, Ok(()));
    assert_eq!(bind(CID_ANY, 2000, true).0, Err(Errno::EADDRINUSE));
    let (result, id) = bind(CID_ANY, VMADDR_PORT_ANY, false);
    assert_eq!(result, Ok(()));
    let Address::Vsock(CID_ANY, port @ 1024..) = world.net.get(id).unwrap().local else {
        panic!("no port");
    };
    world.net.close(id);
    let again = world.socket();
    assert_eq!(world.net.bind_vsock(again, (CID, port), false), Ok(()));
    // Without a device, the host's CID leads to this VM.
    let mut alone = Network::default();
    let mut socket = || {
        alone
            .add(Socket::new(Family::Vsock, Type::Stream, WHO))
            .unwrap()
    };
    let (a, b) = (socket(), socket());
    assert_eq!(
        alone.connect_vsock(a, (CID_HOST, 1), WHO, 0),
        Err(Errno::ECONNRESET)
    );
    assert_eq!(alone.connect_vsock(b, (9, 1), WHO, 0), Err(Errno::ENODEV));
}
