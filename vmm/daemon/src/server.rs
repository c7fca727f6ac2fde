//! Connections: a unix socket, and TCP, with TLS or on a loopback address.

use super::Daemon;
use super::api;
use super::config::Config;
use super::connections::{Connections, Place, Room, Source};
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
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

/// How long a client may take for the head of a request, from the moment in which it connects or
/// has the answer to the request before. The handshake of TLS may take as long.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// The same for root over the unix socket.
const HEAD_TIME_ROOT: Duration = Duration::from_secs(60);
/// Longest head of a request, and most of an answer that waits for the client, bytes.
const MAX_BUFFER: usize = 64 << 10;
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

impl Peer {
    fn of(source: Source) -> Self {
        match source {
            Source::Root => Self::Local { trusted: true },
            Source::User(_) => Self::Local { trusted: false },
            Source::Address(_) => Self::Tcp,
        }
    }
}

/// Where the daemon listens.
pub struct Listeners {
    unix: UnixListener,
    tcp: Option<TcpListener>,
    tls: Option<TlsAcceptor>,
}

impl Listeners {
    /// The sockets that the configuration names, which the spawner opens. With `tls`, the open
    /// files of certificates and private key, TCP is TLS.
    ///
    /// # Errors
    /// Whatever the host answers; the files are not what they should be.
    pub fn open(config: &Config, spawner: &Spawner, tls: Option<[File; 2]>) -> io::Result<Self> {
        let tls = match (&config.tls_certificate, &config.tls_key, tls) {
            (Some(certificate), Some(key), Some([certificates, private])) => {
                let files = [(certificate.as_path(), certificates), (key, private)];
                Some(tls::acceptor(files)?)
            }
            _ => None,
        };
        // Never without TLS where the configuration wants it.
        if tls.is_none() && config.tls_key.is_some() {
            return Err(io::Error::other("tls_key: its file was not passed"));
        }
        let (unix, tcp) = spawner.listen()?;
        unix.set_nonblocking(true)?;
        let tcp = tcp.map(|tcp| {
            tcp.set_nonblocking(true)?;
            TcpListener::from_std(tcp)
        });
        Ok(Self {
            unix: UnixListener::from_std(unix)?,
            tcp: tcp.transpose()?,
            tls,
        })
    }

    /// The TCP address, with the port that was chosen if it was given as 0.
    #[must_use]
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        self.tcp.as_ref()?.local_addr().ok()
    }

    /// Serves requests until `stop` changes, and those that are being served by then to
    /// their end.
    pub async fn serve(self, daemon: &Arc<Daemon>, mut stop: watch::Receiver<bool>) {
        let server = Server {
            router: api::router(Arc::clone(daemon)),
            connections: daemon.connections.clone(),
            tls: self.tls.clone(),
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
        // Streams of events would never end.
        let _ = tokio::time::timeout(LAST_ANSWERS, server.connections.ended()).await;
    }
}

/// Waits if the host has no room for a connection. Other errors are those of one client: it has
/// gone away meanwhile.
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

/// Where a connection over the unix socket comes from.
fn source_of(stream: &UnixStream) -> io::Result<Source> {
    // SAFETY: no preconditions.
    let own = unsafe { libc::geteuid() };
    Ok(match stream.peer_cred()?.uid() {
        uid if uid == 0 || uid == own => Source::Root,
        uid => Source::User(uid),
    })
}

/// What serving a connection needs.
struct Server {
    router: axum::Router,
    connections: Connections,
    tls: Option<TlsAcceptor>,
    stop: watch::Receiver<bool>,
}

impl Server {
    fn serve_unix(&self, stream: UnixStream) {
        // A peer that cannot be told is not served.
        if let Ok(source) = source_of(&stream) {
            self.spawn(source, async |client| client.serve(stream).await);
        }
    }

    fn serve_tcp(&self, stream: TcpStream, source: Source) {
        let tls = self.tls.clone();
        self.spawn(source, async move |client| {
            if stream.set_nodelay(true).is_err() {
                // It has gone away.
                return;
            }
            let Some(tls) = tls else {
                return client.serve(stream).await;
            };
            // A client that shakes no hands, or none of ours, gets no answer.
            if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIME, tls.accept(stream)).await {
                client.serve(stream).await;
            }
        });
    }

    /// Serves a connection as a task of its own, if there is a place for it. Otherwise it is
    /// closed.
    fn spawn<F>(&self, source: Source, serve: impl FnOnce(Client) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Ok(place) = self.connections.admit(source) else {
            return;
        };
        let place = Arc::new(place);
        let client = Client {
            source,
            place: Arc::clone(&place),
            router: self.router.clone(),
            stop: self.stop.clone(),
        };
        let task = tokio::spawn(serve(client));
        place.serve_by(task.abort_handle());
    }
}

/// One connection.
struct Client {
    source: Source,
    place: Arc<Place>,
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
            place,
            router,
            mut stop,
        } = self;
        let time = match source {
            Source::Root => HEAD_TIME_ROOT,
            _ => HEAD_TIME,
        };
        let service = service_fn(move |mut request: Request<Incoming>| {
            let room = place.request();
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
            // How a connection ends is the client's affair.
            _ = connection.as_mut() => {}
            _ = stop.changed() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }
}

/// The body of an answer, which is being answered until the last byte is with the kernel.
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
