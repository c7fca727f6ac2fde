//! Virtio console devices with several ports (virtio 1.3, section 5.3). The ports carry what
//! the program writes to standard output and standard error, and traces of its system calls;
//! [`crate::boot::BootInfo::console`] says which carries what.

/// What has a port: standard output, standard error, traces. A stream is the number of its
/// descriptor, from 1 on.
pub const STREAMS: usize = 3;
/// Most ports: one for each of them.
pub const MAX_PORTS: usize = STREAMS;

/// Queue of control messages for the driver.
pub const CONTROL_RECEIVE: u16 = 2;
/// Queue of control messages of the driver.
pub const CONTROL_TRANSMIT: u16 = 3;

/// Queue of what a port sends to the driver.
#[must_use]
pub const fn receive_queue(port: u16) -> u16 {
    match port {
        0 => 0,
        // Behind those for control messages.
        port => 2 * port + 2,
    }
}

/// Queue of what the driver sends through a port.
#[must_use]
pub const fn transmit_queue(port: u16) -> u16 {
    receive_queue(port) + 1
}

/// Number of queues of a device with so many ports, at least one.
#[must_use]
pub const fn queues(ports: u16) -> u16 {
    2 * ports + 2
}

/// Feature bits (section 5.3.3).
pub mod console_feature {
    /// The device has several ports and control queues.
    pub const MULTIPORT: u64 = 1 << 1;
}

/// Configuration (section 5.3.4), without the register for emergencies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsoleConfig {
    /// Number of ports.
    pub ports: u32,
}

impl ConsoleConfig {
    /// Length, bytes.
    pub const LENGTH: usize = 8;

    /// As it is in memory: the size of the terminal before it has a feature of its own.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[4..].copy_from_slice(&self.ports.to_le_bytes());
        bytes
    }
}

/// What a control message is about (section 5.3.6.2).
pub mod event {
    /// Of the driver: whether it is ready (1).
    pub const DEVICE_READY: u16 = 0;
    /// Of the device: there is a port.
    pub const PORT_ADD: u16 = 1;
    /// Of the driver: whether it has set a port up (1).
    pub const PORT_READY: u16 = 3;
    /// Of the device: the port is a terminal.
    pub const CONSOLE_PORT: u16 = 4;
    /// Of either side: whether its end of a port is open (1).
    pub const PORT_OPEN: u16 = 6;
    /// Of the device: the name of a port follows.
    pub const PORT_NAME: u16 = 7;
}

/// A control message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Control {
    /// The port.
    pub port: u32,
    /// One of [`event`].
    pub event: u16,
    /// What of it.
    pub value: u16,
}

impl Control {
    /// Length without a name, bytes.
    pub const LENGTH: usize = 8;

    /// As it is in memory.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LENGTH] {
        let [a, b, c, d] = self.port.to_le_bytes();
        let [e, f] = self.event.to_le_bytes();
        let [g, h] = self.value.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// From memory.
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
