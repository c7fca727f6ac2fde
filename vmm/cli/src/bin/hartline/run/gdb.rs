//! The socket of a debugger (`--gdb`). The guest serves GDB's remote serial protocol
//! ([`hartline_abi::spawn::Event::Debug`]); here its bytes are moved.

use crate::gdb_listener::{Address, Listener, Lost, SocketFile, waiting};
use anyhow::Context;
use hartline_abi::spawn::{Event, debug, stream};
use hartline_devices::event::Event as Wake;
use hartline_devices::virtio::Guest;
use hartline_vmm::spawn::{Ending, Errno, Spawner};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// A debugger.
#[derive(Debug)]
struct Connection {
    id: u64,
    socket: Arc<OwnedFd>,
    /// The guest waits for bytes, or for room.
    awaits: PollFlags,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last connection.
    last: u64,
    connection: Option<Connection>,
    events: VecDeque<Event>,
}

/// The server of one VM.
#[derive(Debug)]
pub struct GdbServer {
    listener: Listener,
    flags: u64,
    guest: OnceLock<Arc<dyn Guest>>,
    /// Signalled when there is something else to poll.
    changed: Wake,
    state: Mutex<State>,
}

impl GdbServer {
    /// Listens, and says where on standard error. Also returns the file of the socket, if it has one.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn start(address: &Address, lost: Lost) -> anyhow::Result<(Arc<Self>, Option<SocketFile>)> {
        let context = || format!("--gdb: {address}");
        let (listener, shown, file) = Listener::open(address).with_context(context)?;
        let server = Arc::new(Self {
            listener,
            flags: match lost {
                Lost::Continue => 0,
                Lost::Stop => debug::STOPS_WHEN_LOST,
            },
            guest: OnceLock::new(),
            changed: Wake::new().with_context(context)?,
            state: Mutex::default(),
        });
        let served = Arc::clone(&server);
        thread::Builder::new()
            .name("gdb".into())
            .spawn(move || served.run())
            .with_context(context)?;
        crate::say(&waiting(&shown));
        Ok((server, file))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts debuggers, one at a time, and announces when a socket is ready.
    fn run(&self) {
        loop {
            let held = {
                let state = self.lock();
                let connection = state.connection.as_ref();
                connection.map(|connection| (Arc::clone(&connection.socket), connection.awaits))
            };
            let other = match &held {
                Some((socket, awaits)) => (socket.as_fd(), *awaits),
                None => (self.listener.as_fd(), PollFlags::IN),
            };
            let mut fds = vec![PollFd::new(&self.changed, PollFlags::IN)];
            if !other.1.is_empty() {
                fds.push(PollFd::from_borrowed_fd(other.0, other.1));
            }
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            let ready = fds.get(1).map_or(PollFlags::empty(), PollFd::revents);
            drop(fds);
            self.changed.take();
            if !ready.is_empty()
                && self.handle(held.is_some(), ready)
                && let Some(guest) = self.guest.get()
            {
                guest.interrupt();
            }
        }
    }

    /// Handles a socket that is ready. Returns whether there are events for the guest.
    fn handle(&self, is_connected: bool, ready: PollFlags) -> bool {
        let mut state = self.lock();
        if !is_connected {
            let Some(socket) = self.listener.accept() else {
                return false;
            };
            state.last += 1;
            let id = state.last;
            state.connection = Some(Connection {
                id,
                socket: Arc::new(socket),
                awaits: PollFlags::empty(),
            });
            let flags = self.flags;
            state.events.push_back(Event::Debug { id, flags });
            return true;
        }
        let State {
            connection, events, ..
        } = &mut *state;
        let Some(connection) = connection else {
            return false;
        };
        for (flag, stream) in [
            (PollFlags::IN, stream::INPUT),
            (PollFlags::OUT, stream::OUTPUT),
        ] {
            // An error or the end is seen by the guest's next call.
            let is_ready = ready.intersects(flag | PollFlags::HUP | PollFlags::ERR);
            if connection.awaits.contains(flag) && is_ready {
                connection.awaits.remove(flag);
                let id = connection.id;
                events.push_back(Event::Ready { id, stream });
            }
        }
        true
    }

    /// Uses the socket of a connection; if it would block, `flag` is awaited.
    fn with_socket(
        &self,
        id: u64,
        flag: PollFlags,
        work: impl FnOnce(&OwnedFd) -> Result<usize, rustix::io::Errno>,
    ) -> Result<usize, Errno> {
        let mut state = self.lock();
        let connection = state.connection.as_mut();
        let connection = connection.filter(|connection| connection.id == id);
        let connection = connection.ok_or(libc::EBADF)?;
        let done = work(&connection.socket);
        if done == Err(rustix::io::Errno::AGAIN) {
            connection.awaits |= flag;
            drop(state);
            self.changed.signal();
        }
        done.map_err(rustix::io::Errno::raw_os_error)
    }
}

impl Spawner for GdbServer {
    fn connect(&self, guest: Arc<dyn Guest>) {
        // Called once.
        let _ = self.guest.set(guest);
        if let Some(guest) = self.guest.get()
            && !self.lock().events.is_empty()
        {
            guest.interrupt();
        }
    }

    fn next(&self) -> Option<Event> {
        self.lock().events.pop_front()
    }

    fn read(&self, id: u64, number: u64, to: &mut [u8]) -> Result<usize, Errno> {
        if number != stream::INPUT {
            return Err(libc::EBADF);
        }
        self.with_socket(id, PollFlags::IN, |socket| {
            let received = rustix::net::recv(socket, &mut *to, RecvFlags::empty());
            received.map(|(count, _)| count)
        })
    }

    fn write(&self, id: u64, number: u64, from: &[u8]) -> Result<usize, Errno> {
        if number != stream::OUTPUT {
            return Err(libc::EBADF);
        }
        self.with_socket(id, PollFlags::OUT, |socket| {
            rustix::net::send(socket, from, SendFlags::NOSIGNAL)
        })
    }

    fn close(&self, _: u64, _: u64) -> Result<(), Errno> {
        // Both streams are one socket, which `ended` closes.
        Ok(())
    }

    fn await_stream(&self, id: u64, number: u64) -> Result<(), Errno> {
        let flag = match number {
            stream::INPUT => PollFlags::IN,
            stream::OUTPUT => PollFlags::OUT,
            _ => return Err(libc::EBADF),
        };
        let again = |_: &OwnedFd| Err(rustix::io::Errno::AGAIN);
        match self.with_socket(id, flag, again) {
            Err(libc::EAGAIN) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    fn ended(&self, id: u64, _: Ending) -> Result<(), Errno> {
        let mut state = self.lock();
        let connection = state.connection.take_if(|connection| connection.id == id);
        drop(state);
        self.changed.signal();
        connection.map(drop).ok_or(libc::EBADF)
    }
}
