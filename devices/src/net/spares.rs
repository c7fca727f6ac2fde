//! Receive buffers of the guest that were taken from the ring and are not used yet.

use crate::virtio::{Chain, DeviceError, Direction, Memory, next_chain};
use hartline_abi::virtio::NetHeader;
use std::collections::VecDeque;
use virtio_queue::{Queue, QueueT};

/// Most pieces of memory that the host reads a packet into (`IOV_MAX`).
const MAX_PIECES: usize = 1024;

/// Chains in the order in which the guest made them available, and in which they are used.
#[derive(Debug)]
pub(super) struct Spares {
    chains: VecDeque<Chain>,
    /// Length of all of them, bytes.
    room: usize,
    /// The memory that they are made of, pieces that follow one another joined; none until there
    /// is room for a packet.
    pieces: Vec<libc::iovec>,
    /// Bytes that a packet may need.
    needed: usize,
    /// Bytes that each chain must have.
    least: usize,
}

impl Spares {
    /// None yet, for packets of up to `needed` bytes with their [`NetHeader`]. If they `merge`, a
    /// packet may be in several chains.
    pub fn new(needed: usize, merge: bool) -> Self {
        Self {
            chains: VecDeque::new(),
            room: 0,
            pieces: Vec::new(),
            needed,
            // Section 5.1.6.3.1.
            least: if merge { NetHeader::LENGTH } else { needed },
        }
    }

    /// Takes chains until a packet has room in them. Result: whether it has; otherwise the guest
    /// has to give more.
    ///
    /// # Errors
    /// A broken ring; a chain that is too short, all chains that the ring has being too short
    /// together, and more pieces than the host reads into.
    pub fn fill(&mut self, queue: &mut Queue, memory: &Memory) -> Result<bool, DeviceError> {
        if !self.pieces.is_empty() {
            return Ok(true);
        }
        while self.room < self.needed {
            if self.chains.len() >= usize::from(queue.size()) {
                return Err(DeviceError::Buffer);
            }
            let Some(chain) = next_chain(queue, memory, Direction::Write)? else {
                return Ok(false);
            };
            if chain.length < self.least {
                return Err(DeviceError::Buffer);
            }
            self.room += chain.length;
            self.chains.push_back(chain);
        }
        self.join()?;
        Ok(true)
    }

    /// Finds the memory of all chains. A driver's mostly follow one another there: one piece is
    /// less work for the host.
    fn join(&mut self) -> Result<(), DeviceError> {
        self.pieces.clear();
        for buffer in self.chains.iter().flat_map(|chain| &chain.buffers) {
            match self.pieces.last_mut() {
                Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == buffer.iov_base => {
                    last.iov_len += buffer.iov_len;
                }
                _ if buffer.iov_len == 0 => {}
                _ => self.pieces.push(*buffer),
            }
        }
        match self.pieces.len() > MAX_PIECES {
            true => Err(DeviceError::Buffer),
            false => Ok(()),
        }
    }

    /// The memory of all of them, once [`fill`](Self::fill) has found room.
    pub fn pieces(&self) -> &[libc::iovec] {
        &self.pieces
    }

    /// A packet of `length` bytes is in the first of them, as many as it needs: its header is told
    /// how many those are. The result are these chains, each with how much of it is used.
    pub fn take(&mut self, length: usize) -> impl Iterator<Item = (u16, u32)> {
        self.pieces.clear();
        let (mut count, mut covered) = (0, 0);
        // One for the header at least.
        while let Some(chain) = self.chains.get(count)
            && (count == 0 || covered < length)
        {
            covered += chain.length;
            count += 1;
        }
        self.room -= covered;
        if let Some(first) = self.chains.front() {
            first.store(NetHeader::BUFFERS_OFFSET, (count as u16).to_le_bytes());
        }
        let mut left = length;
        self.chains.drain(..count).map(move |chain| {
            let here = left.min(chain.length);
            left -= here;
            (chain.head, here as u32)
        })
    }
}

impl Chain {
    /// Stores bytes at an offset that one of the buffers has room for.
    fn store(&self, offset: usize, bytes: [u8; 2]) {
        for (at, byte) in (offset..).zip(bytes) {
            let mut left = at;
            for buffer in &self.buffers {
                if left < buffer.iov_len {
                    // SAFETY: inside a buffer in the guest's RAM.
                    unsafe { buffer.iov_base.cast::<u8>().add(left).write_volatile(byte) };
                    break;
                }
                left -= buffer.iov_len;
            }
        }
    }
}

/// What holds of all chains. Kani proves it for up to three of them, of up to [`properties::MOST`]
/// bytes; tests try all of these.
#[cfg(any(test, kani))]
mod properties {
    use super::*;
    use crate::virtio::buffers::properties::assert_same;

    /// Most bytes of a chain, and chains.
    pub const MOST: usize = NetHeader::LENGTH + 3;
    pub const CHAINS: usize = 3;

    /// Memory of the guest.
    pub type Ram = [[u8; MOST]; CHAINS];

    /// Chains of these lengths, each of two buffers, the first of which has `cut` bytes, or of
    /// one.
    fn spares(ram: &mut Ram, lengths: &[usize], cut: usize) -> Spares {
        let mut spares = Spares::new(NetHeader::LENGTH, true);
        for ((head, &length), bytes) in (0..).zip(lengths).zip(ram) {
            let base: *mut libc::c_void = bytes.as_mut_ptr().cast();
            let buffer = |from: usize, length| libc::iovec {
                iov_base: base.wrapping_byte_add(from),
                iov_len: length,
            };
            let cut = cut.min(length);
            spares.room += length;
            spares.chains.push_back(Chain {
                head,
                buffers: vec![buffer(0, cut), buffer(cut, length - cut)],
                readable: 0,
                length,
            });
        }
        spares
    }

    /// A packet that there is room for is in the first chains, each of which but the last is full;
    /// the header has their number; the other chains stay, with their room.
    pub fn takes_in_order(ram: &mut Ram, lengths: &[usize], cut: usize, packet: usize) {
        let mut spares = spares(ram, lengths, cut);
        let all = spares.room;
        // The header is in the first buffers in any case.
        let mut left = packet;
        let mut count = 0;
        for (head, used) in spares.take(packet) {
            let length = lengths[usize::from(head)];
            assert_eq!(usize::from(head), count);
            assert_eq!(used as usize, left.min(length));
            left -= used as usize;
            count += 1;
        }
        assert_eq!(left, packet.saturating_sub(all));
        assert!(count == lengths.len() || left == 0);
        // None is used up for nothing, but one for the header.
        let before: usize = lengths[..count.saturating_sub(1)].iter().sum();
        assert!(count <= 1 || before < packet);
        assert_eq!(spares.room, lengths[count..].iter().sum::<usize>());
        assert_eq!(spares.chains.len(), lengths.len() - count);
        if count > 0 {
            let at = NetHeader::BUFFERS_OFFSET;
            assert_eq!(
                u16::from_le_bytes([ram[0][at], ram[0][at + 1]]),
                count as u16
            );
        }
    }

    /// The host gets the memory of all chains in their order, in as few pieces as they are.
    pub fn joins_all(ram: &mut Ram, lengths: &[usize], cut: usize) {
        let mut spares = spares(ram, lengths, cut);
        assert_eq!(spares.join(), Ok(()));
        let buffers: Vec<_> = spares
            .chains
            .iter()
            .flat_map(|chain| chain.buffers.iter().copied())
            .collect();
        assert_same(&buffers, spares.pieces());
        for pair in spares.pieces().windows(2) {
            assert_ne!(
                pair[0].iov_base.wrapping_byte_add(pair[0].iov_len),
                pair[1].iov_base
            );
        }
    }

    #[cfg(kani)]
    mod proofs {
        use super::*;

        fn any_lengths() -> ([usize; CHAINS], usize) {
            let lengths: [usize; CHAINS] = kani::any();
            let count: usize = kani::any();
            kani::assume(count <= CHAINS);
            for length in lengths {
                // As `fill` takes them.
                kani::assume((NetHeader::LENGTH..=MOST).contains(&length));
            }
            (lengths, count)
        }

        #[kani::proof]
        #[kani::unwind(10)]
        fn spares_take_in_order() {
            let (lengths, count) = any_lengths();
            let mut ram = [[0; MOST]; CHAINS];
            takes_in_order(&mut ram, &lengths[..count], kani::any(), kani::any());
        }

        #[kani::proof]
        #[kani::unwind(10)]
        fn spares_join_all() {
            let (lengths, count) = any_lengths();
            let mut ram = [[0; MOST]; CHAINS];
            joins_all(&mut ram, &lengths[..count], kani::any());
        }
    }

    #[test]
    fn all_short_chains() {
        const LENGTHS: usize = MOST - NetHeader::LENGTH + 1;
        for count in 0..=CHAINS as u32 {
            for number in 0..LENGTHS.pow(count) {
                let digit = |n| NetHeader::LENGTH + number / LENGTHS.pow(n) % LENGTHS;
                let lengths: Vec<_> = (0..count).map(digit).collect();
                for cut in 0..=MOST {
                    joins_all(&mut [[0; MOST]; CHAINS], &lengths, cut);
                    for packet in 0..=CHAINS * MOST + 1 {
                        takes_in_order(&mut [[0; MOST]; CHAINS], &lengths, cut, packet);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio::tests::{AVAILABLE, BASE, memory, queue};
    use vm_memory::{Bytes, GuestAddress};

    const NEXT: u16 = 1;
    const WRITABLE: u16 = 2;
    const AT: u64 = BASE + 0x4000;

    /// A queue of 8 with these buffers, each a chain of its own, of which `count` are available.
    fn ring(memory: &Memory, buffers: &[(u64, u32)], count: u16) -> Queue {
        let chain = |&(at, length): &(u64, u32)| (at, length, WRITABLE, 0);
        let chains: Vec<_> = buffers.iter().map(chain).collect();
        for head in 0..8u16 {
            let slot = GuestAddress(AVAILABLE + 4 + 2 * u64::from(head));
            memory.map().write_obj(head, slot).unwrap();
        }
        queue(memory, &chains, count)
    }

    fn number(memory: &Memory, at: u64) -> u16 {
        let at = GuestAddress(at + NetHeader::BUFFERS_OFFSET as u64);
        memory.map().read_obj(at).unwrap()
    }

    #[test]
    fn packets_fill_buffers_in_order() {
        let memory = memory();
        let buffers: Vec<_> = (0..8).map(|n| (AT + 50 * n, 50)).collect();
        let mut queue = ring(&memory, &buffers, 8);
        let mut spares = Spares::new(100, true);
        for (length, used) in [
            (12, vec![(0, 12)]),
            (100, vec![(1, 50), (2, 50)]),
            (51, vec![(3, 50), (4, 1)]),
            (0, vec![(5, 0)]),
        ] {
            assert_eq!(spares.fill(&mut queue, &memory), Ok(true));
            // They are one piece of memory.
            let [piece] = spares.pieces() else {
                panic!("{:?}", spares.pieces())
            };
            assert_eq!(piece.iov_len, 100);
            let taken: Vec<_> = spares.take(length).collect();
            assert_eq!(taken, used);
            let first = AT + 50 * u64::from(used[0].0);
            assert_eq!(usize::from(number(&memory, first)), used.len());
        }
        assert_eq!(spares.fill(&mut queue, &memory), Ok(true));
        assert_eq!(spares.take(60).count(), 2);
        // None is left, and the guest is not wrong.
        assert_eq!(spares.fill(&mut queue, &memory), Ok(false));
        assert!(spares.pieces().is_empty());
    }

    #[test]
    fn large_buffers_are_kept() {
        let memory = memory();
        let buffers = [(AT, 12), (AT + 0x2000, 500), (AT + 0x1000, 100)];
        let mut queue = ring(&memory, &buffers, 3);
        let mut spares = Spares::new(100, true);
        assert_eq!(spares.fill(&mut queue, &memory), Ok(true));
        assert_eq!(spares.pieces().len(), 2);
        assert_eq!(spares.take(12).collect::<Vec<_>>(), [(0, 12)]);
        assert_eq!(spares.fill(&mut queue, &memory), Ok(true));
        assert_eq!(spares.pieces().len(), 1);
        assert_eq!(spares.take(13).collect::<Vec<_>>(), [(1, 13)]);
        assert_eq!(spares.fill(&mut queue, &memory), Ok(true));
        assert_eq!(spares.take(100).collect::<Vec<_>>(), [(2, 100)]);
    }

    #[test]
    fn guests_that_give_too_little() {
        let memory = memory();
        let least = NetHeader::LENGTH as u32;
        let many = |length| vec![(AT, length); 8];
        for (merge, needed, buffers, expected) in [
            (true, 100, vec![(AT, least - 1)], Err(DeviceError::Buffer)),
            (true, 100, vec![(AT, 0)], Err(DeviceError::Buffer)),
            // All that the ring has, and it is not enough.
            (true, 97, many(least), Err(DeviceError::Buffer)),
            (true, 96, many(least), Ok(true)),
            (true, 96, vec![(AT, least); 7], Ok(false)),
            (false, 100, vec![(AT, 99)], Err(DeviceError::Buffer)),
            (false, 100, vec![(AT, 100)], Ok(true)),
            (false, 100, vec![], Ok(false)),
            (true, 100, vec![(0x1000, 100)], Err(DeviceError::Buffer)),
        ] {
            let mut queue = ring(&memory, &buffers, buffers.len() as u16);
            let mut spares = Spares::new(needed, merge);
            let found = spares.fill(&mut queue, &memory);
            assert_eq!(found, expected, "{merge} {needed} {buffers:x?}");
        }
        // A chain, whose header is in three pieces, one of them empty.
        let pieces = [
            (AT, 5, WRITABLE | NEXT, 1),
            (AT + 0x100, 0, WRITABLE | NEXT, 2),
            (AT + 0x200, 6, WRITABLE | NEXT, 3),
            (AT + 0x300, 90, WRITABLE, 0),
        ];
        let mut chain = queue(&memory, &pieces, 1);
        let mut spares = Spares::new(101, true);
        assert_eq!(spares.fill(&mut chain, &memory), Ok(true));
        assert_eq!(spares.pieces().len(), 3);
        assert_eq!(spares.take(100).collect::<Vec<_>>(), [(0, 100)]);
        let bytes: [u8; 2] = [0x205, 0x300].map(|at| {
            let at = GuestAddress(AT + at);
            memory.map().read_obj(at).unwrap()
        });
        assert_eq!(bytes, [1, 0]);
    }

    #[test]
    fn pieces_have_an_end() {
        let memory = memory();
        // Each chain is the same circle of 8 descriptors, which do not follow one another.
        let circle: Vec<_> = (0..8u16)
            .map(|n| (AT + 0x100 * u64::from(n), 2, WRITABLE | NEXT, (n + 1) % 8))
            .collect();
        let mut queue = queue(&memory, &circle, 1);
        // As if there were many of them.
        let mut spares = Spares::new(usize::MAX, true);
        assert_eq!(spares.fill(&mut queue, &memory), Ok(false));
        let chain = spares.chains.pop_back().unwrap();
        let count = MAX_PIECES / chain.buffers.len();
        for number in 0..=count {
            assert_eq!(spares.join(), Ok(()), "{number}");
            spares.chains.push_back(Chain {
                head: 0,
                buffers: chain.buffers.clone(),
                readable: 0,
                length: chain.length,
            });
        }
        assert_eq!(spares.join(), Err(DeviceError::Buffer));
    }
}
