//! Netlink sockets: ports, groups, requests.

use super::super::Network;
use super::super::address::Address;
use super::super::queue::Message;
use super::super::socket::SocketId;
use super::{Facts, answer, changes};
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::netlink::NETLINK_GET_STRICT_CHK;
use hartline_linux::socket::{SOL_NETLINK, Ucred};

impl Network {
    /// Binds a netlink socket to a port, 0 asks for any, and to multicast groups.
    ///
    /// # Errors
    /// `EINVAL` if the socket has another port, `EADDRINUSE`.
    pub fn bind_netlink(&mut self, id: SocketId, port: u32, groups: u32) -> Result<(), Errno> {
        self.take_netlink_port(id, port)?;
        self.set_netlink_groups(id, |_| groups)
    }

    /// Gives a netlink socket a port, if it has none; 0 asks for any.
    ///
    /// # Errors
    /// `EINVAL` if the socket has another port, `EADDRINUSE`.
    pub fn take_netlink_port(&mut self, id: SocketId, port: u32) -> Result<(), Errno> {
        /// The first port, counted downwards, that is not a process number.
        const FIRST_FREE: u32 = 0u32.wrapping_sub(4097);
        let socket = self.get(id)?;
        let groups = match socket.local {
            Address::Netlink(own, _) if socket.bound => {
                return match port == 0 || port == own {
                    true => Ok(()),
                    false => Err(Errno::EINVAL),
                };
            }
            Address::Netlink(_, groups) => groups,
            _ => return Err(Errno::EINVAL),
        };
        let process = socket.credentials.pid;
        let is_taken = |port: u32| {
            let mut sockets = self.iter();
            sockets.any(|other| {
                other.bound && matches!(other.local, Address::Netlink(own, _) if own == port)
            })
        };
        let port = match port {
            0 if !is_taken(process) => process,
            0 => {
                let free = (0..FIRST_FREE).map(|n| FIRST_FREE - n);
                let mut free = free.skip_while(|port| is_taken(*port));
                free.next().ok_or(Errno::EADDRINUSE)?
            }
            port if is_taken(port) => return Err(Errno::EADDRINUSE),
            port => port,
        };
        let socket = self.get_mut(id)?;
        socket.local = Address::Netlink(port, groups);
        socket.bound = true;
        Ok(())
    }

    /// Changes the multicast groups of a netlink socket: bit 0 is group 1.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_netlink_groups(
        &mut self,
        id: SocketId,
        change: impl FnOnce(u32) -> u32,
    ) -> Result<(), Errno> {
        if let Address::Netlink(_, groups) = &mut self.get_mut(id)?.local {
            *groups = change(*groups);
            if *groups != 0 && self.announced.is_none() {
                self.announced = Some(self.facts());
            }
        }
        Ok(())
    }

    pub(super) fn facts(&self) -> Facts {
        let mut routes = self.routes();
        routes.extend(self.local_routes());
        Facts {
            interfaces: self.interfaces(),
            routes,
        }
    }

    /// Tells the members of multicast groups of changed addresses and routes.
    pub(in crate::net) fn announce_changes(&mut self) {
        let Some(before) = self.announced.take() else {
            return;
        };
        let now = self.facts();
        for (group, bytes) in changes(&before, &now) {
            let bit = 1 << (group - 1);
            let members = self.sockets.iter().filter(|(_, socket)| {
                matches!(socket.local, Address::Netlink(_, groups) if groups & bit != 0)
            });
            let members: Vec<SocketId> = members.map(|(id, _)| *id).collect();
            for id in members {
                self.push_netlink(id, bytes.clone(), bit);
            }
        }
        self.announced = Some(now);
    }

    /// Puts a message of the kernel to these multicast groups into the queue of a netlink socket. As
    /// on Linux, a socket with a full queue loses the message.
    pub fn push_netlink(&mut self, id: SocketId, bytes: Vec<u8>, groups: u32) {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        if !socket.has_room_for(bytes.len()) {
            socket.error = Some(Errno::ENOBUFS);
            self.touch_all(id);
            return;
        }
        socket.queue.push(Message {
            bytes,
            read: 0,
            from: Address::Netlink(0, groups),
            cred: Ucred {
                pid: 0,
                uid: 0,
                gid: 0,
            },
            rights: Vec::new(),
            segment: None,
            packet: None,
        });
        self.touch_input(id);
    }

    /// Sends requests to the kernel, and puts its answers into the socket's queue.
    ///
    /// # Errors
    /// `ECONNREFUSED` for a destination other than the kernel, `EADDRINUSE`.
    pub fn send_netlink(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        to: Option<Address>,
    ) -> Result<usize, Errno> {
        match to {
            None | Some(Address::Netlink(0, 0)) => {}
            Some(_) => return Err(Errno::ECONNREFUSED),
        }
        self.take_netlink_port(id, 0)?;
        let socket = self.get(id)?;
        let port = match socket.local {
            Address::Netlink(port, _) => port,
            _ => return Err(Errno::EINVAL),
        };
        let (family, kind) = (socket.family, socket.kind);
        let strict = (socket.options).number(SOL_NETLINK, NETLINK_GET_STRICT_CHK, family, kind)?;
        let facts = self.facts();
        for bytes in answer(bytes, port, (&facts, strict != 0)) {
            self.push_netlink(id, bytes, 0);
        }
        Ok(bytes.len())
    }
}
