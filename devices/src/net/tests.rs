//! Commands for several pairs of queues, good and bad, of a driver that is written here.

use super::*;
use crate::limiter::OwnLimits;
use crate::virtio::DeviceError;
use crate::virtio::tests::{AVAILABLE, BASE, Watcher, memory, queue, queue_at};
use hartline_abi::virtio::NetHeader;
use hartline_abi::virtio::net_command::{ERROR, MULTIQUEUE, OK, SET_PAIRS};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vm_memory::{Bytes, GuestAddress};

/// A wire on which nothing comes, and which knows whether somebody looks at it.
#[derive(Debug, Default)]
struct Wire {
    is_used: Arc<AtomicBool>,
}

impl Backend for Wire {
    fn mtu(&self) -> u16 {
        1500
    }

    fn offloads(&self) -> u64 {
        0
    }

    fn set_used(&mut self, used: bool) -> io::Result<()> {
        let before = self.is_used.swap(used, Ordering::SeqCst);
        assert_ne!(before, used, "told what it knows");
        Ok(())
    }

    fn set_offloads(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    unsafe fn read(&mut self, _: &[libc::iovec]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    unsafe fn write(&mut self, _: &[libc::iovec]) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> RawFd {
        -1
    }
}

const BOTH: u64 = net_feature::CONTROL_QUEUE | net_feature::MULTIQUEUE;
const PAIRS: usize = 3;
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
/// Where commands are.
const COMMANDS: u64 = BASE + 0x8000;

/// A device with three pairs, the guest's memory, and what is known outside.
struct Bench {
    memory: Memory,
    device: Net,
    used: Vec<Arc<AtomicBool>>,
    threads: Arc<AtomicUsize>,
    watcher: Arc<Watcher>,
}

impl Bench {
    fn new() -> Bench {
        let memory = memory();
        let watcher = Arc::new(Watcher::default());
        let used: Vec<Arc<AtomicBool>> = (0..PAIRS).map(|_| Arc::default()).collect();
        let wire = |is_used: &Arc<AtomicBool>| {
            let is_used = Arc::clone(is_used);
            Box::new(Wire { is_used }) as Box<dyn Backend>
        };
        let threads = Arc::<AtomicUsize>::default();
        let started = Arc::clone(&threads);
        let begin = Arc::new(move || {
            started.fetch_add(1, Ordering::SeqCst);
        });
        let guest = Arc::clone(&watcher) as Arc<dyn Guest>;
        let device = Net::new(
            used.iter().map(wire).collect(),
            [2; 6],
            Duration::ZERO,
            Arc::<OwnLimits>::default(),
            begin,
            (memory.clone(), guest),
        );
        Bench {
            memory,
            device: device.unwrap(),
            used,
            threads,
            watcher,
        }
    }

    /// A queue with nothing in it.
    fn empty(&self, number: u64) -> Queue {
        queue_at(
            [0, 1, 2].map(|part| BASE + 0x4000 + number * 0x200 + part * 0x80),
            8,
        )
    }

    /// Starts it with these features; its control queue has the commands, each a chain of the
    /// bytes of it and a byte for the answer, which a driver without that feature has too.
    fn start(&mut self, features: u64, commands: &[&[u8]]) -> bool {
        let map = self.memory.map();
        let mut chain = Vec::new();
        for (number, command) in (0u16..).zip(commands) {
            let at = COMMANDS + 0x100 * u64::from(number);
            map.write_slice(command, GuestAddress(at)).unwrap();
            map.write_obj(0xffu8, GuestAddress(at + 0x80)).unwrap();
            chain.push((at, command.len() as u32, NEXT, 2 * number + 1));
            chain.push((at + 0x80, 1, WRITABLE, 0));
            let slot = GuestAddress(AVAILABLE + 4 + 2 * u64::from(number));
            map.write_obj(2 * number, slot).unwrap();
        }
        let control = queue(&self.memory, &chain, commands.len() as u16);
        let count = self.device.pairs_with(features) as u64 * 2;
        let mut queues: Vec<Queue> = (0..count).map(|number| self.empty(number)).collect();
        queues.push(control);
        queues.truncate(self.device.queues_with(features));
        self.device.activate(features, queues)
    }

    fn answer(&self, number: u64) -> u8 {
        let at = COMMANDS + 0x100 * number + 0x80;
        self.memory.map().read_obj(GuestAddress(at)).unwrap()
    }

    fn used(&self) -> Vec<bool> {
        let used = self.used.iter().skip(1);
        used.map(|used| used.load(Ordering::SeqCst)).collect()
    }
}

fn set(pairs: u16) -> [u8; 4] {
    let [low, high] = pairs.to_le_bytes();
    [MULTIQUEUE, SET_PAIRS, low, high]
}

#[test]
fn pairs_are_used_and_not() {
    let mut bench = Bench::new();
    assert!(bench.start(BOTH, &[&set(3), &set(1), &set(2), &set(2)]));
    assert_eq!(bench.used(), [false, false]);
    bench.device.notify(2 * PAIRS as u32);
    for number in 0..4 {
        assert_eq!(bench.answer(number), OK, "{number}");
    }
    assert_eq!(bench.used(), [true, false]);
    // Each has its doorbell.
    bench.device.notify(3);
    bench.device.notify(0);
    let doorbells = |pair: &Arc<Counters>| pair.read().doorbells;
    let doorbells: Vec<u64> = bench.device.counters().iter().map(doorbells).collect();
    assert_eq!(doorbells, [1, 1, 0]);
    bench.device.reset();
    assert_eq!(bench.used(), [false, false]);
    // The first, two more, and one again.
    assert_eq!(bench.threads.load(Ordering::SeqCst), 4);
    assert!(bench.start(BOTH, &[&set(3)]));
    bench.device.notify(2 * PAIRS as u32);
    assert_eq!((bench.answer(0), bench.used()), (OK, vec![true, true]));
    assert_eq!(bench.watcher.failure(), None);
}

#[test]
fn bad_commands_change_nothing() {
    let [class, command, low, high] = set(1);
    let bad: [&[u8]; 8] = [
        &set(0),
        &set(4),
        &set(u16::MAX),
        &[class, command],
        &[class, command, low],
        &[class, command, low, high, 0],
        &[class + 1, command, low, high],
        &[class, command + 1, low, high],
    ];
    for bad in bad {
        let mut bench = Bench::new();
        assert!(bench.start(BOTH, &[&set(2), bad]));
        bench.device.notify(2 * PAIRS as u32);
        assert_eq!([bench.answer(0), bench.answer(1)], [OK, ERROR], "{bad:?}");
        assert_eq!(bench.used(), [true, false], "{bad:?}");
        assert_eq!(bench.watcher.failure(), None);
    }
}

#[test]
fn broken_commands_stop_the_device() {
    for chain in [
        // No room for the answer; a length that is none; outside RAM.
        vec![(COMMANDS, 4, 0, 0)],
        vec![(COMMANDS, 4, NEXT, 1), (COMMANDS, 0, WRITABLE, 0)],
        vec![(0x1000, 4, NEXT, 1), (COMMANDS, 1, WRITABLE, 0)],
    ] {
        let mut bench = Bench::new();
        let mut queues: Vec<Queue> = (0..2 * PAIRS as u64).map(|n| bench.empty(n)).collect();
        queues.push(queue(&bench.memory, &chain, 1));
        assert!(bench.device.activate(BOTH, queues));
        bench.device.notify(2 * PAIRS as u32);
        assert_eq!(bench.watcher.failure(), Some(DeviceError::Buffer));
        // It does not look again.
        bench.device.notify(2 * PAIRS as u32);
    }
}

#[test]
fn drivers_need_not_know_of_several() {
    let mut bench = Bench::new();
    assert!(bench.start(0, &[]));
    bench.device.notify(2 * PAIRS as u32);
    bench.device.reset();
    // The control queue is behind the only pair then.
    assert!(bench.start(net_feature::CONTROL_QUEUE, &[&set(2), &set(1)]));
    bench.device.notify(2);
    assert_eq!([bench.answer(0), bench.answer(1)], [ERROR, OK]);
    assert_eq!(bench.used(), [false, false]);
    bench.device.reset();
    // Without it nobody could ask for them.
    assert!(!bench.start(net_feature::MULTIQUEUE, &[]));
}

#[test]
fn packets_without_a_header_are_lost() {
    let memory = memory();
    let watcher = Arc::new(Watcher::default());
    let mut device = Net::new(
        vec![Box::<Wire>::default()],
        [2; 6],
        Duration::ZERO,
        Arc::<OwnLimits>::default(),
        Arc::new(|| ()),
        (memory.clone(), Arc::clone(&watcher) as Arc<dyn Guest>),
    )
    .unwrap();
    let header = NetHeader::LENGTH as u32;
    let lengths = [0, header - 1, header, header + 5];
    let chains = lengths.map(|length| (BASE + 0x4000, length, 0, 0));
    for head in 0..lengths.len() as u16 {
        let slot = GuestAddress(AVAILABLE + 4 + 2 * u64::from(head));
        memory.map().write_obj(head, slot).unwrap();
    }
    let transmit = queue(&memory, &chains, lengths.len() as u16);
    let receive = queue_at([0, 1, 2].map(|part| BASE + 0x6000 + part * 0x80), 8);
    assert!(device.activate(0, vec![receive, transmit]));
    let counters = device.counters();
    // It sleeps when it has sent all.
    while counters[0].read().sleeps == 0 && watcher.failure().is_none() {
        std::thread::yield_now();
    }
    device.reset();
    let counted = counters[0].read();
    assert_eq!(watcher.failure(), None);
    assert_eq!(
        (counted.dropped, counted.sent_packets, counted.sent_bytes),
        (2, 2, 5)
    );
}
