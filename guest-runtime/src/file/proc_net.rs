//! Contents of the files of `/proc/net` (proc_pid_net(5)).

use crate::fs::proc::{Node, Text};
use crate::net::Network;
use crate::net::address::{Address, Family};
use crate::net::interfaces::{Interface, RouteEntry, netmask};
use crate::net::socket::{Socket, State, Type};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{Result, Write};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use hartline_linux::if_::{ARPHRD_ETHER, ARPHRD_LOOPBACK, IFF_LOWER_UP, IFF_RUNNING};
use hartline_linux::if_addr::IFA_F_PERMANENT;
use hartline_linux::tcp::{TCP_CLOSE, TCP_ESTABLISHED};

/// Appends the contents of a file of `/proc/net`; nothing for another file.
pub(super) fn write(out: &mut String, text: Text, net: &Network) {
    // Writing to a string does not fail.
    let _ = match text {
        Text::NetDev => devices(out, &net.interfaces()),
        Text::NetIfInet6 => inet6(out, &net.interfaces()),
        Text::NetRoute => routes(out, net),
        Text::NetTcp => inet(out, net, Type::Stream, Family::Inet),
        Text::NetTcp6 => inet(out, net, Type::Stream, Family::Inet6),
        Text::NetUdp => inet(out, net, Type::Datagram, Family::Inet),
        Text::NetUdp6 => inet(out, net, Type::Datagram, Family::Inet6),
        Text::NetUnix => unix(out, net),
        _ => Ok(()),
    };
}

/// Writes a file of `/sys/class/net/NAME`: the fact that the file's name says.
pub(super) fn interface(out: &mut String, node: Node, net: &Network) {
    let mut interfaces = net.interfaces().into_iter();
    let found = interfaces.find(|interface| Some(interface.index) == node.interface());
    let Some(found) = found else { return };
    let [received, sent] = found.traffic;
    let is_loopback = found.is_loopback();
    let broadcast = if is_loopback { [0; 6] } else { [0xff; 6] };
    // Writing to a string does not fail.
    let _ = match node.name().as_slice() {
        b"address" => mac(out, found.mac),
        b"broadcast" => mac(out, broadcast),
        b"addr_len" => writeln!(out, "{}", found.mac.len()),
        // Without the flags that the kernel computes.
        b"flags" => writeln!(out, "{:#x}", found.flags & !(IFF_RUNNING | IFF_LOWER_UP)),
        b"ifindex" | b"iflink" => writeln!(out, "{}", found.index),
        b"mtu" => writeln!(out, "{}", found.mtu),
        b"operstate" => out.write_str(if is_loopback { "unknown\n" } else { "up\n" }),
        b"type" => {
            let kind = if is_loopback {
                ARPHRD_LOOPBACK
            } else {
                ARPHRD_ETHER
            };
            writeln!(out, "{kind}")
        }
        b"uevent" => write!(out, "INTERFACE={}\nIFINDEX={}\n", found.name, found.index),
        b"rx_bytes" => writeln!(out, "{}", received.bytes),
        b"rx_packets" => writeln!(out, "{}", received.packets),
        b"rx_errors" => writeln!(out, "{}", received.errors),
        b"tx_bytes" => writeln!(out, "{}", sent.bytes),
        b"tx_packets" => writeln!(out, "{}", sent.packets),
        b"tx_errors" => writeln!(out, "{}", sent.errors),
        _ => Ok(()),
    };
}

fn mac(out: &mut String, [a, b, c, d, e, f]: [u8; 6]) -> Result {
    writeln!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn devices(out: &mut String, interfaces: &[Interface]) -> Result {
    out.push_str(
        "Inter-|   Receive                                                |  Transmit\n \
         face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets \
         errs drop fifo colls carrier compressed\n",
    );
    for interface in interfaces {
        let [received, sent] = interface.traffic;
        writeln!(
            out,
            "{:>6}: {:>7} {:>7} {:>4} {:>4} {:>4} {:>5} {:>10} {:>9} {:>8} {:>7} {:>4} {:>4} \
             {:>4} {:>5} {:>7} {:>10}",
            interface.name,
            received.bytes,
            received.packets,
            received.errors,
            0,
            0,
            0,
            0,
            0,
            sent.bytes,
            sent.packets,
            sent.errors,
            0,
            0,
            0,
            0,
            0,
        )?;
    }
    Ok(())
}

fn inet6(out: &mut String, interfaces: &[Interface]) -> Result {
    /// Values for the scope of an address: loopback, link, global.
    const SCOPES: [u8; 3] = [0x10, 0x20, 0];
    for interface in interfaces {
        for &(address, length) in &interface.addresses {
            let IpAddr::V6(address) = address else {
                continue;
            };
            let scope = match address {
                address if address.is_loopback() => SCOPES[0],
                address if address.is_unicast_link_local() => SCOPES[1],
                _ => SCOPES[2],
            };
            let bits = address.to_bits();
            let (index, name) = (interface.index, interface.name);
            writeln!(
                out,
                "{bits:032x} {index:02x} {length:02x} {scope:02x} {IFA_F_PERMANENT:02x} {name:>8}"
            )?;
        }
    }
    Ok(())
}

/// Writes a line, padded with blanks to `width` characters.
fn padded(out: &mut String, line: &str, width: usize) -> Result {
    writeln!(out, "{line:<width$}")
}

fn routes(out: &mut String, net: &Network) -> Result {
    const WIDTH: usize = 127;
    /// `RTF_UP` and `RTF_GATEWAY`
    const FLAGS: [u32; 2] = [1, 2];
    const HEAD: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
    padded(out, HEAD, WIDTH)?;
    let interfaces = net.interfaces();
    for entry in net.routes() {
        let RouteEntry {
            network: (IpAddr::V4(network), length),
            gateway,
            ..
        } = entry
        else {
            continue;
        };
        let mut owners = interfaces.iter();
        let owner = owners.find(|interface| interface.index == entry.interface);
        let (gateway, flags) = match gateway {
            Some(IpAddr::V4(gateway)) => (gateway, FLAGS[0] | FLAGS[1]),
            _ => (Ipv4Addr::UNSPECIFIED, FLAGS[0]),
        };
        let line = format!(
            "{}\t{}\t{}\t{flags:04X}\t0\t0\t0\t{}\t0\t0\t0",
            owner.map_or("", |interface| interface.name),
            words(network.into()),
            words(gateway.into()),
            words(netmask(length).into()),
        );
        padded(out, &line, WIDTH)?;
    }
    Ok(())
}

/// Formats an address as the kernel does: its words in the byte order of this CPU.
fn words(address: IpAddr) -> String {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let words = bytes.chunks_exact(4);
    let words = words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    words.map(|word| format!("{word:08X}")).collect()
}

/// Formats an endpoint of a connection, for a socket of `family`.
fn endpoint(address: &Address, family: Family) -> String {
    let address = address.socket_addr();
    let address = address.or_else(|| Address::unbound(family).socket_addr());
    let Some(address) = address else {
        return String::new();
    };
    let ip = match (family, address) {
        // An IPv4 wildcard of an IPv6 socket is shown as the IPv6 wildcard.
        (Family::Inet6, SocketAddr::V4(address)) => address.ip().to_ipv6_mapped().into(),
        _ => address.ip(),
    };
    format!("{}:{:04X}", words(ip), address.port())
}

/// The state of a TCP or UDP socket (`TCP_ESTABLISHED` and so on); none if the socket is not
/// listed.
fn inet_state(socket: &Socket) -> Option<u8> {
    match (&socket.state, socket.kind) {
        (State::Connected, Type::Datagram) => Some(TCP_ESTABLISHED),
        (_, Type::Datagram) => socket.bound.then_some(TCP_CLOSE),
        (State::Idle | State::Disconnected, _) => None,
        _ => Some(socket.tcp_state()),
    }
}

fn inet(out: &mut String, net: &Network, kind: Type, family: Family) -> Result {
    const ENDS4: &str = "local_address rem_address   st";
    const ENDS6: &str =
        "local_address                         remote_address                        st";
    const REST: &str = "tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
    const OF_UDP: &str = "ref pointer drops";
    let is_udp = kind == Type::Datagram;
    // Lines for IPv4 are padded to this length; lines for IPv6 are not padded.
    let (head, width) = match (is_udp, family == Family::Inet6) {
        (false, false) => (format!("  sl  {ENDS4} {REST}"), 149),
        (true, false) => (format!("   sl  {ENDS4} {REST} {OF_UDP}"), 127),
        (false, true) => (format!("  sl  {ENDS6} {REST}"), 0),
        (true, true) => (format!("  sl  {ENDS6} {REST} {OF_UDP}"), 0),
    };
    padded(out, &head, width)?;
    let sockets = net.iter();
    let sockets =
        sockets.filter(|socket| socket.kind == kind && socket.family == family && !socket.is_icmp);
    let listed: Vec<_> = sockets
        .filter_map(|socket| Some((socket, inet_state(socket)?)))
        .collect();
    for (number, (socket, state)) in listed.into_iter().enumerate() {
        let waiting = match &socket.state {
            State::Listening(listener) => listener.accepted.len(),
            _ => socket.queue.len(),
        };
        let line = format!(
            "{number:>digits$}: {} {} {state:02X} 00000000:{waiting:08X} 00:00000000 00000000 \
             {:>5} {:>8} {} {} 0000000000000000{}",
            endpoint(&socket.local, family),
            endpoint(&socket.remote, family),
            socket.credentials.uid,
            0,
            socket.ino.map_or(0, |ino| ino.0),
            if is_udp { 2 } else { 1 },
            if is_udp { " 0" } else { " 100 0 0 10 0" },
            digits = if is_udp { 5 } else { 4 },
        );
        padded(out, &line, width)?;
    }
    Ok(())
}

fn unix(out: &mut String, net: &Network) -> Result {
    /// `SO_ACCEPTCON`
    const LISTENS: u32 = 1 << 16;
    out.push_str("Num       RefCount Protocol Flags    Type St Inode Path\n");
    let sockets = net.iter();
    for socket in sockets.filter(|socket| socket.family == Family::Unix) {
        let flags = if socket.is_listening() { LISTENS } else { 0 };
        // `SS_UNCONNECTED`, `SS_CONNECTING` and `SS_CONNECTED`
        let state = match socket.state {
            State::Connected => 3,
            State::Connecting(_) => 2,
            _ => 1,
        };
        let ino = socket.ino.map_or(0, |ino| ino.0);
        write!(
            out,
            "0000000000000000: 00000002 00000000 {flags:08X} {:04X} {state:02X} {ino:>5}",
            socket.kind.number()
        )?;
        match &socket.local {
            Address::Path(path) => write!(out, " {}", String::from_utf8_lossy(path))?,
            Address::Abstract(name) => {
                // NUL bytes are shown as `@`.
                let name: Vec<u8> = name
                    .iter()
                    .map(|&b| if b == 0 { b'@' } else { b })
                    .collect();
                write!(out, " @{}", String::from_utf8_lossy(&name))?;
            }
            _ => {}
        }
        out.push('\n');
    }
    Ok(())
}
