//! Published ports of machines: TCP ports of the host whose connections lead to a port of a machine,
//! through its tenant's network.
//!
//! The service, which has no privileges, listens on the host and copies the bytes. The operator
//! says which ports and addresses may be published. A machine claims its ports when it is queued, so
//! a port that is in use refuses the start. Clients that connect before the machine runs wait, and so do
//! those that connect while it is suspended: the kernel keeps their connections until the machine goes on.

use super::ledger::{Claim as LedgerClaim, Exceeded, Ledger, Reservation, Resource};
use super::reload::Current;
use crate::store::{Port, Spec};
use crate::tcp;
use rustix::net::Shutdown;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The first port that a process without privileges may listen on.
pub const FIRST_PORT: u16 = 1024;
/// One tenant has at most one in this many of all connections to published ports.
const SHARE: u64 = 4;
/// Longest time for a connection to a machine.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted, and between two attempts to listen.
const PAUSE: Duration = Duration::from_millis(100);
/// Most connections that are closed at once because their machine cannot go on: more than wait at a port.
const MOST_CLOSED: usize = 4096;
/// Bytes that are copied at a time, in each direction of a connection.
const BUFFER: usize = 16 << 10;

/// A range of ports, written as `FIRST-LAST`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// The ports.
    #[must_use]
    pub fn ports(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.first, self.last)
    }
}

impl From<PortRange> for String {
    fn from(range: PortRange) -> Self {
        range.to_string()
    }
}

impl TryFrom<String> for PortRange {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let ends = text.split_once('-').and_then(|(first, last)| {
            let range = (first.parse().ok()?, last.parse().ok()?);
            (range.0 <= range.1).then_some(range)
        });
        let (first, last) = ends.ok_or("needs the form FIRST-LAST, with port numbers")?;
        Ok(Self { first, last })
    }
}

/// The reason why a port cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The operator allows no ports.
    #[error("no ports can be published: publish_ports is not set in the configuration")]
    Unavailable,
    /// The operator does not allow this port.
    #[error("port {0}: this host publishes the ports {1} (publish_ports)")]
    Port(u16, PortRange),
    /// The operator does not allow this address.
    #[error("address {0}: not one that this host publishes ports on (publish_addresses)")]
    Address(IpAddr),
    /// A machine, or another process of the host, listens there.
    #[error("port {} of {} is in use", .0.port(), .0.ip())]
    InUse(SocketAddr),
    /// The tenant's machines publish too many ports.
    #[error(transparent)]
    TooMany(#[from] Exceeded),
    /// The host refuses.
    #[error("cannot listen on {0}: {1}")]
    Host(SocketAddr, io::Error),
}

/// Makes published ports.
#[derive(Debug)]
pub struct Ports {
    config: Current,
    ledger: Ledger,
}

impl Ports {
    /// Ports by this configuration, which are counted in the ledger.
    #[must_use]
    pub fn new(config: Current, ledger: Ledger) -> Self {
        Self { config, ledger }
    }

    /// Checks that the configuration allows the ports of a spec.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn check(&self, spec: &Spec) -> Result<(), PortError> {
        spec.ports
            .iter()
            .try_for_each(|port| self.address(port).map(drop))
    }

    /// Claims the ports of a machine, and listens on them.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn claim(&self, tenant: &str, spec: &Spec) -> Result<Claim, PortError> {
        let listening = |port: &Port| -> Result<_, PortError> {
            let listening = Listening::new(self.address(port)?, port.guest);
            listening.listen().map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => PortError::InUse(listening.host),
                _ => PortError::Host(listening.host, error),
            })?;
            Ok(Arc::new(listening))
        };
        let reservation = match spec.ports.is_empty() {
            true => None,
            false => Some(self.ledger.reserve(tenant, &[self.count(spec)])?),
        };
        let listening = spec.ports.iter().map(listening);
        Ok(self.claimed(tenant, reservation, listening.collect::<Result<_, _>>()?))
    }

    /// Claims the ports of a machine that an earlier daemon has started or queued. The earlier daemon
    /// may still be ending, so the ports are opened later, when they are free. Ports that the
    /// configuration does not allow any more are left out.
    #[must_use]
    pub fn adopt(&self, tenant: &str, spec: &Spec) -> Claim {
        let listening = spec.ports.iter().filter_map(|port| {
            let host = self.address(port);
            let host = host.inspect_err(|error| tracing::warn!(tenant, "not published: {error}"));
            Some(Arc::new(Listening::new(host.ok()?, port.guest)))
        });
        let reservation = match spec.ports.is_empty() {
            true => None,
            false => Some(self.ledger.adopt(tenant, &[self.count(spec)])),
        };
        self.claimed(tenant, reservation, listening.collect())
    }

    fn claimed(
        &self,
        tenant: &str,
        reservation: Option<Reservation>,
        listening: Vec<Arc<Listening>>,
    ) -> Claim {
        Claim {
            room: Room {
                tenant: tenant.to_owned(),
                config: self.config.clone(),
                ledger: self.ledger.clone(),
            },
            listening,
            gate: Gate::default(),
            tasks: Vec::new(),
            _reservation: reservation,
        }
    }

    /// The address of the host for a port.
    fn address(&self, port: &Port) -> Result<SocketAddr, PortError> {
        let config = self.config.get();
        let range = config.publish_ports.ok_or(PortError::Unavailable)?;
        if !range.ports().contains(&port.host) {
            return Err(PortError::Port(port.host, range));
        }
        let addresses = &config.publish_addresses;
        let default = addresses
            .first()
            .copied()
            .unwrap_or(Ipv4Addr::LOCALHOST.into());
        let address = port.address.unwrap_or(default);
        match address == default || addresses.contains(&address) {
            true => Ok(SocketAddr::new(address, port.host)),
            false => Err(PortError::Address(address)),
        }
    }

    fn count(&self, spec: &Spec) -> LedgerClaim {
        LedgerClaim {
            resource: Resource::Ports,
            amount: spec.ports.len() as u64,
            limit: Some(self.config.get().publish_per_tenant.into()),
        }
    }
}

/// A port of the host, and the port of the machine.
#[derive(Debug)]
struct Listening {
    host: SocketAddr,
    guest: u16,
    /// The socket, once it is open.
    socket: OnceLock<std::net::TcpListener>,
}

impl Listening {
    fn new(host: SocketAddr, guest: u16) -> Self {
        Self {
            host,
            guest,
            socket: OnceLock::new(),
        }
    }

    /// Opens the socket, if it is not open.
    fn listen(&self) -> io::Result<&std::net::TcpListener> {
        if let Some(socket) = self.socket.get() {
            return Ok(socket);
        }
        let socket = std::net::TcpListener::bind(self.host)?;
        socket.set_nonblocking(true)?;
        Ok(self.socket.get_or_init(|| socket))
    }

    /// The open socket, as soon as the port is free.
    async fn socket(&self) -> AsyncFd<std::net::TcpListener> {
        let mut is_logged = false;
        loop {
            let socket = self.listen().and_then(std::net::TcpListener::try_clone);
            // SAFETY: nothing replaces or closes the duplicate while its owner is registered.
            let register = |socket| unsafe { AsyncFd::register(socket) }.map_err(io::Error::from);
            match socket.and_then(register) {
                Ok(socket) => return socket,
                Err(error) if !is_logged => {
                    tracing::warn!("port {} waits: {error}", self.host);
                    is_logged = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Passes connections on to a machine while the gate is open, until this is dropped.
    async fn serve(self: Arc<Self>, machine: Ipv4Addr, (room, gate): (Room, Gate)) {
        let socket = self.socket().await;
        let machine = SocketAddr::new(machine.into(), self.guest);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = gate.accept(&socket) => match (accepted, room.take()) {
                    (Ok((client, entering)), Some(held)) => {
                        connections.spawn(pass(client, machine, (held, entering)));
                    }
                    // Above the limit the connection is closed.
                    (Ok(_), None) => {}
                    (Err(_), _) => tokio::time::sleep(PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// Returns when a client waits.
    async fn client(self: Arc<Self>) {
        let socket = self.socket().await;
        // There is an error only while the service ends.
        if socket.readable().await.is_err() {
            std::future::pending().await
        }
    }

    /// Closes the connections of the clients that wait. All are accepted before the first one is closed: a client that
    /// connects after another one was closed finds the machine awaited again.
    fn close_clients(&self) {
        if let Some(socket) = self.socket.get() {
            let waiting = (0..MOST_CLOSED).map_while(|_| socket.accept().ok());
            drop(waiting.collect::<Vec<_>>());
        }
    }
}

/// Decides whether connections are accepted. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Gate(watch::Sender<Passage>);

/// What is at a gate.
#[derive(Debug, Default)]
struct Passage {
    /// Number of those that hold the gate: if there is one, clients wait.
    holders: usize,
    /// Number of accepted connections that the machine has not taken.
    entering: usize,
}

impl Gate {
    /// Lets clients wait until the result is dropped. When this returns, the machine has taken all
    /// connections that were accepted before, or they have ended.
    pub async fn hold(&self) -> Held {
        self.0.send_modify(|passage| passage.holders += 1);
        let held = Held(self.clone());
        let mut passage = self.0.subscribe();
        // The sender is in `held`.
        let _ = passage.wait_for(|passage| passage.entering == 0).await;
        held
    }

    /// Accepts a connection as soon as nobody holds the gate.
    ///
    /// # Errors
    /// The host has no descriptors left.
    async fn accept(
        &self,
        socket: &AsyncFd<std::net::TcpListener>,
    ) -> io::Result<(TcpStream, Entering)> {
        loop {
            let mut ready = socket.readable().await?;
            let mut passage = self.0.subscribe();
            // The sender is in `self`.
            let _ = passage.wait_for(|passage| passage.holders == 0).await;
            let mut accepted = None;
            self.0.send_if_modified(|passage| {
                if passage.holders == 0 {
                    // The socket does not block.
                    accepted = Some(ready.try_io(|socket| socket.get_ref().accept()));
                    passage.entering += usize::from(matches!(accepted, Some(Ok(Ok(_)))));
                }
                false
            });
            match accepted {
                Some(Ok(Ok((client, _)))) => {
                    let entering = Entering(self.clone());
                    client.set_nonblocking(true)?;
                    return Ok((TcpStream::from_std(client)?, entering));
                }
                Some(Ok(Err(error))) => return Err(error),
                // The client has gone, or the gate was held again.
                Some(Err(_)) | None => {}
            }
        }
    }
}

/// Holds a gate.
#[derive(Debug)]
pub struct Held(Gate);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.send_modify(|passage| passage.holders -= 1);
    }
}

/// An accepted connection that the machine has not taken.
#[derive(Debug)]
struct Entering(Gate);

impl Drop for Entering {
    fn drop(&mut self) {
        self.0.0.send_modify(|passage| passage.entering -= 1);
    }
}

/// Copies the bytes of a connection in both directions to its end.
async fn pass(
    mut client: TcpStream,
    machine: SocketAddr,
    (_held, entering): (Reservation, Entering),
) {
    let connected = tokio::time::timeout(CONNECT_TIME, TcpStream::connect(machine)).await;
    drop(entering);
    let Ok(Ok(mut guest)) = connected else {
        return;
    };
    // Both ends report their errors to each other by closing the connection.
    if tcp::prepare(&client).is_ok() && guest.set_nodelay(true).is_ok() {
        let _ = copy_bidirectional_with_sizes(&mut client, &mut guest, BUFFER, BUFFER).await;
    }
}

/// Room for connections to a tenant's ports.
#[derive(Debug, Clone)]
struct Room {
    tenant: String,
    config: Current,
    ledger: Ledger,
}

impl Room {
    /// Takes room for one connection, if there is some.
    fn take(&self) -> Option<Reservation> {
        let most = u64::from(self.config.get().publish_connections);
        if self.ledger.total(Resource::PortConnections) >= most {
            return None;
        }
        let claim = LedgerClaim {
            resource: Resource::PortConnections,
            amount: 1,
            limit: Some(tenant_connections(most)),
        };
        self.ledger.reserve(&self.tenant, &[claim]).ok()
    }
}

/// The most connections to the ports of one tenant, if all tenants have `most`.
#[must_use]
pub fn tenant_connections(most: u64) -> u64 {
    (most / SHARE).max(1)
}

/// The ports of a machine; dropping this closes them and their connections.
#[derive(Debug)]
pub struct Claim {
    room: Room,
    listening: Vec<Arc<Listening>>,
    /// The gate of all ports, while connections are passed on.
    gate: Gate,
    tasks: Vec<AbortHandle>,
    _reservation: Option<Reservation>,
}

impl Claim {
    /// Passes connections on to the machine with this address from now on. Must run inside a runtime.
    pub fn serve(&mut self, machine: Ipv4Addr) {
        self.gate = Gate::default();
        for listening in &self.listening {
            let by = (self.room.clone(), self.gate.clone());
            let serve = Arc::clone(listening).serve(machine, by);
            self.tasks.push(tokio::spawn(serve).abort_handle());
        }
    }

    /// The gate of the ports that are [served](Self::serve).
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// Whether there is no port.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listening.is_empty()
    }

    /// Returns when a client waits at a port that is not served.
    pub fn client(&self) -> impl Future<Output = ()> + Send + use<> {
        let listening = self.listening.iter().cloned();
        let clients: JoinSet<()> = listening.map(Listening::client).collect();
        async move {
            let mut clients = clients;
            clients.join_next().await;
        }
    }

    /// Closes the connections of clients that wait at ports that are not served.
    pub fn close_clients(&self) {
        self.listening
            .iter()
            .for_each(|listening| listening.close_clients());
    }

    /// Ends the connections. The ports stay claimed.
    pub fn pause(&mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.pause();
        // The tasks close their sockets soon; the port must be free now.
        for socket in self.listening.iter().filter_map(|l| l.socket.get()) {
            // A socket that listens cannot fail to stop.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::io::{Read, Write};
    use std::net::TcpStream as Stream;
    use std::sync::atomic::{AtomicU16, Ordering};

    /// The next pair of ports to try. Each pair is tried once. To see whether a port is free, a test
    /// binds it for a moment; another test could not bind it then.
    static NEXT: AtomicU16 = AtomicU16::new(0);

    /// Ports that are free now, one after the other, with a configuration that publishes them. They are
    /// below 32,768, where Linux starts to choose ports for clients.
    fn ports(settings: &str) -> (Ports, u16, Ledger) {
        let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
        let start = 20_000 + u16::try_from(std::process::id() % 3_000).unwrap() * 4;
        let mut starts = std::iter::repeat_with(|| start + NEXT.fetch_add(2, Ordering::Relaxed));
        let first = starts.find(|port| free(*port) && free(port + 1)).unwrap();
        let text = format!("publish_ports = '{first}-{}'\n{settings}", first + 1);
        let ledger = Ledger::default();
        let current = Current::new(toml::from_str::<Config>(&text).unwrap());
        (Ports::new(current, ledger.clone()), first, ledger)
    }

    fn spec(host: &[u16], guest: u16) -> Spec {
        let ports: Vec<_> = host
            .iter()
            .map(|host| serde_json::json!({ "host": host, "guest": guest }))
            .collect();
        let spec = serde_json::json!({ "program": "a", "network": "tenant", "ports": ports });
        serde_json::from_value(spec).unwrap()
    }

    /// A server that sends back what it receives. Result: its port.
    fn echo() -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for peer in listener.incoming().flatten() {
                std::thread::spawn(move || io::copy(&mut &peer, &mut &peer));
            }
        });
        port
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn clients_wait_while_a_gate_is_held() {
        let (ports, first, ledger) = ports("");
        let mut claim = ports.claim("a", &spec(&[first], echo())).unwrap();
        claim.serve(Ipv4Addr::LOCALHOST);
        let held = claim.gate().hold().await;
        let mut client = Stream::connect(("127.0.0.1", first)).unwrap();
        client.write_all(b"hello").unwrap();
        let time = Some(Duration::from_millis(200));
        client.set_read_timeout(time).unwrap();
        let mut bytes = [0; 5];
        let waits = client.read_exact(&mut bytes).unwrap_err();
        assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(ledger.used("a", Resource::PortConnections), 0);
        // The machine goes: another one takes the client, and nothing is lost.
        claim.pause();
        tokio::time::timeout(Duration::from_secs(60), claim.client())
            .await
            .unwrap();
        claim.serve(Ipv4Addr::LOCALHOST);
        drop(held);
        client
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        client.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, *b"hello");
        // Its connection has been taken, so a holder does not wait for it.
        drop(claim.gate().hold().await);
        claim.pause();
        let mut late = Stream::connect(("127.0.0.1", first)).unwrap();
        claim.close_clients();
        assert_eq!(late.read(&mut bytes).unwrap(), 0);
    }

    #[test]
    fn a_client_after_a_closed_one_waits() {
        let (ports, first, _) = ports("");
        let claim = ports.claim("a", &spec(&[first], 1)).unwrap();
        for _ in 0..50 {
            let connect = || Stream::connect(("127.0.0.1", first)).unwrap();
            let mut early = connect();
            std::thread::scope(|scope| {
                let closing = scope.spawn(|| claim.close_clients());
                assert_eq!(early.read(&mut [0]).unwrap(), 0);
                let mut late = connect();
                closing.join().unwrap();
                late.set_read_timeout(Some(Duration::from_millis(2)))
                    .unwrap();
                let waits = late.read(&mut [0]).unwrap_err();
                assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
            });
            claim.close_clients();
        }
    }

    #[test]
    fn ranges_have_two_ends() {
        let range = |text: &str| PortRange::try_from(text.to_owned());
        assert_eq!(range("1024-2000").unwrap().ports(), 1024..=2000);
        assert_eq!(range("7-7").unwrap().to_string(), "7-7");
        for bad in ["", "1024", "2-1", "-1-5", "1-65536", "a-b", "1-2-3"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_allowed_ports_are_claimed_and_each_once() {
        let (ports, first, ledger) = ports("publish_per_tenant = 2");
        let claimed = ports.claim("a", &spec(&[first], 1)).unwrap();
        let refused = ports.claim("b", &spec(&[first + 1, first], 1));
        assert!(matches!(refused, Err(PortError::InUse(_))), "{refused:?}");
        assert_eq!(ledger.used("b", Resource::Ports), 0);
        for (wrong, address) in [(first - 1, None), (first + 2, None), (first, Some("::1"))] {
            let mut spec = spec(&[wrong], 1);
            spec.ports[0].address = address.map(|address| address.parse().unwrap());
            assert!(ports.check(&spec).is_err() && ports.claim("a", &spec).is_err());
        }
        let refused = ports.claim("a", &spec(&[first, first + 1], 1));
        assert!(matches!(refused, Err(PortError::TooMany(_))), "{refused:?}");
        drop(claimed);
        let both = ports.claim("b", &spec(&[first + 1, first], 1)).unwrap();
        assert_eq!(ledger.used("b", Resource::Ports), 2);
        drop(both);
        let none = Ports::new(Current::new(Config::default()), ledger);
        let refused = none.check(&spec(&[first], 1));
        assert!(matches!(refused, Err(PortError::Unavailable)));
        assert!(none.check(&spec(&[], 1)).is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn connections_are_passed_on_within_limits() {
        // One connection of each tenant.
        let (ports, first, ledger) = ports("publish_connections = 4");
        let mut claim = ports.claim("a", &spec(&[first], echo())).unwrap();
        let connect = move || {
            let stream = Stream::connect(("127.0.0.1", first)).unwrap();
            let time = Some(Duration::from_secs(60));
            stream.set_read_timeout(time).unwrap();
            stream
        };
        let ask = |mut stream: &Stream| {
            stream.write_all(b"hello").and_then(|()| {
                let mut bytes = [0; 5];
                stream.read_exact(&mut bytes).map(|()| bytes)
            })
        };
        // It waits for the machine.
        let early = connect();
        claim.serve(Ipv4Addr::LOCALHOST);
        assert_eq!(ask(&early).unwrap(), *b"hello");
        assert_eq!(ledger.used("a", Resource::PortConnections), 1);
        assert!(ask(&connect()).is_err(), "a second one");
        drop(early);
        while ledger.used("a", Resource::PortConnections) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let again = connect();
        assert_eq!(ask(&again).unwrap(), *b"hello");
        drop(claim);
        assert!(ask(&again).is_err(), "the machine has ended");
        let mut later = ports.adopt("b", &spec(&[first], echo()));
        later.serve(Ipv4Addr::LOCALHOST);
        while Stream::connect(("127.0.0.1", first)).is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
