//! A good and bad test driver, and programs of the host.

use super::connections::MAX_CONNECTIONS;
use super::rx::HEADER;
use super::worker::Worker;
use super::*;
use crate::virtio::kick::Kick;
use crate::virtio::tests::{BASE, WRITE, memory, queue_at};
use crate::virtio::worker::Work;
use crate::virtio::{DeviceError, Guest, Memory};
use hartline_abi::vsock::{Credit, STREAM, VsockHeader, op, shutdown};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use virtio_queue::Queue;
use vm_memory::{Bytes, GuestAddress};

const CID: u32 = 9;
/// Entries of the rings, and length of the buffer of each descriptor, bytes.
const SIZE: u16 = 4;
const BUFFER: u32 = 4096;
/// Offsets of the parts of a ring. Buffers follow behind the rings.
const AVAILABLE: u64 = 0x100;
const USED: u64 = 0x200;
const RING: u64 = 0x400;
const BUFFERS: u64 = 0x1000;

#[derive(Debug)]
struct NoGuest;

impl Guest for NoGuest {
    fn interrupt(&self) {}

    fn fail(&self, _: DeviceError) {}
}

/// The driver's end of a ring.
struct Ring {
    memory: Memory,
    number: u64,
    available: u16,
    used: u16,
}

impl Ring {
    fn new(memory: &Memory, number: u64) -> (Ring, Queue) {
        let at = BASE + number * RING;
        let queue = queue_at([at, at + AVAILABLE, at + USED], SIZE);
        let ring = Ring {
            memory: memory.clone(),
            number,
            available: 0,
            used: 0,
        };
        (ring, queue)
    }

    fn buffer(&self, slot: u16) -> GuestAddress {
        let number = self.number * u64::from(SIZE) + u64::from(slot);
        GuestAddress(BASE + BUFFERS + number * u64::from(BUFFER))
    }

    /// Makes a buffer available.
    fn give(&mut self, length: u32, flags: u16) {
        let (map, at) = (self.memory.map(), BASE + self.number * RING);
        let slot = self.available % SIZE;
        let descriptor = GuestAddress(at + 16 * u64::from(slot));
        map.write_obj(self.buffer(slot).0, descriptor).unwrap();
        map.write_obj(length, GuestAddress(descriptor.0 + 8))
            .unwrap();
        map.write_obj(flags, GuestAddress(descriptor.0 + 12))
            .unwrap();
        let entry = at + AVAILABLE + 4 + 2 * u64::from(slot);
        map.write_obj(slot, GuestAddress(entry)).unwrap();
        self.available = self.available.wrapping_add(1);
        let index = GuestAddress(at + AVAILABLE + 2);
        map.write_obj(self.available, index).unwrap();
    }

    /// Takes a used buffer: its slot, and the number of written bytes.
    fn take(&mut self) -> Option<(u16, u32)> {
        let (map, at) = (self.memory.map(), BASE + self.number * RING + USED);
        let index: u16 = map.read_obj(GuestAddress(at + 2)).unwrap();
        if index == self.used {
            return None;
        }
        let element = at + 4 + 8 * u64::from(self.used % SIZE);
        self.used = self.used.wrapping_add(1);
        let id: u32 = map.read_obj(GuestAddress(element)).unwrap();
        Some((
            id.try_into().unwrap(),
            map.read_obj(GuestAddress(element + 4)).unwrap(),
        ))
    }
}

/// A device, and the guest's end of it.
struct World {
    worker: Worker,
    receive: Ring,
    transmit: Ring,
    counters: Arc<Counters>,
    path: PathBuf,
}

impl World {
    fn new() -> World {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("hartline-vsock-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let memory = memory();
        let (receive, first) = Ring::new(&memory, 0);
        let (transmit, second) = Ring::new(&memory, 1);
        let counters = Arc::<Counters>::default();
        let worker = Worker::new(
            Host::bind(&path).unwrap(),
            CID.into(),
            [first, second],
            memory,
            Arc::new(NoGuest),
            Arc::clone(&counters),
            Arc::new(Kick::new().unwrap()),
        );
        let mut world = World {
            worker,
            receive,
            transmit,
            counters,
            path,
        };
        (0..SIZE).for_each(|_| world.receive.give(BUFFER, WRITE));
        world
    }

    /// Lets the device work until it has no work left.
    fn run(&mut self) -> Result<(), DeviceError> {
        while self.worker.process()? {}
        Ok(())
    }

    /// Sends a packet of the guest.
    fn say(&mut self, header: VsockHeader, bytes: &[u8]) {
        let slot = self.transmit.available % SIZE;
        let packet = [&header.to_bytes()[..], bytes].concat();
        let at = self.transmit.buffer(slot);
        self.transmit.memory.map().write_slice(&packet, at).unwrap();
        self.transmit.give(packet.len().try_into().unwrap(), 0);
        self.run().unwrap();
        assert_eq!(self.transmit.take(), Some((slot, 0)));
    }

    /// The next packet for the guest.
    fn next(&mut self) -> Option<(VsockHeader, Vec<u8>)> {
        self.run().unwrap();
        let (slot, written) = self.receive.take()?;
        let mut packet = vec![0; written as usize];
        let at = self.receive.buffer(slot);
        let map = self.receive.memory.map();
        map.read_slice(&mut packet, at).unwrap();
        self.receive.give(BUFFER, WRITE);
        let (start, bytes) = packet.split_first_chunk().unwrap();
        let header = VsockHeader::from_bytes(start);
        assert_eq!(header.length as usize, bytes.len());
        assert_eq!((header.dst_cid, header.kind), (CID.into(), STREAM));
        Some((header, bytes.to_vec()))
    }

    /// The next packet, which has this operation.
    fn receive(&mut self, op: u16) -> (VsockHeader, Vec<u8>) {
        let packet = self.next();
        let packet = packet.unwrap_or_else(|| panic!("no packet, and not {op}"));
        assert_eq!(packet.0.op, op);
        packet
    }

    /// A packet from port 70 of the guest to one of the host.
    fn header(&self, port: u32, op: u16) -> VsockHeader {
        VsockHeader {
            src_cid: CID.into(),
            dst_cid: 2,
            src_port: 70,
            dst_port: port,
            kind: STREAM,
            op,
            buffer: 10_000,
            ..VsockHeader::default()
        }
    }

    fn data(&self, port: u32, length: usize) -> VsockHeader {
        VsockHeader {
            length: length.try_into().unwrap(),
            ..self.header(port, op::DATA)
        }
    }

    fn listener(&self, port: u32) -> UnixListener {
        UnixListener::bind(self.port_path(port)).unwrap()
    }

    fn port_path(&self, port: u32) -> PathBuf {
        PathBuf::from(format!("{}_{port}", self.path.display()))
    }

    /// A connection of the guest to port 80 of the host.
    fn connected(&mut self) -> UnixStream {
        let listener = self.listener(80);
        self.say(self.header(80, op::REQUEST), b"");
        self.receive(op::RESPONSE);
        std::fs::remove_file(self.port_path(80)).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
    }
}

#[test]
fn the_guest_connects_to_the_host() {
    let mut world = World::new();
    let mut stream = world.connected();
    world.say(world.data(80, 5), b"hello");
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    stream.write_all(b"and back").unwrap();
    let (header, bytes) = world.receive(op::DATA);
    assert_eq!((&bytes[..], header.forwarded), (&b"and back"[..], 5));
    // The host shuts down one direction, and the guest both.
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(world.receive(op::SHUTDOWN).0.flags, shutdown::SEND);
    world.say(world.data(80, 4), b"more");
    let end = VsockHeader {
        flags: shutdown::BOTH,
        ..world.header(80, op::SHUTDOWN)
    };
    world.say(end, b"");
    world.receive(op::RESET);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), world.next()), ("more", None));
    let counts = world.counters.read();
    assert_eq!((counts.connections, counts.refused), (1, 0));
    assert_eq!((counts.sent_bytes, counts.received_bytes), (9, 8));
}

#[test]
fn the_host_connects_to_the_guest() {
    let mut world = World::new();
    let mut stream = UnixStream::connect(&world.path).unwrap();
    assert_eq!(world.next(), None);
    stream.write_all(b"CONNECT 70\nfirst").unwrap();
    let (request, _) = world.receive(op::REQUEST);
    assert_eq!((request.dst_port, request.src_cid), (70, 2));
    assert_eq!(world.next(), None, "nothing before the guest agrees");
    let port = request.src_port;
    world.say(world.header(port, op::RESPONSE), b"");
    assert_eq!(world.receive(op::DATA).1, b"first");
    let mut line = vec![0; format!("OK {port}\n").len()];
    stream.read_exact(&mut line).unwrap();
    assert_eq!(line, format!("OK {port}\n").into_bytes());
    // The host's program ends.
    drop(stream);
    assert_eq!(world.receive(op::SHUTDOWN).0.flags, shutdown::BOTH);
    world.say(world.header(port, op::RESET), b"");
    assert_eq!(world.next(), None);
    // A refused connection, and a bad line.
    for line in ["CONNECT 71\n", "GET / HTTP/1.1\n"] {
        let mut stream = UnixStream::connect(&world.path).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        if let Some((request, _)) = world.next() {
            assert_eq!((request.op, request.dst_port), (op::REQUEST, 71));
            world.say(request.answer(op::RESET), b"");
        }
        assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0, "{line}");
    }
    assert_eq!(world.counters.read().refused, 1);
}

#[test]
fn credit_limits_both_ends() {
    let mut world = World::new();
    let mut stream = world.connected();
    // The guest's buffer has 10,000 bytes.
    stream.write_all(&[1; 20_000]).unwrap();
    let mut came = 0;
    while let Some((header, bytes)) = world.next() {
        assert_eq!(header.op, op::DATA);
        came += bytes.len();
    }
    assert_eq!(came, 10_000);
    let update = VsockHeader {
        forwarded: 3,
        ..world.header(80, op::CREDIT_UPDATE)
    };
    world.say(update, b"");
    assert_eq!(world.receive(op::DATA).1.len(), 3);
    // The host's program reads nothing: the device keeps bytes up to its buffer's length.
    let mut credit = Credit::new(0);
    world.say(world.header(80, op::CREDIT_REQUEST), b"");
    credit.update(&world.receive(op::CREDIT_UPDATE).0);
    let mut sent = 0;
    loop {
        let length = credit.room().min(4000);
        if length == 0 {
            break;
        }
        world.say(world.data(80, length), &vec![2; length]);
        credit.send(length);
        sent += length;
        while let Some((header, _)) = world.next() {
            credit.update(&header);
        }
    }
    assert!(sent >= super::connection::BUFFER as usize);
    // The program reads again, and the guest gets credit.
    let mut all = vec![0; sent];
    let reader = std::thread::spawn(move || stream.read_exact(&mut all).map(|()| (stream, all)));
    let start = Instant::now();
    while credit.room() == 0 {
        assert!(start.elapsed() < Duration::from_secs(10));
        while let Some((header, _)) = world.next() {
            credit.update(&header);
        }
    }
    while !reader.is_finished() {
        assert!(start.elapsed() < Duration::from_secs(10));
        world.run().unwrap();
    }
    let (mut stream, all) = reader.join().unwrap().unwrap();
    assert!(all.iter().all(|&byte| byte == 2));
    // A guest that exceeds its credit is disconnected.
    while world.next().is_some() {}
    for _ in 0..2 * super::connection::BUFFER / 4000 {
        world.say(world.data(80, 4000), &[3; 4000]);
        if world
            .next()
            .is_some_and(|(header, _)| header.op == op::RESET)
        {
            break;
        }
    }
    stream.set_nonblocking(true).unwrap();
    let mut rest = Vec::new();
    // A reset, because the guest has not received all bytes either.
    let end = stream.read_to_end(&mut rest).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn bad_packets_are_answered_or_ignored() {
    let mut world = World::new();
    for (wrong, is_answered) in [
        (world.header(81, op::REQUEST), true),
        (world.data(81, 0), true),
        (world.header(81, op::RESET), false),
        (
            VsockHeader {
                kind: 2,
                ..world.header(81, op::REQUEST)
            },
            true,
        ),
        (
            VsockHeader {
                dst_cid: 3,
                ..world.header(81, op::REQUEST)
            },
            true,
        ),
        (
            VsockHeader {
                src_cid: 3,
                ..world.header(81, op::REQUEST)
            },
            false,
        ),
        (world.header(81, 99), true),
    ] {
        world.say(wrong, b"");
        world.run().unwrap();
        let answered = world.receive.take();
        assert_eq!(answered.is_some(), is_answered, "{wrong:?}");
        if answered.is_some() {
            world.receive.give(BUFFER, WRITE);
        }
    }
    // For a connection: a second request, a response without a request.
    for wrong in [op::REQUEST, op::RESPONSE, 99] {
        let mut stream = world.connected();
        world.say(world.header(80, wrong), b"");
        world.receive(op::RESET);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    // Without RX buffers, the number of pending replies has a limit.
    while world.receive.take().is_some() {}
    let mut answers = 0;
    loop {
        world.transmit.give(HEADER, 0);
        world.run().unwrap();
        match world.transmit.take() {
            Some(_) => answers += 1,
            None => break,
        }
        assert!(answers < 1000, "no limit");
    }
}

#[test]
fn broken_packets_stop_the_device() {
    for (length, flags) in [(20, 0), (43, 0), (100, WRITE)] {
        let mut world = World::new();
        world.transmit.give(length, flags);
        assert_eq!(world.run(), Err(DeviceError::Buffer), "{length} {flags}");
    }
    let mut world = World::new();
    let at = world.transmit.buffer(0);
    let header = world.data(80, 1000).to_bytes();
    world
        .transmit
        .memory
        .map()
        .write_slice(&header, at)
        .unwrap();
    world.transmit.give(HEADER + 999, 0);
    assert_eq!(world.run(), Err(DeviceError::Buffer));
}

/// Raises this process's limit of descriptors.
fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn connections_have_a_limit() {
    raise_limit();
    let mut world = World::new();
    let mut streams = Vec::new();
    for _ in 0..=MAX_CONNECTIONS {
        streams.push(UnixStream::connect(&world.path).unwrap());
        world.run().unwrap();
    }
    let mut last = streams.pop().unwrap();
    assert_eq!(last.read(&mut [0]).unwrap(), 0);
    streams[0].set_nonblocking(true).unwrap();
    let waits = streams[0].read(&mut [0]).unwrap_err();
    assert_eq!(waits.kind(), ErrorKind::WouldBlock);
    // The end of a connection makes room.
    streams.truncate(MAX_CONNECTIONS - 1);
    world.run().unwrap();
    let mut stream = UnixStream::connect(&world.path).unwrap();
    stream.write_all(b"CONNECT 1\n").unwrap();
    world.receive(op::REQUEST);
}

/// A guest that receives no packets and keeps connecting uses no more memory.
#[test]
fn a_closed_connection_leaves_the_queue() {
    let mut world = World::new();
    let listener = world.listener(80);
    for _ in 0..2 * SIZE {
        world.say(world.header(80, op::REQUEST), b"");
        drop(listener.accept().unwrap());
        world.say(world.header(80, op::RESET), b"");
    }
    assert_eq!(world.worker.connections.queued.len(), 0);
    std::fs::remove_file(world.port_path(80)).unwrap();
}

#[test]
fn sockets_are_made_and_removed() {
    let world = World::new();
    let path = world.path.clone();
    assert!(matches!(Host::bind(&path), Err(HostError::Exists { .. })));
    assert!(path.exists());
    drop(world);
    assert!(!path.exists());
    let long = PathBuf::from(format!("/tmp/{}", "x".repeat(100)));
    assert!(matches!(Host::bind(&long), Err(HostError::TooLong { .. })));
    let missing = PathBuf::from("/nonexistent/socket");
    assert!(matches!(
        Host::bind(&missing),
        Err(HostError::Failed { .. })
    ));
}
