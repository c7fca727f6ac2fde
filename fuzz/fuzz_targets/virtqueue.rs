//! Registers, rings, descriptors and requests of a hostile guest: the network device, the block
//! device, the entropy device, the socket device and the console go on, or stop and say why. Nothing outside
//! the guest's RAM is read or written.

#![no_main]

use hartline_abi::console::{CONTROL_TRANSMIT, MAX_PORTS, console_feature, queues};
use hartline_abi::virtio::{NetHeader, device, feature, net_feature, register, status};
use hartline_devices::block::{Block, Image};
use hartline_devices::console::{Console, Outputs};
use hartline_devices::limiter::OwnLimits;
use hartline_devices::net::{Backend, Net};
use hartline_devices::rng::Rng;
use hartline_devices::virtio::mmio::Transport;
use hartline_devices::virtio::{Device, DeviceError, Guest, Memory};
use hartline_devices::vsock::{Host, Vsock};
use libfuzzer_sys::fuzz_target;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Where the guest has its memory, and how much.
const BASE: u64 = 1 << 32;
const LENGTH: usize = 64 << 10;
/// Bits of the first byte of an input with which there is a network device with two pairs of
/// queues, if the bit for the block and other devices is not set too.
const SEVERAL: u8 = 1 | 2;
/// Bit with which packets of a network device may be in several buffers.
const MERGES: u8 = 0x10;
/// Length of the disk, bytes.
const DISK: u64 = 64 << 10;
/// Most queues of a device: those of the console. Two pairs of a network device and its control
/// queue are fewer.
const QUEUES: u64 = queues(MAX_PORTS as u16) as u64;
/// Most bytes of an output of the console.
const LIMIT: u64 = 1 << 20;
/// Register writes of an input, each of a byte for the register and four for the value.
const WRITES: usize = 8;
const WRITE: usize = 5;

#[derive(Debug, Clone, Copy)]
#[repr(align(4096))]
struct Page {
    _bytes: [u8; 4096],
}

/// The file behind the disk.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("hartline-fuzz-{}", std::process::id()));
    let file = File::create(&path).expect("a temporary file");
    file.set_len(DISK).expect("its length");
    path
});

/// The socket of the host's programs, and that at port 0 of the host.
static SOCKET: LazyLock<PathBuf> = LazyLock::new(|| {
    std::env::temp_dir().join(format!("hartline-fuzz-vsock-{}", std::process::id()))
});
static SERVER: LazyLock<UnixListener> = LazyLock::new(|| {
    let path = format!("{}_0", SOCKET.display());
    let server = UnixListener::bind(path).expect("a socket");
    server.set_nonblocking(true).expect("its mode");
    server
});

/// The guest's CID.
const CID: u32 = 3;

#[derive(Debug, Default)]
struct Watcher {
    failed: AtomicBool,
}

impl Guest for Watcher {
    fn interrupt(&self) {}

    fn fail(&self, _: DeviceError) {
        self.failed.store(true, Ordering::SeqCst);
    }
}

/// A wire on which a few packets come, and those that go are looked at.
#[derive(Debug)]
struct Wire {
    ram: std::ops::Range<usize>,
    packets: usize,
    used: bool,
}

impl Wire {
    fn check(&self, buffers: &[libc::iovec]) -> usize {
        for buffer in buffers {
            let start = buffer.iov_base as usize;
            let end = start.checked_add(buffer.iov_len).expect("no end");
            assert!(self.ram.start <= start && end <= self.ram.end);
        }
        buffers.iter().map(|buffer| buffer.iov_len).sum()
    }
}

impl Backend for Wire {
    fn mtu(&self) -> u16 {
        1500
    }

    fn offloads(&self) -> u64 {
        0
    }

    fn set_used(&mut self, used: bool) -> io::Result<()> {
        assert_ne!(std::mem::replace(&mut self.used, used), used);
        Ok(())
    }

    fn set_offloads(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    unsafe fn read(&mut self, buffers: &[libc::iovec]) -> io::Result<usize> {
        assert!(self.used);
        let room = self.check(buffers);
        self.packets = self
            .packets
            .checked_sub(1)
            .ok_or(io::ErrorKind::WouldBlock)?;
        Ok(room.min(NetHeader::LENGTH + 150 * self.packets))
    }

    unsafe fn write(&mut self, buffers: &[libc::iovec]) -> io::Result<()> {
        self.check(buffers);
        Ok(())
    }

    fn descriptor(&self) -> RawFd {
        -1
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, input)) = input.split_first() else {
        return;
    };
    let (writes, contents) = input.split_at(input.len().min(WRITES * WRITE));
    let pages = Arc::new(Mutex::new(vec![
        Page { _bytes: [0; 4096] };
        LENGTH / size_of::<Page>()
    ]));
    let base: NonNull<u8> = match pages.lock() {
        Ok(mut pages) => NonNull::from(&mut pages[0]).cast(),
        Err(_) => return,
    };
    let count = contents.len().min(LENGTH);
    // SAFETY: inside the pages.
    unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), base.as_ptr(), count) };
    // SAFETY: the vector is not changed while the memory has it.
    let memory = unsafe { Memory::new(base, LENGTH, BASE, pages) }.expect("small");
    let watcher = Arc::new(Watcher::default());
    let start = base.as_ptr() as usize;
    let wire = |used| Wire {
        ram: start..start + LENGTH,
        packets: usize::from(kind >> 4),
        used,
    };
    let guest = Arc::clone(&watcher) as Arc<dyn Guest>;
    // Programs of the host, of which one has asked for a port and sent something.
    let mut clients = Vec::new();
    let mut consoles = Vec::new();
    let (device, sleeps): (Box<dyn Device>, Box<dyn Fn() -> u64>) = match kind & 9 {
        8 if kind & 2 != 0 => {
            let console = Console::new(outputs(), LIMIT, Arc::new(|| ()), (memory.clone(), guest));
            let console = Arc::new(console.expect("a console"));
            consoles.push(Arc::clone(&console));
            // What it was sent by then is written.
            let flush = move || {
                // That the guest broke a queue the watcher has heard.
                let _ = console.flush(&|| false);
                1
            };
            (consoles[0].device(), Box::new(flush))
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
            // It has no thread: it is done when the doorbell was rung.
            (Box::new(rng), Box::new(move || counters.read().doorbells))
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
                (memory.clone(), guest),
            );
            let net = net.expect("a network device");
            let counters = net.counters();
            let sleeps = move || counters.iter().map(|pair| pair.read().sleeps).sum();
            (Box::new(net), Box::new(sleeps))
        }
    };
    let mut transport = Transport::new(device, memory);
    begin(&mut transport, kind);
    // Until it has nothing more to do.
    let start = Instant::now();
    let is_on = |transport: &Transport| read(transport, register::STATUS) & status::DRIVER_OK != 0;
    while is_on(&transport)
        && sleeps() == 0
        && !watcher.failed.load(Ordering::SeqCst)
        && start.elapsed() < Duration::from_millis(100)
    {
        std::thread::yield_now();
    }
    for write in writes.chunks_exact(WRITE) {
        transport.write(u64::from(write[0]) * 4, &write[1..]);
        let mut bytes = [0; 8];
        transport.read(u64::from(write[0]), &mut bytes[..usize::from(write[1] % 9)]);
    }
    // The host's programs go, those that the guest has reached too.
    clients.clear();
    while SERVER.accept().is_ok() {}
    transport.reset();
    for console in consoles {
        // As above.
        let _ = console.finish(None);
    }
    assert_eq!(fs::metadata(&*FILE).expect("the file").len(), DISK);
});

/// A console of three ports: nobody reads what comes.
fn outputs() -> Outputs {
    let file = |path| -> OwnedFd {
        let mut options = File::options();
        options.write(true).open(path).expect("a device").into()
    };
    Outputs::new(["/dev/null", "/dev/full", "/dev/zero"].map(file))
}

fn read(transport: &Transport, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    transport.read(offset, &mut bytes);
    u32::from_le_bytes(bytes)
}

/// Starts the device as a driver does, with small rings at the start of RAM.
fn begin(transport: &mut Transport, kind: u8) {
    let is_console = read(transport, register::DEVICE_ID) == device::CONSOLE;
    let mut write = |offset, value: u64| transport.write(offset, &(value as u32).to_le_bytes());
    write(register::STATUS, 3);
    let features = feature::VERSION_1
        | if kind & 4 != 0 {
            feature::EVENT_INDEX
        } else {
            0
        }
        | if kind & (SEVERAL | 8) == SEVERAL {
            net_feature::CONTROL_QUEUE | net_feature::MULTIQUEUE
        } else {
            0
        }
        | if kind & (MERGES | 9) == MERGES | 1 {
            net_feature::MERGEABLE
        } else {
            0
        }
        | if is_console {
            console_feature::MULTIPORT
        } else {
            0
        };
    for half in 0..2 {
        write(register::DRIVER_FEATURES_SELECT, half);
        write(register::DRIVER_FEATURES, features >> (32 * half));
    }
    write(register::STATUS, 3 | u64::from(status::FEATURES_OK));
    for queue in 0..QUEUES {
        write(register::QUEUE_SELECT, queue);
        write(register::QUEUE_SIZE, 8);
        let at = BASE + queue * 0x200;
        for (place, address) in [
            (register::QUEUE_DESCRIPTORS, at),
            (register::QUEUE_AVAILABLE, at + 0x80),
            (register::QUEUE_USED, at + 0x100),
        ] {
            write(place, address);
            write(place + 4, address >> 32);
        }
        write(register::QUEUE_READY, 1);
    }
    let all = 3 | status::FEATURES_OK | status::DRIVER_OK;
    write(register::STATUS, all.into());
    write(register::QUEUE_NOTIFY, 0);
    // The control queues of a network device and of the console, which are done when that returns.
    write(register::QUEUE_NOTIFY, 4);
    write(register::QUEUE_NOTIFY, CONTROL_TRANSMIT.into());
}
