//! RX buffers: chains that were taken from the available ring and have no packet yet.

use crate::virtio::{Buffers, Chain, DeviceError, Direction, Memory, next_chain};
use hartline_abi::virtio::NetHeader;
use std::collections::VecDeque;
use virtio_queue::{Queue, QueueT};

/// Most pieces of memory of one read of the host (`IOV_MAX`).
const MAX_PIECES: usize = 1024;

/// RX chains in the order in which the driver made them available. They become used in this order.
#[derive(Debug)]
pub(super) struct RxBuffers {
    chains: VecDeque<Chain>,
    /// Length of all chains, bytes.
    room: usize,
    /// The memory of the chains, with adjacent pieces joined. Empty until there is room for a
    /// packet.
    pieces: Buffers,
    /// Largest length of a packet with its header, bytes.
    needed: usize,
    /// Smallest length of a chain, bytes.
    least: usize,
}

impl RxBuffers {
    /// No buffers, for packets of up to `needed` bytes with their [`NetHeader`]. If `merges`, a
    /// packet may be in several chains (`VIRTIO_NET_F_MRG_RXBUF`).
    pub fn new(needed: usize, merges: bool) -> Self {
        Self {
            chains: VecDeque::new(),
            room: 0,
            pieces: Buffers::default(),
            needed,
            // Section 5.1.6.3.1.
            least: if merges { NetHeader::LENGTH } else { needed },
        }
    }

    /// Takes available chains until they have room for a packet. Returns whether they have; if not,
    /// the driver must add buffers.
    ///
    /// # Errors
    /// The ring is broken, a chain is too short, all chains of a full ring are too short together,
    /// or the chains have more than `IOV_MAX` pieces.
    pub fn fill(&mut self, queue: &mut Queue, memory: &Memory) -> Result<bool, DeviceError> {
        if self.pieces.count() > 0 {
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

    /// Collects the memory of all chains. A driver's buffers are mostly adjacent, and the host
    /// handles one large piece faster than several small ones.
    fn join(&mut self) -> Result<(), DeviceError> {
        self.pieces.clear();
        for chain in &self.chains {
            self.pieces.join(&chain.buffers);
        }
        match self.pieces.count() > MAX_PIECES {
            true => Err(DeviceError::Buffer),
            false => Ok(()),
        }
    }

    /// The memory of all chains, after [`fill`](Self::fill) has found room.
    pub fn pieces(&self) -> &Buffers {
        &self.pieces
    }

    /// Removes the first chains, which contain a packet of `length` bytes, and stores their number
    /// as `num_buffers` in the packet's header. Returns each head with the number of used bytes.
    pub fn take(&mut self, length: usize) -> impl Iterator<Item = (u16, u32)> {
        self.pieces.clear();
        // There are fewer chains than entries of the queue.
        let (mut count, mut covered) = (0_u16, 0);
        // At least one chain, for the header.
        while let Some(chain) = self.chains.get(usize::from(count))
            && (count == 0 || covered < length)
        {
            covered += chain.length;
            count += 1;
        }
        self.room -= covered;
        if let Some(first) = self.chains.front() {
            let count = count.to_le_bytes();
            first.buffers.store(NetHeader::BUFFERS_OFFSET, &count);
        }
        let mut left = length;
        self.chains.drain(..usize::from(count)).map(move |chain| {
            let here = left.min(chain.length);
            left -= here;
            // A packet is never as long as this limit.
            (chain.head, u32::try_from(here).unwrap_or(u32::MAX))
        })
    }
}

/// Properties of all chains. Kani proves them for up to three chains of up to [`properties::MOST`]
/// bytes; tests try all of these.
#[cfg(any(test, kani))]
mod properties {
    use super::*;
    use crate::virtio::properties::assert_same;

    /// Largest length of a chain, bytes, and largest number of chains.
    pub const MOST: usize = NetHeader::LENGTH + 3;
    pub const CHAINS: usize = 3;

    /// Memory of the guest.
    pub type Ram = [[u8; MOST]; CHAINS];

    /// RX buffers with chains of these lengths. Each chain is cut into two buffers after `cut`
    /// bytes.
    fn rx_buffers(ram: &mut Ram, lengths: &[usize], cut: usize) -> RxBuffers {
        let mut rx = RxBuffers::new(NetHeader::LENGTH, true);
        for ((head, &length), bytes) in (0..).zip(lengths).zip(ram) {
            let base: *mut libc::c_void = bytes.as_mut_ptr().cast();
            let buffer = |from: usize, length| libc::iovec {
                iov_base: base.wrapping_byte_add(from),
                iov_len: length,
            };
            let cut = cut.min(length);
            rx.room += length;
            let list = vec![buffer(0, cut), buffer(cut, length - cut)];
            rx.chains.push_back(Chain {
                head,
                // SAFETY: `lengths` are at most MOST, so the buffers are inside `bytes`, which the
                // caller has as long as the result.
                buffers: unsafe { Buffers::of_test(list) },
                readable: 0,
                length,
            });
        }
        rx
    }

    /// A packet is in the first chains, and all of them but the last are full. The header has
    /// their number. The other chains stay, and so does their room.
    pub fn takes_in_order(ram: &mut Ram, lengths: &[usize], cut: usize, packet: usize) {
        let mut rx = rx_buffers(ram, lengths, cut);
        let all = rx.room;
        let mut left = packet;
        let mut count = 0;
        for (head, used) in rx.take(packet) {
            let length = lengths[usize::from(head)];
            assert_eq!(usize::from(head), count);
            assert_eq!(used as usize, left.min(length));
            left -= used as usize;
            count += 1;
        }
        assert_eq!(left, packet.saturating_sub(all));
        assert!(count == lengths.len() || left == 0);
        // No chain is taken needlessly, apart from the one for the header.
        let before: usize = lengths[..count.saturating_sub(1)].iter().sum();
        assert!(count <= 1 || before < packet);
        assert_eq!(rx.room, lengths[count..].iter().sum::<usize>());
        assert_eq!(rx.chains.len(), lengths.len() - count);
        if count > 0 {
            let at = NetHeader::BUFFERS_OFFSET;
            let stored = u16::from_le_bytes([ram[0][at], ram[0][at + 1]]);
            assert_eq!(usize::from(stored), count);
        }
    }

    /// The pieces are the memory of all chains in their order, and adjacent ones are joined.
    pub fn joins_all(ram: &mut Ram, lengths: &[usize], cut: usize) {
        let mut rx = rx_buffers(ram, lengths, cut);
        assert_eq!(rx.join(), Ok(()));
        let buffers: Vec<_> = rx
            .chains
            .iter()
            .flat_map(|chain| chain.buffers.vectors().iter().copied())
            .collect();
        assert_same(&buffers, rx.pieces().vectors());
        for pair in rx.pieces().vectors().windows(2) {
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
                // `fill` accepts no shorter chains.
                kani::assume((NetHeader::LENGTH..=MOST).contains(&length));
            }
            (lengths, count)
        }

        #[kani::proof]
        #[kani::unwind(10)]
        fn rx_buffers_take_in_order() {
            let (lengths, count) = any_lengths();
            let mut ram = [[0; MOST]; CHAINS];
            takes_in_order(&mut ram, &lengths[..count], kani::any(), kani::any());
        }

        #[kani::proof]
        #[kani::unwind(10)]
        fn rx_buffers_join_all() {
            let (lengths, count) = any_lengths();
            let mut ram = [[0; MOST]; CHAINS];
            joins_all(&mut ram, &lengths[..count], kani::any());
        }
    }

    #[test]
    fn all_short_chains() {
        const LENGTHS: usize = MOST - NetHeader::LENGTH + 1;
        for count in 0..=u32::try_from(CHAINS).unwrap() {
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
    use crate::virtio::tests::{AVAILABLE, BASE, NEXT, WRITE, memory, queue};
    use vm_memory::{Bytes, GuestAddress};

    const AT: u64 = BASE + 0x4000;

    /// A queue of 8 entries. Each buffer is a separate chain, and `count` chains are available.
    fn ring(memory: &Memory, buffers: &[(u64, u32)], count: u16) -> Queue {
        let chain = |&(at, length): &(u64, u32)| (at, length, WRITE, 0);
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
        let mut rx = RxBuffers::new(100, true);
        for (length, used) in [
            (12, vec![(0, 12)]),
            (100, vec![(1, 50), (2, 50)]),
            (51, vec![(3, 50), (4, 1)]),
            (0, vec![(5, 0)]),
        ] {
            assert_eq!(rx.fill(&mut queue, &memory), Ok(true));
            // Adjacent buffers are one piece.
            let [piece] = rx.pieces().vectors() else {
                panic!("{:?}", rx.pieces())
            };
            assert_eq!(piece.iov_len, 100);
            let taken: Vec<_> = rx.take(length).collect();
            assert_eq!(taken, used);
            let first = AT + 50 * u64::from(used[0].0);
            assert_eq!(usize::from(number(&memory, first)), used.len());
        }
        assert_eq!(rx.fill(&mut queue, &memory), Ok(true));
        assert_eq!(rx.take(60).count(), 2);
        // No buffers are left, which is no error.
        assert_eq!(rx.fill(&mut queue, &memory), Ok(false));
        assert_eq!(rx.pieces().count(), 0);
    }

    #[test]
    fn unused_buffers_are_kept() {
        let memory = memory();
        let buffers = [(AT, 12), (AT + 0x2000, 500), (AT + 0x1000, 100)];
        let mut queue = ring(&memory, &buffers, 3);
        let mut rx = RxBuffers::new(100, true);
        assert_eq!(rx.fill(&mut queue, &memory), Ok(true));
        assert_eq!(rx.pieces().count(), 2);
        assert_eq!(rx.take(12).collect::<Vec<_>>(), [(0, 12)]);
        assert_eq!(rx.fill(&mut queue, &memory), Ok(true));
        assert_eq!(rx.pieces().count(), 1);
        assert_eq!(rx.take(13).collect::<Vec<_>>(), [(1, 13)]);
        assert_eq!(rx.fill(&mut queue, &memory), Ok(true));
        assert_eq!(rx.take(100).collect::<Vec<_>>(), [(2, 100)]);
    }

    #[test]
    fn short_buffers_are_errors() {
        let memory = memory();
        let least = u32::try_from(NetHeader::LENGTH).unwrap();
        let many = |length| vec![(AT, length); 8];
        for (merges, needed, buffers, expected) in [
            (true, 100, vec![(AT, least - 1)], Err(DeviceError::Buffer)),
            (true, 100, vec![(AT, 0)], Err(DeviceError::Buffer)),
            // The ring is full, and its chains have no room for a packet.
            (true, 97, many(least), Err(DeviceError::Buffer)),
            (true, 96, many(least), Ok(true)),
            (true, 96, vec![(AT, least); 7], Ok(false)),
            (false, 100, vec![(AT, 99)], Err(DeviceError::Buffer)),
            (false, 100, vec![(AT, 100)], Ok(true)),
            (false, 100, vec![], Ok(false)),
            (true, 100, vec![(0x1000, 100)], Err(DeviceError::Buffer)),
        ] {
            let count = buffers.len().try_into().unwrap();
            let mut queue = ring(&memory, &buffers, count);
            let mut rx = RxBuffers::new(needed, merges);
            let found = rx.fill(&mut queue, &memory);
            assert_eq!(found, expected, "{merges} {needed} {buffers:x?}");
        }
        // A chain whose header is in three pieces, one of them empty.
        let pieces = [
            (AT, 5, WRITE | NEXT, 1),
            (AT + 0x100, 0, WRITE | NEXT, 2),
            (AT + 0x200, 6, WRITE | NEXT, 3),
            (AT + 0x300, 90, WRITE, 0),
        ];
        let mut chain = queue(&memory, &pieces, 1);
        let mut rx = RxBuffers::new(101, true);
        assert_eq!(rx.fill(&mut chain, &memory), Ok(true));
        assert_eq!(rx.pieces().count(), 3);
        assert_eq!(rx.take(100).collect::<Vec<_>>(), [(0, 100)]);
        let bytes: [u8; 2] = [0x205, 0x300].map(|at| {
            let at = GuestAddress(AT + at);
            memory.map().read_obj(at).unwrap()
        });
        assert_eq!(bytes, [1, 0]);
    }

    #[test]
    fn too_many_pieces_are_an_error() {
        let memory = memory();
        // Each chain is the same loop of 8 descriptors, which are not adjacent in memory.
        let looped: Vec<_> = (0..8u16)
            .map(|n| (AT + 0x100 * u64::from(n), 2, WRITE | NEXT, (n + 1) % 8))
            .collect();
        let mut queue = queue(&memory, &looped, 1);
        let mut rx = RxBuffers::new(usize::MAX, true);
        assert_eq!(rx.fill(&mut queue, &memory), Ok(false));
        let chain = rx.chains.pop_back().unwrap();
        let count = MAX_PIECES / chain.buffers.count();
        for number in 0..=count {
            assert_eq!(rx.join(), Ok(()), "{number}");
            rx.chains.push_back(Chain {
                head: 0,
                buffers: chain.buffers.clone(),
                readable: 0,
                length: chain.length,
            });
        }
        assert_eq!(rx.join(), Err(DeviceError::Buffer));
    }
}
