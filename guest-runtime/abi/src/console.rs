//! Virtio console devices with several ports (virtio 1.3, section 5.3). The ports carry the
//! program's standard output and standard error, and traces of its system calls;
//! [`crate::boot::BootInfo::console`] maps the streams to ports.

/// Number of streams: standard output, standard error, traces. A stream is the number of its
/// descriptor, from 1.
pub const STREAMS: usize = 3;
/// Most ports: one for each stream.
pub const MAX_PORTS: usize = STREAMS;

/// Queue of control messages to the driver.
pub const CONTROL_RECEIVE: u16 = 2;
/// Queue of control messages to the device.
pub const CONTROL_TRANSMIT: u16 = 3;

/// Queue for data that a port sends to the driver.
#[must_use]
pub const fn receive_queue(port: u16) -> u16 {
    match port {
        0 => 0,
        // The queues of further ports follow the control queues.
        port => 2 * port + 2,
    }
}

/// Queue for data that the driver sends to a port.
#[must_use]
pub const fn transmit_queue(port: u16) -> u16 {
    receive_queue(port) + 1
}

/// Number of queues of a device with this number of ports, at least one.
#[must_use]
pub const fn queues(ports: u16) -> u16 {
    2 * ports + 2
}

/// Feature bits (section 5.3.3).
pub mod console_feature {
    /// The device has several ports and control queues.
    pub const MULTIPORT: u64 = 1 << 1;
}

/// Configuration (section 5.3.4), without the emergency write register.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsoleConfig {
    /// Number of ports.
    pub ports: u32,
}

impl ConsoleConfig {
    /// Length, bytes.
    pub const LENGTH: usize = 8;

    /// Encodes the configuration for memory. The size of the terminal, which comes first, has its
    /// own feature and is 0.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[4..].copy_from_slice(&self.ports.to_le_bytes());
        bytes
    }
}

/// Events of control messages (section 5.3.6.2).
pub mod event {
    /// From the driver: whether it is ready (1).
    pub const DEVICE_READY: u16 = 0;
    /// From the device: a port exists.
    pub const PORT_ADD: u16 = 1;
    /// From the driver: whether it has set up a port (1).
    pub const PORT_READY: u16 = 3;
    /// From the device: the port is a terminal.
    pub const CONSOLE_PORT: u16 = 4;
    /// From either side: whether its end of a port is open (1).
    pub const PORT_OPEN: u16 = 6;
    /// From the device: the name of a port follows.
    pub const PORT_NAME: u16 = 7;
}

/// A control message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Control {
    /// The port.
    pub port: u32,
    /// One of [`event`].
    pub event: u16,
    /// Value of the event.
    pub value: u16,
}

impl Control {
    /// Length without a name, bytes.
    pub const LENGTH: usize = 8;

    /// Encodes the message for memory.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LENGTH] {
        let [a, b, c, d] = self.port.to_le_bytes();
        let [e, f] = self.event.to_le_bytes();
        let [g, h] = self.value.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// Decodes a message from memory.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            port: u32::from_le_bytes([a, b, c, d]),
            event: u16::from_le_bytes([e, f]),
            value: u16::from_le_bytes([g, h]),
        }
    }
}

const _: () = assert!(transmit_queue(0) == 1 && receive_queue(1) == 4);
