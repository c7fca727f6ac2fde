//! One device of each kind, with backends that need no real host programs.

use crate::guest::{LENGTH, Ram, SEVERAL, Watcher};
use hartline_abi::virtio::NetHeader;
use hartline_devices::block::{Block, Image};
use hartline_devices::console::{Console, Outputs};
use hartline_devices::limiter::OwnLimits;
use hartline_devices::net::{Backend, Net};
use hartline_devices::rng::Rng;
use hartline_devices::virtio::mmio::Transport;
use hartline_devices::virtio::{Buffers, Device, Guest};
use hartline_devices::vsock::{Host, Vsock};
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Length of the disk, bytes.
const DISK: u64 = 64 << 10;
/// The most bytes of an output of the console.
const LIMIT: u64 = 1 << 20;
/// The longest time for the console's outputs to drain: a guest can send all the time.
const FLUSH_PATIENCE: Duration = Duration::from_millis(100);
/// The guest's CID.
const CID: u32 = 3;

/// The file behind the disk.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("hartline-fuzz-{}", std::process::id()));
    let file = File::create(&path).expect("a temporary file");
    file.set_len(DISK).expect("its length");
    path
});

/// The Unix socket for the host's programs, and the socket at port 0 of the host.
static SOCKET: LazyLock<PathBuf> = LazyLock::new(|| {
    std::env::temp_dir().join(format!("hartline-fuzz-vsock-{}", std::process::id()))
});
static SERVER: LazyLock<UnixListener> = LazyLock::new(|| {
    let path = format!("{}_0", SOCKET.display());
    let server = UnixListener::bind(path).expect("a socket");
    server.set_nonblocking(true).expect("its mode");
    server
});

/// A network backend: it delivers a few packets, and checks the packets that the guest sends.
#[derive(Debug)]
struct Wire {
    ram: Range<usize>,
    packets: usize,
    used: bool,
}

impl Wire {
    fn check(&self, buffers: &Buffers) -> usize {
        for buffer in buffers.vectors() {
            let start = buffer.iov_base as usize;
            let end = start.checked_add(buffer.iov_len).expect("no end");
            assert!(self.ram.start <= start && end <= self.ram.end);
        }
        buffers.length()
    }
}

impl Backend for Wire {
    fn mtu(&self) -> u16 {
        1500
    }

    fn offloads(&self) -> u64 {
        0
    }

    fn set_active(&mut self, active: bool) -> io::Result<()> {
        assert_ne!(std::mem::replace(&mut self.used, active), active);
        Ok(())
    }

    fn set_offloads(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self, buffers: &Buffers) -> io::Result<usize> {
        assert!(self.used);
        let room = self.check(buffers);
        self.packets = self
            .packets
            .checked_sub(1)
            .ok_or(io::ErrorKind::WouldBlock)?;
        Ok(room.min(NetHeader::LENGTH + 150 * self.packets))
    }

    fn write(&mut self, buffers: &Buffers) -> io::Result<()> {
        self.check(buffers);
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A device and its backend.
pub struct Bench {
    pub transport: Transport,
    sleeps: Box<dyn Fn() -> u64>,
    console: Option<Arc<Console>>,
    /// Programs of the host; one of them has asked for a port and sent something.
    clients: Vec<UnixStream>,
}

impl Bench {
    /// Makes the device that the first byte of an input selects.
    pub fn new(kind: u8, ram: &Ram, watcher: &Arc<Watcher>) -> Self {
        let memory = ram.memory();
        let guest = Arc::clone(watcher) as Arc<dyn Guest>;
        let (mut console, mut clients) = (None, Vec::new());
        let (device, sleeps): (Box<dyn Device>, Box<dyn Fn() -> u64>) = match kind & 9 {
            8 if kind & 2 != 0 => {
                let parts = (memory.clone(), guest);
                let made = Console::new(outputs(), LIMIT, Arc::new(|| ()), parts);
                let made = Arc::new(made.expect("a console"));
                let device = made.device();
                console = Some(Arc::clone(&made));
                // The console's outputs are drained after a flush.
                let flush = move || {
                    let end = Instant::now() + FLUSH_PATIENCE;
                    // The watcher knows if the guest broke a queue.
                    let _ = made.flush(&|| Instant::now() >= end);
                    1
                };
                (device, Box::new(flush))
            }
            9 => {
                LazyLock::force(&SERVER);
                let host = Host::bind(&SOCKET).expect("a socket");
                clients.extend(UnixStream::connect(&*SOCKET));
                for client in clients.iter_mut().take((kind >> 4).into()) {
                    client.write_all(b"CONNECT 0\nhello").expect("room");
                }
                let vsock = Vsock::new(host, CID, Duration::ZERO, memory.clone(), guest);
                let vsock = vsock.expect("a socket device");
                let counters = vsock.counters();
                (Box::new(vsock), Box::new(move || counters.read().sleeps))
            }
            8 => {
                let rng = Rng::new(memory.clone(), guest);
                let counters = rng.counters();
                // The device has no thread: it is done when the notification returns.
                (Box::new(rng), Box::new(move || counters.read().kicks))
            }
            0 => {
                let image = Image::open(&FILE, kind & 2 != 0).expect("an image");
                let limits = Arc::<OwnLimits>::default();
                let block = Block::new(image, Duration::ZERO, limits, memory.clone(), guest);
                let block = block.expect("a disk");
                let counters = block.counters();
                (Box::new(block), Box::new(move || counters.read().sleeps))
            }
            _ => {
                let net = net(kind, ram, guest);
                let counters = net.counters();
                let sleeps = move || counters.iter().map(|pair| pair.read().sleeps).sum();
                (Box::new(net), Box::new(sleeps))
            }
        };
        Self {
            transport: Transport::new(device, memory),
            sleeps,
            console,
            clients,
        }
    }

    /// Returns how often the device's thread has found no more work.
    pub fn sleeps(&self) -> u64 {
        (self.sleeps)()
    }

    /// Closes the host's sockets, including those that the guest has reached, and resets the
    /// device.
    pub fn end(mut self, ram: &Ram) {
        self.clients.clear();
        while SERVER.accept().is_ok() {}
        self.transport.reset();
        if let Some(console) = self.console.take() {
            // A queue may be broken.
            let _ = console.finish(None);
        }
        assert_eq!(fs::metadata(&*FILE).map_or(DISK, |file| file.len()), DISK);
        ram.check();
    }
}

fn net(kind: u8, ram: &Ram, guest: Arc<dyn Guest>) -> Net {
    let addresses = ram.addresses();
    assert_eq!(addresses.len(), LENGTH);
    let wire = |used| Wire {
        ram: addresses.clone(),
        packets: usize::from(kind >> 4),
        used,
    };
    let mut backends: Vec<Box<dyn Backend>> = vec![Box::new(wire(true))];
    if kind & SEVERAL == SEVERAL {
        backends.push(Box::new(wire(false)));
    }
    let net = Net::new(
        backends,
        [2; 6],
        Duration::ZERO,
        Arc::<OwnLimits>::default(),
        Arc::new(|| ()),
        (ram.memory(), guest),
    );
    net.expect("a network device")
}

/// Makes a console's three outputs, which no program reads.
fn outputs() -> Outputs {
    let file = |path| -> OwnedFd {
        let mut options = File::options();
        options.write(true).open(path).expect("a device").into()
    };
    Outputs::new(["/dev/null", "/dev/full", "/dev/zero"].map(file))
}
