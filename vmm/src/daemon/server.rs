//! Connections: a unix socket, and TCP, with TLS or on a loopback address.

use super::Daemon;
use super::api;
use super::config::Config;
use super::tls;
use axum::extract::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

/// How long a client may take to send the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// How long requests that are being served may go on when the daemon is stopped.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// How long to wait after a connection could not be accepted: there are no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A process of this host, over the unix socket.
    Local {
        /// It runs as root or as the daemon's user.
        trusted: bool,
    },
    /// Anybody.
    Tcp,
}

/// The place of a connection among those that there may be; whatever goes on when a
/// request has been answered holds it too.
#[derive(Debug, Clone)]
pub struct Room {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// Where the daemon listens.
pub struct Listeners {
    unix: UnixListener,
    tcp: Option<TcpListener>,
    tls: Option<TlsAcceptor>,
}

impl Listeners {
    /// Opens the sockets that the configuration names. A unix socket that nobody listens to any more is replaced; its
    /// directory is made.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub async fn open(config: &Config) -> io::Result<Self> {
        let socket = config.socket.as_path();
        let tls = match (&config.tls_certificate, &config.tls_key) {
            (Some(certificate), Some(key)) => Some(tls::acceptor(certificate, key)?),
            _ => None,
        };
        let named = |name: &dyn std::fmt::Display, error: io::Error| {
            io::Error::new(error.kind(), format!("{name}: {error}"))
        };
        let at_socket = |error| named(&socket.display(), error);
        if let Some(directory) = socket.parent() {
            fs::create_dir_all(directory).map_err(at_socket)?;
        }
        if UnixStream::connect(socket).await.is_ok() {
            let message = format!("{}: another daemon listens there", socket.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at_socket(error)),
            _ => {}
        }
        let unix = UnixListener::bind(socket).map_err(at_socket)?;
        // Whoever is not trusted there needs a key.
        fs::set_permissions(socket, Permissions::from_mode(0o666))?;
        let tcp = match config.listen {
            Some(address) => {
                let bound = TcpListener::bind(address).await;
                Some(bound.map_err(|error| named(&address, error))?)
            }
            None => None,
        };
        Ok(Self { unix, tcp, tls })
    }

    /// The TCP address, with the port that was chosen if it was given as 0.
    #[must_use]
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        self.tcp.as_ref()?.local_addr().ok()
    }

    /// Serves requests until `stop` changes, and those that are being served by then to
    /// their end.
    pub async fn serve(self, daemon: &Arc<Daemon>, mut stop: watch::Receiver<bool>) {
        let router = api::router(Arc::clone(daemon));
        let most = Arc::new(Semaphore::new(daemon.config.max_connections));
        let total = daemon.config.max_connections;
        loop {
            let room = Arc::clone(&most).acquire_owned();
            let room = tokio::select! {
                room = room => room,
                _ = stop.changed() => break,
            };
            let Ok(room) = room else { break };
            let room = Room {
                _permit: Arc::new(room),
            };
            tokio::select! {
                accepted = self.unix.accept() => match accepted {
                    Ok((stream, _)) => {
                        let peer = Peer::Local { trusted: is_trusted(&stream) };
                        tokio::spawn(serve(stream, peer, router.clone(), room, stop.clone()));
                    }
                    Err(error) => pause(&error).await,
                },
                accepted = accept_tcp(self.tcp.as_ref()) => match accepted {
                    Ok(stream) => {
                        let (tls, router, stop) = (self.tls.clone(), router.clone(), stop.clone());
                        tokio::spawn(serve_tcp(stream, tls, router, room, stop));
                    }
                    Err(error) => pause(&error).await,
                },
                _ = stop.changed() => break,
            }
        }
        // Each connection holds one. Streams of events would never end.
        let all = u32::try_from(total).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(LAST_ANSWERS, most.acquire_many(all)).await;
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!("a connection was not accepted: {error}");
    tokio::time::sleep(PAUSE).await;
}

async fn accept_tcp(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }
        None => std::future::pending().await,
    }
}

/// Whether a process runs as root or as the daemon's user.
fn is_trusted(stream: &UnixStream) -> bool {
    // SAFETY: no preconditions.
    let own = unsafe { libc::geteuid() };
    stream
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own)
}

/// Serves one TCP connection.
async fn serve_tcp(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: axum::Router,
    room: Room,
    stop: watch::Receiver<bool>,
) {
    let Some(tls) = tls else {
        return serve(stream, Peer::Tcp, router, room, stop).await;
    };
    // A client that shakes no hands, or none of ours, gets no answer.
    if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIME, tls.accept(stream)).await {
        serve(stream, Peer::Tcp, router, room, stop).await;
    }
}

/// Serves one connection to its end.
async fn serve<S>(
    stream: S,
    peer: Peer,
    router: axum::Router,
    room: Room,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = {
        let room = room.clone();
        tower::service_fn(move |mut request: Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(room.clone());
            router.clone().call(request.map(axum::body::Body::new))
        })
    };
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME);
    let service = TowerToHyperService::new(service);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // How a connection ends is the client's affair.
        _ = connection.as_mut() => {}
        _ = stop.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
    drop(room);
}
