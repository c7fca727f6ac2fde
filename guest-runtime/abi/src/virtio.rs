//! Virtio 1.3 devices: the registers of the MMIO transport (section 4.2.2), status and
//! feature bits, and the header of network packets. The rings are as the specification has
//! them (section 2.7) and lie in private RAM.
//!
//! Device `n` has the page at [`crate::layout::DEVICE_BASE`]` + n * PAGE_SIZE`. Accesses to
//! it leave the VM: drivers make them to ring the doorbell of a device that sleeps. When they
//! start they make all of theirs by one host call ([`crate::call::Operation::Registers`]). Interrupts are bits of [`crate::boot::Shared::interrupts`].

/// Number of the network device: its page, and its bit in
/// [`crate::boot::Shared::interrupts`].
pub const NET_DEVICE: u64 = 0;

/// Number of the entropy device, which every VM has.
pub const RNG_DEVICE: u64 = 1;

/// Number of the first disk. Others follow it.
pub const FIRST_DISK: u64 = 2;

/// Number of the socket device ([`crate::vsock`]), behind the disks.
pub const VSOCK_DEVICE: u64 = FIRST_DISK + crate::boot::MAX_DISKS as u64;

/// Number of the console ([`crate::console`]), which every VM has.
pub const CONSOLE_DEVICE: u64 = VSOCK_DEVICE + 1;

/// Offsets of registers, all of 32 bits.
pub mod register {
    /// [`super::MAGIC`].
    pub const MAGIC: u64 = 0x000;
    /// [`super::VERSION`].
    pub const VERSION: u64 = 0x004;
    /// Type of the device ([`super::device`]).
    pub const DEVICE_ID: u64 = 0x008;
    /// Who made the device.
    pub const VENDOR_ID: u64 = 0x00c;
    /// Features that the device has, 32 of them.
    pub const DEVICE_FEATURES: u64 = 0x010;
    /// Which 32.
    pub const DEVICE_FEATURES_SELECT: u64 = 0x014;
    /// Features that the driver uses, 32 of them.
    pub const DRIVER_FEATURES: u64 = 0x020;
    /// Which 32.
    pub const DRIVER_FEATURES_SELECT: u64 = 0x024;
    /// The queue that the registers below are about.
    pub const QUEUE_SELECT: u64 = 0x030;
    /// Its largest size, or 0 if there is no such queue.
    pub const QUEUE_SIZE_MAX: u64 = 0x034;
    /// Its size.
    pub const QUEUE_SIZE: u64 = 0x038;
    /// 1: the queue is in use.
    pub const QUEUE_READY: u64 = 0x044;
    /// Doorbell: the number of a queue with new buffers.
    pub const QUEUE_NOTIFY: u64 = 0x050;
    /// Why there was an interrupt.
    pub const INTERRUPT_STATUS: u64 = 0x060;
    /// Which of that was handled.
    pub const INTERRUPT_ACKNOWLEDGE: u64 = 0x064;
    /// Status of the device ([`super::status`]); 0 resets it.
    pub const STATUS: u64 = 0x070;
    /// Guest-physical address of the descriptor table, low half; the high half follows.
    pub const QUEUE_DESCRIPTORS: u64 = 0x080;
    /// The same of the available ring.
    pub const QUEUE_AVAILABLE: u64 = 0x090;
    /// The same of the used ring.
    pub const QUEUE_USED: u64 = 0x0a0;
    /// Changes with the configuration.
    pub const CONFIG_GENERATION: u64 = 0x0fc;
    /// Start of the configuration of the device's type.
    pub const CONFIG: u64 = 0x100;
}

/// Value of [`register::MAGIC`]: "virt".
pub const MAGIC: u32 = 0x7472_6976;
/// Value of [`register::VERSION`].
pub const VERSION: u32 = 2;

/// Types of devices.
pub mod device {
    /// Network.
    pub const NET: u32 = 1;
    /// Block.
    pub const BLOCK: u32 = 2;
    /// Console.
    pub const CONSOLE: u32 = 3;
    /// Entropy.
    pub const RNG: u32 = 4;
    /// Sockets.
    pub const VSOCK: u32 = 19;
}

/// Bits of [`register::STATUS`].
pub mod status {
    /// The guest has seen the device.
    pub const ACKNOWLEDGE: u32 = 1;
    /// The guest has a driver.
    pub const DRIVER: u32 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u32 = 4;
    /// The features are settled.
    pub const FEATURES_OK: u32 = 8;
    /// The device cannot go on until it is reset.
    pub const NEEDS_RESET: u32 = 0x40;
    /// The driver has given up.
    pub const FAILED: u32 = 0x80;
}

/// Feature bits of every device.
pub mod feature {
    /// Fields for suppressing notifications at the ends of the rings.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// Not a device of before version 1.
    pub const VERSION_1: u64 = 1 << 32;
    /// The device uses buffers in the order in which they were made available.
    pub const IN_ORDER: u64 = 1 << 35;
}

/// Feature bits of network devices (section 5.1.3).
pub mod net_feature {
    /// The device takes packets with partial checksums.
    pub const CHECKSUM: u64 = 1 << 0;
    /// The driver takes packets with partial checksums.
    pub const GUEST_CHECKSUM: u64 = 1 << 1;
    /// The configuration has the largest packet.
    pub const MTU: u64 = 1 << 3;
    /// The configuration has the address.
    pub const MAC: u64 = 1 << 5;
    /// The driver takes large TCP segments over IPv4.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// The driver takes large TCP segments over IPv6.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// The device takes large TCP segments over IPv4.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// The device takes large TCP segments over IPv6.
    pub const HOST_TSO6: u64 = 1 << 12;
    /// A packet may be in several receive buffers.
    pub const MERGEABLE: u64 = 1 << 15;
    /// There is a control queue.
    pub const CONTROL_QUEUE: u64 = 1 << 17;
    /// There may be several pairs of queues; needs [`CONTROL_QUEUE`].
    pub const MULTIQUEUE: u64 = 1 << 22;
    /// The driver takes several UDP datagrams over IPv4 in one packet.
    pub const GUEST_USO4: u64 = 1 << 54;
    /// The driver takes several UDP datagrams over IPv6 in one packet.
    pub const GUEST_USO6: u64 = 1 << 55;
    /// The device takes several UDP datagrams in one packet.
    pub const HOST_USO: u64 = 1 << 56;
}

/// Queue of received packets of pair `pair` (section 5.1.2).
#[must_use]
pub const fn net_receive(pair: u16) -> u16 {
    2 * pair
}

/// Queue of packets to send of pair `pair`.
#[must_use]
pub const fn net_transmit(pair: u16) -> u16 {
    2 * pair + 1
}

/// The control queue, behind `pairs` pairs: [`NetConfig::queue_pairs`] if
/// [`net_feature::MULTIQUEUE`] was agreed on, otherwise 1.
#[must_use]
pub const fn net_control(pairs: u16) -> u16 {
    2 * pairs
}

/// Most pairs of queues of a network device: as many as a VM has vCPUs.
pub const MAX_QUEUE_PAIRS: u16 = crate::boot::MAX_CPUS as u16;

/// A command of the control queue of network devices (section 5.1.6.5): class, command and
/// data, and then a byte that the device writes.
pub mod net_command {
    /// Class of the command for several pairs.
    pub const MULTIQUEUE: u8 = 4;
    /// How many pairs are used: 16 bits of data. After a reset it is one.
    pub const SET_PAIRS: u8 = 0;
    /// Done.
    pub const OK: u8 = 0;
    /// Not done.
    pub const ERROR: u8 = 1;
}

/// Configuration of a network device (section 5.1.4).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetConfig {
    /// Its address.
    pub mac: [u8; 6],
    /// Not used: there is no feature for it.
    pub status: u16,
    /// Pairs of queues.
    pub queue_pairs: u16,
    /// Largest IP packet, bytes.
    pub mtu: u16,
}

impl NetConfig {
    /// As it is in memory.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..6].copy_from_slice(&self.mac);
        bytes[6..8].copy_from_slice(&self.status.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.queue_pairs.to_le_bytes());
        bytes[10..].copy_from_slice(&self.mtu.to_le_bytes());
        bytes
    }
}

/// What precedes each packet (section 5.1.6).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// [`NetHeader::NEEDS_CHECKSUM`] and others.
    pub flags: u8,
    /// [`NetHeader::GSO_TCP4`] and others.
    pub gso_type: u8,
    /// Length of all headers of a large segment, bytes.
    pub header_length: u16,
    /// Payload of each packet that a large segment or several datagrams are cut into, bytes.
    pub gso_size: u16,
    /// From where on the checksum is to be computed.
    pub checksum_start: u16,
    /// Where it goes, from there.
    pub checksum_offset: u16,
    /// Receive buffers that the packet fills.
    pub buffers: u16,
}

impl NetHeader {
    /// Length, bytes.
    pub const LENGTH: usize = size_of::<NetHeader>();
    /// Flag: the checksum is that of the pseudo-header only.
    pub const NEEDS_CHECKSUM: u8 = 1;
    /// Flag: the checksum was found right.
    pub const DATA_VALID: u8 = 2;
    /// A packet as it is.
    pub const GSO_NONE: u8 = 0;
    /// A large TCP segment over IPv4.
    pub const GSO_TCP4: u8 = 1;
    /// A large TCP segment over IPv6.
    pub const GSO_TCP6: u8 = 4;
    /// UDP datagrams of one length, but for the last, behind one header.
    pub const GSO_UDP: u8 = 5;
    /// Where [`buffers`](Self::buffers) is in memory.
    pub const BUFFERS_OFFSET: usize = core::mem::offset_of!(NetHeader, buffers);

    /// From memory.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1, b0, b1] = bytes;
        Self {
            flags,
            gso_type,
            header_length: u16::from_le_bytes([h0, h1]),
            gso_size: u16::from_le_bytes([g0, g1]),
            checksum_start: u16::from_le_bytes([s0, s1]),
            checksum_offset: u16::from_le_bytes([o0, o1]),
            buffers: u16::from_le_bytes([b0, b1]),
        }
    }

    /// As it is in memory.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LENGTH] {
        let header = self.header_length.to_le_bytes();
        let size = self.gso_size.to_le_bytes();
        let start = self.checksum_start.to_le_bytes();
        let offset = self.checksum_offset.to_le_bytes();
        let buffers = self.buffers.to_le_bytes();
        [
            self.flags,
            self.gso_type,
            header[0],
            header[1],
            size[0],
            size[1],
            start[0],
            start[1],
            offset[0],
            offset[1],
            buffers[0],
            buffers[1],
        ]
    }
}

const _: () = assert!(NetHeader::LENGTH == 12 && size_of::<NetConfig>() == 12);

/// Longest packet with its Ethernet header: a large segment, bytes.
pub const MAX_FRAME: usize = 14 + 65_535;

/// Feature bits of block devices (section 5.2.3).
pub mod block_feature {
    /// The configuration has the largest number of data buffers of a request.
    pub const SEGMENTS: u64 = 1 << 2;
    /// It cannot be written.
    pub const READ_ONLY: u64 = 1 << 5;
    /// The configuration has the preferred size of a request.
    pub const BLOCK_SIZE: u64 = 1 << 6;
    /// What was written reaches storage with [`super::block_request::FLUSH`].
    pub const FLUSH: u64 = 1 << 9;
    /// The device takes [`super::block_request::DISCARD`].
    pub const DISCARD: u64 = 1 << 13;
    /// The device takes [`super::block_request::WRITE_ZEROES`].
    pub const WRITE_ZEROES: u64 = 1 << 14;
}

/// Types of requests to block devices (section 5.2.6).
pub mod block_request {
    /// Read sectors.
    pub const IN: u32 = 0;
    /// Write sectors.
    pub const OUT: u32 = 1;
    /// Make what was written durable.
    pub const FLUSH: u32 = 4;
    /// Read the name of the device, 20 bytes.
    pub const GET_ID: u32 = 8;
    /// Contents of sectors are not needed any more.
    pub const DISCARD: u32 = 11;
    /// Sectors become zeros.
    pub const WRITE_ZEROES: u32 = 13;
}

/// The last byte of a request to a block device, written by it.
pub mod block_status {
    /// Done.
    pub const OK: u8 = 0;
    /// It failed.
    pub const IO_ERROR: u8 = 1;
    /// There is no such request.
    pub const UNSUPPORTED: u8 = 2;
}

/// Queue of requests to an entropy device.
pub const RNG_REQUESTS: u16 = 0;

/// Unit of positions and lengths of block devices, bytes.
pub const SECTOR: u64 = 512;
/// Queue of requests to a block device.
pub const BLOCK_REQUESTS: u16 = 0;

/// Configuration of a block device (section 5.2.4), as far as there are features for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockConfig {
    /// Length, sectors.
    pub sectors: u64,
    /// Most data buffers of a request.
    pub segments: u32,
    /// Preferred size of a request, bytes.
    pub block_size: u32,
    /// Most sectors of a range to discard or to make zero.
    pub range_sectors: u32,
    /// Most ranges of a request.
    pub ranges: u32,
}

impl BlockConfig {
    /// Length, bytes.
    pub const LENGTH: usize = 60;

    /// As it is in memory.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.sectors.to_le_bytes());
        put(12, &self.segments.to_le_bytes());
        put(20, &self.block_size.to_le_bytes());
        // One queue.
        put(34, &1u16.to_le_bytes());
        for at in [36, 48] {
            put(at, &self.range_sectors.to_le_bytes());
            put(at + 4, &self.ranges.to_le_bytes());
        }
        // Ranges are discarded in units of a sector, and zeros may be holes.
        put(44, &1u32.to_le_bytes());
        put(56, &[1]);
        bytes
    }
}

/// What precedes each request to a block device (section 5.2.6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockHeader {
    /// One of [`block_request`].
    pub kind: u32,
    /// Where, of reads and writes.
    pub sector: u64,
}

impl BlockHeader {
    /// Length, bytes.
    pub const LENGTH: usize = 16;

    /// As it is in memory.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sector.to_le_bytes());
        bytes
    }

    /// From memory.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let [a, b, c, d, _, _, _, _, sector @ ..] = bytes;
        Self {
            kind: u32::from_le_bytes([a, b, c, d]),
            sector: u64::from_le_bytes(sector),
        }
    }
}

/// A range of sectors to discard or to make zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockRange {
    /// Where it begins.
    pub sector: u64,
    /// Its length, sectors.
    pub sectors: u32,
    /// Bit 0: zeros may be a hole.
    pub flags: u32,
}

impl BlockRange {
    /// Length, bytes.
    pub const LENGTH: usize = 16;

    /// As it is in memory.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.sector.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sectors.to_le_bytes());
        bytes[12..].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }

    /// From memory.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, flags @ ..] = bytes;
        Self {
            sector: u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            sectors: u32::from_le_bytes([n0, n1, n2, n3]),
            flags: u32::from_le_bytes(flags),
        }
    }
}
