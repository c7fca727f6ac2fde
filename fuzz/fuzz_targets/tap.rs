//! The TAP backend, with io_uring where the host has it, between the rings of a hostile guest and
//! the packets of a hostile network. The network receives only packets of the guest, and the
//! backend writes only to the guest's buffers.
//!
//! A datagram socket replaces the interface: except for the interface's settings, it works like a
//! TAP descriptor. The device is restarted for each input, since io_uring's queues are expensive to
//! make.

#![no_main]

mod guest;

use guest::{Ram, Watcher, begin, read};
use hartline_abi::virtio::{register, status};
use hartline_devices::limiter::OwnLimits;
use hartline_devices::net::{Backend, Batch, Counters, Net, Tap};
use hartline_devices::virtio::mmio::Transport;
use hartline_devices::virtio::{Buffers, Guest};
use libfuzzer_sys::fuzz_target;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The kind of the device: one queue pair. `FREE` has the bits that the input sets.
const NET: u8 = 1;
const FREE: u8 = 0x14;
/// The most packets from the network, and the most bytes of one.
const PACKETS: usize = 64;
const LONGEST: usize = 2048;

/// A TAP interface without settings.
#[derive(Debug)]
struct Interface(Tap);

impl Backend for Interface {
    fn mtu(&self) -> u16 {
        self.0.mtu()
    }

    fn offloads(&self) -> u64 {
        self.0.offloads()
    }

    fn set_offloads(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self, buffers: &Buffers) -> io::Result<usize> {
        self.0.read(buffers)
    }

    fn write(&mut self, buffers: &Buffers) -> io::Result<()> {
        self.0.write(buffers)
    }

    fn write_all(&mut self, packets: &[&Buffers], done: &mut dyn FnMut(usize, io::Result<()>)) {
        let mut told = vec![false; packets.len()];
        let mut tell = |number: usize, result| {
            assert!(!std::mem::replace(&mut told[number], true));
            done(number, result);
        };
        self.0.write_all(packets, &mut tell);
        assert!(told.iter().all(|&told| told));
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}

struct Bench {
    ram: Ram,
    watcher: Arc<Watcher>,
    transport: Transport,
    counters: Vec<Arc<Counters>>,
    /// The device's end of the socket pair, and the network's end.
    interface: UnixDatagram,
    network: UnixDatagram,
}

static BENCH: LazyLock<Mutex<Bench>> =
    LazyLock::new(|| Mutex::new(Bench::new().expect("a device")));

impl Bench {
    fn new() -> io::Result<Self> {
        let (interface, network) = UnixDatagram::pair()?;
        for end in [&interface, &network] {
            end.set_nonblocking(true)?;
        }
        let batch = Batch::new();
        if let Err(error) = &batch {
            eprintln!("packets are written one by one: no io_uring here: {error}");
        }
        let file = File::from(OwnedFd::from(interface.try_clone()?));
        let backend = Interface(Tap::from_file(file, 1500, batch.ok()));
        let ram = Ram::new(&[]);
        let watcher = Arc::new(Watcher::default());
        let net = Net::new(
            vec![Box::new(backend)],
            [2; 6],
            Duration::ZERO,
            Arc::<OwnLimits>::default(),
            Arc::new(|| ()),
            (ram.memory(), Arc::clone(&watcher) as Arc<dyn Guest>),
        )?;
        // Discard the packets that the backend has sent to the socket.
        take(&network);
        let counters = net.counters();
        let transport = Transport::new(Box::new(net), ram.memory());
        Ok(Self {
            ram,
            watcher,
            transport,
            counters,
            interface,
            network,
        })
    }

    fn sleeps(&self) -> u64 {
        self.counters.iter().map(|pair| pair.read().sleeps).sum()
    }

    fn run(&mut self, kind: u8, packets: &[u8], contents: &[u8]) {
        self.ram.fill(contents);
        self.watcher.failed.store(false, Ordering::SeqCst);
        // The first byte gives the length of the next packet.
        let mut rest = packets;
        for _ in 0..PACKETS {
            let Some((&length, after)) = rest.split_first() else {
                break;
            };
            let length = (usize::from(length) * 8).min(LONGEST);
            let (packet, later) = after.split_at(after.len().min(length));
            // A full queue drops the packet.
            let _ = self.network.send(packet);
            rest = later;
        }
        let (sleeps, before) = (self.sleeps(), self.counters[0].read());
        begin(&mut self.transport, kind & FREE | NET);
        let start = Instant::now();
        let mut sent = 0;
        while read(&self.transport, register::STATUS) & status::DRIVER_OK != 0
            && self.sleeps() == sleeps
            && !self.watcher.failed.load(Ordering::SeqCst)
            && start.elapsed() < Duration::from_millis(100)
        {
            sent += take(&self.network);
            std::thread::yield_now();
        }
        self.transport.reset();
        sent += take(&self.network);
        // No packet is lost without being counted, and none is invented.
        let after = self.counters[0].read();
        assert_eq!(after.sent_packets - before.sent_packets, sent);
        assert!(after.received_packets - before.received_packets <= PACKETS as u64);
        self.ram.check();
        // Discard the packets that the guest had no buffer for.
        take(&self.interface);
    }
}

/// Receives all packets that wait at an end. Result: their number.
fn take(end: &UnixDatagram) -> u64 {
    let mut packet = [0; LONGEST];
    let mut count = 0;
    loop {
        match end.recv(&mut packet) {
            Ok(_) => count += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return count,
            Err(error) => panic!("{error}"),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let [kind, length, input @ ..] = input else {
        return;
    };
    let (packets, contents) = input.split_at(input.len().min(usize::from(*length) * 8));
    let mut bench = BENCH.lock().unwrap_or_else(PoisonError::into_inner);
    bench.run(*kind, packets, contents);
});
