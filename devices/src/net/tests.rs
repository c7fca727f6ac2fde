//! Good and bad commands of a test driver for several pairs of queues.

use super::control::{ERROR, OK, SET_PAIRS};
use super::device::{CTRL_VQ, MQ};
use super::*;
use crate::limiter::OwnLimits;
use crate::virtio::tests::{AVAILABLE, BASE, NEXT, WRITE, Watcher, memory, queue, queue_at};
use crate::virtio::{ActivateError, Buffers, Device, DeviceError, Guest, Memory};
use hartline_abi::virtio::NetHeader;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use virtio_queue::{Queue, QueueState};
use vm_memory::{Bytes, GuestAddress};

/// A backend without packets, which knows whether it is active.
#[derive(Debug, Default)]
struct Wire {
    is_active: Arc<AtomicBool>,
}

impl Backend for Wire {
    fn mtu(&self) -> u16 {
        1500
    }

    fn offloads(&self) -> u64 {
        0
    }

    fn set_active(&mut self, active: bool) -> io::Result<()> {
        let before = self.is_active.swap(active, Ordering::SeqCst);
        assert_ne!(before, active, "no change");
        Ok(())
    }

    fn set_offloads(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self, _: &Buffers) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn write(&mut self, _: &Buffers) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

const BOTH: u64 = CTRL_VQ | MQ;
const PAIRS: usize = 3;
/// The control queue, behind those of all pairs.
const CONTROL: u32 = 6;
const _: () = assert!(CONTROL as usize == 2 * PAIRS);
/// Address of the commands.
const COMMANDS: u64 = BASE + 0x8000;

/// A device with three pairs, the guest's memory, and the state of the backends and threads.
struct Bench {
    memory: Memory,
    device: Net,
    active: Vec<Arc<AtomicBool>>,
    threads: Arc<AtomicUsize>,
    watcher: Arc<Watcher>,
}

impl Bench {
    fn new() -> Bench {
        let memory = memory();
        let watcher = Arc::new(Watcher::default());
        let active: Vec<Arc<AtomicBool>> = (0..PAIRS).map(|_| Arc::default()).collect();
        let wire = |is_active: &Arc<AtomicBool>| {
            let is_active = Arc::clone(is_active);
            Box::new(Wire { is_active }) as Box<dyn Backend>
        };
        let threads = Arc::<AtomicUsize>::default();
        let started = Arc::clone(&threads);
        let init_thread = Arc::new(move || {
            started.fetch_add(1, Ordering::SeqCst);
        });
        let guest = Arc::clone(&watcher) as Arc<dyn Guest>;
        let device = Net::new(
            active.iter().map(wire).collect(),
            [2; 6],
            Duration::ZERO,
            Arc::<OwnLimits>::default(),
            init_thread,
            (memory.clone(), guest),
        );
        Bench {
            memory,
            device: device.unwrap(),
            active,
            threads,
            watcher,
        }
    }

    /// A queue without available chains.
    fn empty(&self, number: u64) -> Queue {
        queue_at(
            [0, 1, 2].map(|part| BASE + 0x4000 + number * 0x200 + part * 0x80),
            8,
        )
    }

    /// Activates the device with these features. The control queue has the commands, each a chain
    /// of the command's bytes and a byte for the answer.
    fn start(&mut self, features: u64, commands: &[&[u8]]) -> Result<(), ActivateError> {
        let map = self.memory.map();
        let mut chain = Vec::new();
        for (number, command) in (0u16..).zip(commands) {
            let at = COMMANDS + 0x100 * u64::from(number);
            map.write_slice(command, GuestAddress(at)).unwrap();
            map.write_obj(0xffu8, GuestAddress(at + 0x80)).unwrap();
            let length = command.len().try_into().unwrap();
            chain.push((at, length, NEXT, 2 * number + 1));
            chain.push((at + 0x80, 1, WRITE, 0));
            let slot = GuestAddress(AVAILABLE + 4 + 2 * u64::from(number));
            map.write_obj(2 * number, slot).unwrap();
        }
        let control = queue(&self.memory, &chain, commands.len().try_into().unwrap());
        let count = u64::from(self.device.pairs_with(features)) * 2;
        let mut queues: Vec<Queue> = (0..count).map(|number| self.empty(number)).collect();
        queues.push(control);
        queues.truncate(self.device.queues_with(features));
        self.device.activate(features, queues)
    }

    fn answer(&self, number: u64) -> u8 {
        let at = COMMANDS + 0x100 * number + 0x80;
        self.memory.map().read_obj(GuestAddress(at)).unwrap()
    }

    /// Whether the backends after the first one are active.
    fn active(&self) -> Vec<bool> {
        let active = self.active.iter().skip(1);
        active.map(|active| active.load(Ordering::SeqCst)).collect()
    }
}

/// The command that sets the number of pairs.
fn set(pairs: u16) -> [u8; 4] {
    let [low, high] = pairs.to_le_bytes();
    let [class, command] = SET_PAIRS;
    [class, command, low, high]
}

#[test]
fn pairs_become_active_and_inactive() {
    let mut bench = Bench::new();
    bench
        .start(BOTH, &[&set(3), &set(1), &set(2), &set(2)])
        .unwrap();
    assert_eq!(bench.active(), [false, false]);
    bench.device.notify(CONTROL);
    for number in 0..4 {
        assert_eq!(bench.answer(number), OK, "{number}");
    }
    assert_eq!(bench.active(), [true, false]);
    // Each pair has its own notifications.
    bench.device.notify(3);
    bench.device.notify(0);
    let kicks = |pair: &Arc<Counters>| pair.read().kicks;
    let kicks: Vec<u64> = bench.device.counters().iter().map(kicks).collect();
    assert_eq!(kicks, [1, 1, 0]);
    bench.device.reset();
    assert_eq!(bench.active(), [false, false]);
    // The first pair, two more, and one of them again.
    assert_eq!(bench.threads.load(Ordering::SeqCst), 4);
    bench.start(BOTH, &[&set(3)]).unwrap();
    bench.device.notify(CONTROL);
    assert_eq!((bench.answer(0), bench.active()), (OK, vec![true, true]));
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
        bench.start(BOTH, &[&set(2), bad]).unwrap();
        bench.device.notify(CONTROL);
        assert_eq!([bench.answer(0), bench.answer(1)], [OK, ERROR], "{bad:?}");
        assert_eq!(bench.active(), [true, false], "{bad:?}");
        assert_eq!(bench.watcher.failure(), None);
    }
}

#[test]
fn broken_commands_stop_the_device() {
    for chain in [
        // No buffer for the answer; an empty one; outside RAM.
        vec![(COMMANDS, 4, 0, 0)],
        vec![(COMMANDS, 4, NEXT, 1), (COMMANDS, 0, WRITE, 0)],
        vec![(0x1000, 4, NEXT, 1), (COMMANDS, 1, WRITE, 0)],
    ] {
        let mut bench = Bench::new();
        let mut queues: Vec<Queue> = (0..u64::from(CONTROL)).map(|n| bench.empty(n)).collect();
        queues.push(queue(&bench.memory, &chain, 1));
        bench.device.activate(BOTH, queues).unwrap();
        bench.device.notify(CONTROL);
        assert_eq!(bench.watcher.failure(), Some(DeviceError::Buffer));
        // The device ignores later notifications.
        bench.device.notify(CONTROL);
    }
}

#[test]
fn drivers_may_use_one_pair() {
    let mut bench = Bench::new();
    bench.start(0, &[]).unwrap();
    bench.device.notify(CONTROL);
    bench.device.reset();
    // The control queue is behind the only pair then.
    bench.start(CTRL_VQ, &[&set(2), &set(1)]).unwrap();
    bench.device.notify(2);
    assert_eq!([bench.answer(0), bench.answer(1)], [ERROR, OK]);
    assert_eq!(bench.active(), [false, false]);
    bench.device.reset();
    // VIRTIO_NET_F_MQ needs the control queue.
    let error = bench.start(MQ, &[]).unwrap_err();
    assert!(
        matches!(
            error,
            ActivateError::Features {
                missing: CTRL_VQ,
                ..
            }
        ),
        "{error}"
    );
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
    let header = u32::try_from(NetHeader::LENGTH).unwrap();
    let lengths = [0, header - 1, header, header + 5];
    let chains = lengths.map(|length| (BASE + 0x4000, length, 0, 0));
    let count = lengths.len().try_into().unwrap();
    for head in 0..count {
        let slot = GuestAddress(AVAILABLE + 4 + 2 * u64::from(head));
        memory.map().write_obj(head, slot).unwrap();
    }
    let transmit = queue(&memory, &chains, count);
    let receive = queue_at([0, 1, 2].map(|part| BASE + 0x6000 + part * 0x80), 8);
    device.activate(0, vec![receive, transmit]).unwrap();
    let counters = device.counters();
    // The thread sleeps after all packets are transmitted.
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

/// A backend that has packets to receive as long as there are any.
#[derive(Debug)]
struct Packets(Arc<AtomicUsize>);

impl Backend for Packets {
    fn mtu(&self) -> u16 {
        100
    }

    fn offloads(&self) -> u64 {
        0
    }

    fn set_offloads(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self, buffers: &Buffers) -> io::Result<usize> {
        let left = self.0.load(Ordering::SeqCst);
        let left = left.checked_sub(1).ok_or(io::ErrorKind::WouldBlock)?;
        self.0.store(left, Ordering::SeqCst);
        assert!(buffers.length() >= NetHeader::LENGTH + 100);
        Ok(NetHeader::LENGTH + 1)
    }

    fn write(&mut self, _: &Buffers) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

#[test]
fn a_stopped_device_goes_on_where_it_was() {
    let memory = memory();
    let watcher = Arc::new(Watcher::default());
    let packets = Arc::new(AtomicUsize::new(2));
    let mut device = Net::new(
        vec![Box::new(Packets(Arc::clone(&packets)))],
        [2; 6],
        Duration::ZERO,
        Arc::<OwnLimits>::default(),
        Arc::new(|| ()),
        (memory.clone(), Arc::clone(&watcher) as Arc<dyn Guest>),
    )
    .unwrap();
    assert!(device.queue_states().is_none());
    // Six buffers for packets, two of which become used, and one is taken for the next packet.
    let chains = [(BASE + 0x4000, 200, WRITE, 0); 6];
    for head in 0u16..6 {
        let slot = GuestAddress(AVAILABLE + 4 + 2 * u64::from(head));
        memory.map().write_obj(head, slot).unwrap();
    }
    let receive = queue(&memory, &chains, 6);
    let transmit = queue_at([0, 1, 2].map(|part| BASE + 0x6000 + part * 0x80), 8);
    device.activate(0, vec![receive, transmit]).unwrap();
    let counters = device.counters();
    let received = || counters[0].read().received_packets;
    let wait_for = |count: u64| {
        while received() < count {
            assert_eq!(watcher.failure(), None);
            std::thread::yield_now();
        }
        let slept = counters[0].read().sleeps;
        while counters[0].read().sleeps == slept {
            std::thread::yield_now();
        }
    };
    wait_for(2);
    let states = device.queue_states().unwrap();
    let position = |state: &QueueState| (state.next_avail, state.next_used);
    assert_eq!(
        states.iter().map(position).collect::<Vec<_>>(),
        [(2, 2), (0, 0)]
    );
    // Nothing happens any more.
    packets.store(3, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(received(), 2);
    device.reset();
    let queues = states
        .into_iter()
        .map(|state| Queue::try_from(state).unwrap());
    device.activate(0, queues.collect()).unwrap();
    wait_for(5);
    device.reset();
    assert_eq!(watcher.failure(), None);
}
