//! Connections: a unix socket, and TCP, with TLS or on a loopback address.

use super::Daemon;
use super::api;
use super::config::Config;
use super::connections::{Connections, Room, Slot, Source};
use super::tcp;
use super::tls;
use crate::spawner::Spawner;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

/// The maximum time for a client to send the head of a request, from its connection or the answer
/// to its last request. It also limits the TLS handshake.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// The same limit for root over the unix socket.
const HEAD_TIME_ROOT: Duration = Duration::from_secs(60);
/// Longest head of a request, and most buffered bytes of an answer, bytes.
const MAX_BUFFER: usize = 64 << 10;
/// The time for which requests in progress may continue when the daemon is stopped.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A process of this host, over the unix socket.
    Local {
        /// Whether the process runs as root or as the daemon's user.
        trusted: bool,
    },
    /// Any client.
    Tcp,
}

impl Peer {
    fn of(source: Source) -> Self {
        match source {
            Source::Root => Self::Local { trusted: true },
            Source::User(_) => Self::Local { trusted: false },
            Source::Address(_) => Self::Tcp,
        }
    }
}

/// The sockets that the daemon listens on.
pub struct Listeners {
    unix: UnixListener,
    tcp: Option<TcpListener>,
    certificates: Certificates,
}

/// The certificates for TLS on TCP, which a reload renews. Clones are the same.
#[derive(Clone)]
pub struct Certificates(Arc<RwLock<Option<TlsAcceptor>>>);

impl Certificates {
    /// The certificates of a configuration, whose files of certificates and private key are `tls`.
    fn open(config: &Config, tls: Option<[File; 2]>) -> io::Result<Option<TlsAcceptor>> {
        let acceptor = match (&config.tls_certificate, &config.tls_key, tls) {
            (Some(certificate), Some(key), Some([certificates, private])) => {
                let files = [(certificate.as_path(), certificates), (key, private)];
                Some(tls::acceptor(files)?)
            }
            _ => None,
        };
        // Never serve without TLS if the configuration requires it.
        if acceptor.is_none() && config.tls_key.is_some() {
            return Err(io::Error::other("tls_key: its file was not passed"));
        }
        Ok(acceptor)
    }

    /// Reads the certificates of another configuration, for [`renew`](Self::renew).
    ///
    /// # Errors
    /// The files cannot be read, or are not valid.
    pub fn prepare(&self, config: &Config, tls: Option<[File; 2]>) -> io::Result<Renewed> {
        Self::open(config, tls).map(Renewed)
    }

    /// Uses other certificates for new connections. TLS is not switched on or off.
    pub fn renew(&self, renewed: Renewed) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let (Some(current), Some(renewed)) = (&mut *current, renewed.0) {
            *current = renewed;
        }
    }

    /// The acceptor for a new connection; `None`: there is no TLS.
    fn acceptor(&self) -> Option<TlsAcceptor> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }
}

/// Certificates that were read again.
pub struct Renewed(Option<TlsAcceptor>);

impl Listeners {
    /// The sockets of the configuration, which the spawner opens. With `tls`, the open files of
    /// certificates and private key, TCP uses TLS.
    ///
    /// # Errors
    /// Any I/O error of the host; also if the files are not valid.
    pub fn open(config: &Config, spawner: &Spawner, tls: Option<[File; 2]>) -> io::Result<Self> {
        let certificates = Certificates::open(config, tls)?;
        let (unix, tcp) = spawner.listen()?;
        unix.set_nonblocking(true)?;
        let tcp = tcp.map(|tcp| {
            tcp.set_nonblocking(true)?;
            TcpListener::from_std(tcp)
        });
        Ok(Self {
            unix: UnixListener::from_std(unix)?,
            tcp: tcp.transpose()?,
            certificates: Certificates(Arc::new(RwLock::new(certificates))),
        })
    }

    /// The certificates of TCP connections.
    #[must_use]
    pub fn certificates(&self) -> Certificates {
        self.certificates.clone()
    }

    /// The TCP address, with the chosen port if the configuration has port 0.
    #[must_use]
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        self.tcp.as_ref()?.local_addr().ok()
    }

    /// Serves requests until `stop` changes, and finishes the requests in progress.
    pub async fn serve(self, daemon: &Arc<Daemon>, mut stop: watch::Receiver<bool>) {
        let server = Server {
            router: api::router(Arc::clone(daemon)),
            connections: daemon.connections.clone(),
            certificates: self.certificates.clone(),
            stop: stop.clone(),
        };
        loop {
            tokio::select! {
                accepted = self.unix.accept() => match accepted {
                    Ok((stream, _)) => server.serve_unix(stream),
                    Err(error) => pause(&error).await,
                },
                accepted = accept_tcp(self.tcp.as_ref()) => match accepted {
                    Ok((stream, source)) => server.serve_tcp(stream, source),
                    Err(error) => pause(&error).await,
                },
                _ = stop.changed() => break,
            }
        }
        // Streams of events do not end by themselves.
        let _ = tokio::time::timeout(LAST_ANSWERS, server.connections.ended()).await;
    }
}

/// Pauses if the host has no room for a connection. Other errors concern one client, which has
/// disconnected.
async fn pause(error: &io::Error) {
    let lacking = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    if error
        .raw_os_error()
        .is_some_and(|code| lacking.contains(&code))
    {
        tracing::warn!("a connection was not accepted: {error}");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn accept_tcp(listener: Option<&TcpListener>) -> io::Result<(TcpStream, Source)> {
    match listener {
        Some(listener) => {
            let (stream, address) = listener.accept().await?;
            Ok((stream, Source::of(address.ip())))
        }
        None => std::future::pending().await,
    }
}

/// The source of a connection over the unix socket.
fn source_of(stream: &UnixStream) -> io::Result<Source> {
    let own = rustix::process::geteuid().as_raw();
    Ok(match stream.peer_cred()?.uid() {
        uid if uid == 0 || uid == own => Source::Root,
        uid => Source::User(uid),
    })
}

/// The common state of all connections.
struct Server {
    router: axum::Router,
    connections: Connections,
    certificates: Certificates,
    stop: watch::Receiver<bool>,
}

impl Server {
    fn serve_unix(&self, stream: UnixStream) {
        // A peer with unknown credentials is not served.
        if let Ok(source) = source_of(&stream) {
            self.spawn(source, async |client| client.serve(stream).await);
        }
    }

    fn serve_tcp(&self, stream: TcpStream, source: Source) {
        let tls = self.certificates.acceptor();
        self.spawn(source, async move |client| {
            if tcp::prepare(&stream).is_err() {
                // The client has disconnected.
                return;
            }
            let Some(tls) = tls else {
                return client.serve(stream).await;
            };
            // A client that fails the TLS handshake gets no answer.
            if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIME, tls.accept(stream)).await {
                client.serve(stream).await;
            }
        });
    }

    /// Serves a connection as a separate task, if there is a slot for it. Otherwise the connection
    /// is closed.
    fn spawn<F>(&self, source: Source, serve: impl FnOnce(Client) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Ok(slot) = self.connections.admit(source) else {
            return;
        };
        let slot = Arc::new(slot);
        let client = Client {
            source,
            slot: Arc::clone(&slot),
            router: self.router.clone(),
            stop: self.stop.clone(),
        };
        let task = tokio::spawn(serve(client));
        slot.serve_by(task.abort_handle());
    }
}

/// One connection.
struct Client {
    source: Source,
    slot: Arc<Slot>,
    router: axum::Router,
    stop: watch::Receiver<bool>,
}

impl Client {
    /// Serves the connection to its end.
    async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self {
            source,
            slot,
            router,
            mut stop,
        } = self;
        let time = match source {
            Source::Root => HEAD_TIME_ROOT,
            _ => HEAD_TIME,
        };
        let service = service_fn(move |mut request: Request<Incoming>| {
            let room = slot.request();
            request.extensions_mut().insert(Peer::of(source));
            request.extensions_mut().insert(room.clone());
            let answer = router.clone().call(request.map(Body::new));
            async move {
                let response = answer.await?;
                Ok::<_, std::convert::Infallible>(response.map(|body| Answer { body, _room: room }))
            }
        });
        let mut builder = Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(time)
            .max_buf_size(MAX_BUFFER);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = connection.with_upgrades();
        tokio::pin!(connection);
        tokio::select! {
            // The server does not need to know how a connection ends.
            _ = connection.as_mut() => {}
            _ = stop.changed() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }
}

/// The body of an answer. The request is in progress until the kernel has the last byte.
struct Answer {
    body: Body,
    _room: Room,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
