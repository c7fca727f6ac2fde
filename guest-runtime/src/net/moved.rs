//! The network of a VM that continues from a snapshot: another device, maybe with other addresses, and no
//! connections to other hosts.
//!
//! This runs once in the life of a VM, so the code is small rather than fast.

use super::Network;
use super::address::Address;
use super::interfaces::ETHERNET;
use super::socket::{SocketId, State};
use alloc::vec::Vec;
use core::net::IpAddr;
use hartline_linux::errno::Errno;

/// The addresses of an interface, with the lengths of their prefixes.
pub type Addresses = Vec<(IpAddr, u8)>;

impl Network {
    /// Removes the network interface, whose device is gone, and ends all connections over it: those of
    /// programs are reset, those that are being made fail, and those that no program has accepted are
    /// dropped. Sockets stay bound, and listeners stay. Returns the interface's addresses; `None`: there
    /// is no interface.
    ///
    /// # Safety
    /// The device is gone: it does not access RAM any more.
    pub unsafe fn lose_wire(&mut self) -> Option<Addresses> {
        let mut wire = self.wire.take()?;
        let lost = wire.interface().addresses;
        // SAFETY: the device is gone, as this function requires, and the interface is dropped.
        unsafe { wire.free() };
        // Its memory is free for that of the next one.
        drop(wire);
        // A listener has a lower number than the connections in its queue, so it drops them first.
        let mut last = SocketId(0);
        while let Some((&id, _)) = self.sockets.range(SocketId(last.0 + 1)..).next() {
            last = id;
            self.lose_connections(id);
        }
        Some(lost)
    }

    /// Ends the connection of a socket to another host, or drops those in its queue. Sockets of this VM may get
    /// the free places there.
    fn lose_connections(&mut self, id: SocketId) {
        let Ok(socket) = self.get_mut(id) else {
            return;
        };
        let state = &mut socket.state;
        if socket.flow.is_some() {
            let error = match state {
                // As if the peer does not answer.
                State::Asking => Errno::ETIMEDOUT,
                _ => Errno::ECONNRESET,
            };
            self.wire_closed(id, Some(error));
        } else if let State::Listening(listener) = state {
            listener.arriving = 0;
            let mut accepted = core::mem::take(&mut listener.accepted);
            let before = accepted.len();
            for _ in 0..before {
                let Some(one) = accepted.pop_front() else {
                    break;
                };
                match self.get(one) {
                    // Nothing but data of the peer is in it.
                    Ok(socket) if socket.flow.is_some() => drop(self.close(one)),
                    _ => accepted.push_back(one),
                }
            }
            let free = before - accepted.len();
            if let Ok(socket) = self.get_mut(id)
                && let State::Listening(listener) = &mut socket.state
            {
                listener.accepted = accepted;
            }
            (0..free).for_each(|_| self.let_in(id));
        }
    }

    /// Gives sockets that have one of the addresses of the earlier interface the address of the present
    /// one, and makes the interface a member of the sockets' multicast groups.
    pub fn move_sockets(&mut self, lost: &Addresses) {
        let Some(wire) = &mut self.wire else {
            return;
        };
        let present = wire.interface().addresses;
        for socket in self.sockets.values_mut() {
            for address in [&mut socket.local, &mut socket.remote] {
                move_address(address, lost, &present);
            }
        }
        for &(group, interface) in &self.groups {
            if interface == ETHERNET {
                wire.join(group);
            }
        }
        self.announce_changes();
    }
}

/// Replaces an address that is among the `lost` ones by the `present` one of its kind.
#[inline(never)]
fn move_address(address: &mut Address, lost: &Addresses, present: &Addresses) {
    let Address::Inet(address) = address else {
        return;
    };
    let ip = address.ip();
    if lost.iter().any(|lost| lost.0 == ip)
        && let Some(found) = present.iter().find(|found| kind(found.0) == kind(ip))
    {
        address.set_ip(found.0);
    }
}

/// The kind of an interface's address: IPv4, IPv6, or link-local.
fn kind(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 0,
        IpAddr::V6(ip) => 1 + u8::from(ip.is_unicast_link_local()),
    }
}
