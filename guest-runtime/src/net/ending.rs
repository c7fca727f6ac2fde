//! The end of the VM: what programs have sent before still reaches other hosts.

use super::Network;

impl Network {
    /// Closes all sockets, as the end of all programs does.
    pub fn close_all(&mut self) {
        while let Some((&id, _)) = self.sockets.first_key_value() {
            // Nobody needs the files in messages any more.
            drop(self.close(id));
        }
    }

    /// Whether other hosts have acknowledged all that was sent to them, and the network device has taken all packets.
    /// Without `datagrams`, those that wait for the address of a host do not count.
    pub fn is_delivered(&mut self, datagrams: bool) -> bool {
        let wire = self.wire.as_mut();
        wire.is_none_or(|wire| wire.is_delivered(datagrams))
    }
}
