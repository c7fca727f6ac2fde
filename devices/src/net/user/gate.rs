//! Connections of hosts to a guest that gets one of them at a time, and is reset after each.

use super::forward::Listener;
use crate::event::Event;
use socket2::Socket;
use std::fmt;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// It gets no connection.
    None,
    /// It gets the next connection.
    Awaited,
    /// It has a connection.
    Present,
    /// Its connection has ended.
    Over,
}

/// Called after each change of a [`Visit`].
type Changed = Box<dyn Fn() + Send + Sync>;

/// Lets connections to a guest, one at a time.
pub struct Gate {
    state: Mutex<State>,
    /// There is a connection, or the next one is awaited.
    opened: Event,
    changed: Changed,
}

#[derive(Debug)]
struct State {
    visit: Visit,
    /// A connection for a port of the guest, which no listener has accepted.
    given: Option<(Socket, u16)>,
}

impl Gate {
    /// A gate through which no connection comes before it is [opened](Self::open). `changed` is called after each
    /// change.
    ///
    /// # Errors
    /// The host has no descriptor left.
    pub fn new(changed: impl Fn() + Send + Sync + 'static) -> io::Result<Arc<Self>> {
        let state = State {
            visit: Visit::None,
            given: None,
        };
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            opened: Event::new()?,
            changed: Box::new(changed),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the guest does.
    #[must_use]
    pub fn visit(&self) -> Visit {
        self.lock().visit
    }

    /// Lets the next connection in.
    pub fn open(&self) {
        self.lock().visit = Visit::Awaited;
        self.opened.signal();
    }

    /// Lets this connection to a port of the guest in.
    pub fn give(&self, connection: TcpStream, guest: u16) {
        {
            let mut state = self.lock();
            state.visit = Visit::Awaited;
            state.given = Some((connection.into(), guest));
        }
        self.opened.signal();
    }

    /// Lets no connection in, unless one is there or was. Result: whether it is.
    #[must_use]
    pub fn close_unless_present(&self) -> bool {
        let mut state = self.lock();
        let is_present = matches!(state.visit, Visit::Present | Visit::Over);
        if !is_present {
            (state.visit, state.given) = (Visit::None, None);
        }
        is_present
    }

    /// Lets no connection in.
    pub fn close(&self) {
        let mut state = self.lock();
        (state.visit, state.given) = (Visit::None, None);
    }

    /// Accepts a connection if one is awaited. Result: it, and the port of the guest.
    pub(super) fn admit(&self, listeners: &[Listener<TcpListener>]) -> Option<(Socket, u16)> {
        let mut state = self.lock();
        if state.visit != Visit::Awaited {
            return None;
        }
        let given = state.given.take();
        let admitted = given.or_else(|| listeners.iter().find_map(accept))?;
        state.visit = Visit::Present;
        drop(state);
        (self.changed)();
        Some(admitted)
    }

    /// Notes that the connection has ended.
    pub(super) fn end(&self) {
        {
            let mut state = self.lock();
            if state.visit != Visit::Present {
                return;
            }
            state.visit = Visit::Over;
        }
        (self.changed)();
    }
}

/// Accepts a connection.
fn accept(listener: &Listener<TcpListener>) -> Option<(Socket, u16)> {
    loop {
        match listener.socket.accept() {
            Ok((host, _)) => return Some((host.into(), listener.guest)),
            // A connection that was aborted before `accept` says nothing about others.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR)) => {}
            Err(_) => return None,
        }
    }
}

impl AsFd for Gate {
    /// Readable when the gate was opened.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
