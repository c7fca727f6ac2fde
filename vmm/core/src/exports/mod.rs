//! Calls between this process and a program in a VM, and resets of the VM
//! ([`hartline_abi::exports`], docs/sandbox.md).
//!
//! The program waits for calls with the functions of `hartline.h`. When it does so for the first time,
//! the VM's state becomes the template, to which the VM can be [reset](Exports::reset) as often as needed. The
//! template of a server, which need not know of calls, is taken on [request](Exports::request_template). That of a VM
//! that continues a snapshot for many [runs](Exports::of_runs) is taken before any task of the guest runs.

mod channel;
mod runs;
mod sandbox;
mod state;
mod tables;
mod template;
mod vcpu;
mod writer;

pub use runs::Streams;
pub use sandbox::{Sandbox, StartError};
pub use state::{CallError, Function, ResetError};
use template::Template;
pub use vcpu::Reset;
pub(crate) use vcpu::{Parts, VcpuSide};

use crate::control::Control;
use crate::interrupts::{Interrupt, Reach};
use crate::platform::{self, Mapping};
use crate::snapshot::Checkpoint;
pub(crate) use channel::Channel;
use hartline_abi::checkpoint::trigger;
use hartline_abi::exports::{EXPORTS_DEVICE, MAX_DATA, MAX_NAME};
use state::{Phase, Shared};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest time for which a caller polls for the reply before it sleeps.
const POLLING: Duration = Duration::from_micros(200);

/// The calls of one VM: one at a time. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Exports(Arc<Inner>);

/// When the template is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TemplateAt {
    /// When the program waits for its first call.
    #[default]
    Call,
    /// After a request, when the program waits for connections or events of files, and nothing else can run.
    Request,
    /// When a VM that continues a snapshot is ready to go on.
    Restored,
}

impl TemplateAt {
    /// The value of [`hartline_abi::boot::BootInfo::checkpoint`].
    pub fn trigger(self) -> u32 {
        match self {
            Self::Call => trigger::CALL,
            Self::Request => trigger::IDLE,
            Self::Restored => trigger::RESTORED,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    at: TemplateAt,
    shared: Shared,
    /// Held for a whole call or reset.
    turn: Mutex<()>,
}

/// The VM's side, once it has one.
#[derive(Debug)]
struct Connected {
    channel: Channel,
    interrupt: Interrupt,
    control: Arc<Control>,
    checkpoint: Checkpoint,
}

impl Exports {
    /// Calls for a VM that does not run yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For a VM that does not run yet, and whose template is taken on [request](Self::request_template).
    #[must_use]
    pub fn of_server() -> Self {
        Self(Arc::new(Inner {
            at: TemplateAt::Request,
            ..Inner::default()
        }))
    }

    /// When the template is taken.
    pub(crate) fn template_at(&self) -> TemplateAt {
        self.0.at
    }

    /// Requests the template of a [server](Self::of_server), also before its VM runs. It is taken when the program
    /// waits for connections or events of files, and nothing else can run.
    pub fn request_template(&self) {
        if let Some(connected) = self.0.shared.request_template() {
            connected.checkpoint.request();
        }
    }

    /// Waits until `is_done`, which is asked after each [`wake`](Self::wake) and change of the VM.
    ///
    /// # Errors
    /// [`CallError::Late`] after `deadline`; [`CallError::Ended`].
    pub fn wait_until(
        &self,
        deadline: Option<Instant>,
        is_done: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        self.0.shared.wait_until(deadline, is_done)
    }

    /// Whether the program says that it has ended. Its VM may still deliver what it has sent.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        let connected = self.0.shared.connected();
        connected.is_some_and(|connected| connected.channel.has_report())
    }

    /// Makes [`wait_until`](Self::wait_until) look again.
    pub fn wake(&self) {
        self.0.shared.wake();
    }

    /// Gives the program a function of this process, in place of an earlier one with this name. It gets the
    /// input, and returns the output, of at most [`MAX_DATA`] bytes, or a Linux error number. The thread of
    /// the vCPU calls it: the program waits meanwhile, and the VM is not reset and does not end before it has
    /// returned. It cannot call the program. If it panics, it fails with `EIO`.
    pub fn register(
        &self,
        name: &str,
        function: impl Fn(&[u8]) -> Result<Vec<u8>, i32> + Send + Sync + 'static,
    ) {
        self.0.shared.register(name, Arc::new(function));
    }

    /// Waits until the program waits for its first call.
    ///
    /// # Errors
    /// [`CallError::Late`] after `limit`; [`CallError::Ended`].
    pub fn wait_until_ready(&self, limit: Option<Duration>) -> Result<(), CallError> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.0.shared.wait_until_ready(deadline)
    }

    /// Calls function `name` of the program. Result: its output.
    ///
    /// # Errors
    /// [`CallError`]. After every error but [`CallError::Function`], [`CallError::Name`],
    /// [`CallError::Length`] and [`CallError::Nested`] the program's state is not known: only a [reset](Self::reset) helps.
    pub fn call(
        &self,
        name: &str,
        input: &[u8],
        limit: Option<Duration>,
    ) -> Result<Vec<u8>, CallError> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(CallError::Name(name.into()));
        }
        if input.len() > MAX_DATA {
            return Err(CallError::Length(input.len()));
        }
        let _turn = self.turn().ok_or(CallError::Nested)?;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let connected = self.0.shared.begin_call(deadline)?;
        connected.channel.write(name.as_bytes(), input)?;
        connected.interrupt.raise();
        let replied = self.await_reply(&connected, deadline);
        match replied {
            Ok(()) => {
                let (status, output) = connected.channel.read()?;
                match status {
                    0.. => Ok(output),
                    // The guest may have written any number.
                    error => Err(CallError::Function(
                        i32::try_from(error.unsigned_abs()).unwrap_or(libc::EIO),
                    )),
                }
            }
            Err(error) => {
                self.0.shared.poison();
                Err(error)
            }
        }
    }

    /// Waits until no other call or reset is made. `None`: the program has called this thread, and would wait for
    /// ever.
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        match self.0.shared.is_serving() {
            true => None,
            false => Some(self.0.turn.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Polls for the reply, and then sleeps.
    fn await_reply(
        &self,
        connected: &Connected,
        deadline: Option<Instant>,
    ) -> Result<(), CallError> {
        let channel = &connected.channel;
        let polls_until = Instant::now() + POLLING;
        loop {
            for _ in 0..64 {
                if channel.is_replied() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= polls_until {
                break;
            }
        }
        self.0.shared.sleep_until(deadline, &|| {
            channel.begin_sleep();
            channel.is_replied()
        })
    }

    /// Puts the VM back into the state in which the program waited for its first call: memory, processor and
    /// devices. Nothing in the guest is asked or trusted. After it, calls find nothing of what earlier calls
    /// left. It also ends a call that takes too long, and helps after a crash or the end of the program.
    ///
    /// # Errors
    /// [`ResetError`]: the VM cannot be used any more.
    pub fn reset(&self) -> Result<Reset, ResetError> {
        self.reset_with(false)
    }

    fn reset_with(&self, compares: bool) -> Result<Reset, ResetError> {
        let _turn = self.turn().ok_or(ResetError::Nested)?;
        let connected = self.0.shared.begin_reset(compares)?;
        connected.control.request_reset();
        self.0.shared.await_reset()
    }

    /// [Resets](Self::reset) the VM and compares all of RAM with the template before the VM runs again, which
    /// takes long. Result: also the offset in RAM of the first page that differs, if there is one.
    ///
    /// # Errors
    /// [`ResetError`].
    pub fn reset_and_compare(&self) -> Result<(Reset, Option<u64>), ResetError> {
        let reset = self.reset_with(true)?;
        Ok((reset, reset.difference))
    }

    /// Ends the VM. Calls fail from now on.
    pub fn end(&self) {
        self.0.shared.close();
    }

    /// Connects the calls with a VM, before it runs.
    ///
    /// # Errors
    /// The shared pages have no room for the channel: a bug.
    pub(crate) fn connect(&self, reach: &Reach) -> Result<(), platform::Error> {
        let connected = Connected {
            channel: Channel::new(Arc::clone(&reach.shared))?,
            interrupt: Interrupt::new(reach, EXPORTS_DEVICE, None),
            control: Arc::clone(&reach.control),
            checkpoint: Checkpoint::new(reach),
        };
        self.0.shared.connect(Arc::new(connected));
        Ok(())
    }

    /// Whether this thread executes a function of this process that the program has called.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.0.shared.is_serving()
    }

    /// The channel, once there is a VM.
    pub(crate) fn channel(&self) -> Option<Channel> {
        let connected = self.0.shared.connected()?;
        Some(connected.channel.clone())
    }

    /// Calls a function of this process for the guest, which passed its name and input.
    ///
    /// # Errors
    /// A Linux error number.
    pub(crate) fn call_host(&self, name: &[u8], input: &[u8]) -> Result<Vec<u8>, i32> {
        let begun = self.0.shared.begin_function(name);
        let (function, _serving) = begun.ok_or(libc::ENOENT)?;
        // What a panic leaves half done belongs to the function.
        let result = catch_unwind(AssertUnwindSafe(|| function(input)));
        let output = result.unwrap_or(Err(libc::EIO))?;
        match output.len() <= MAX_DATA {
            true => Ok(output),
            false => Err(libc::E2BIG),
        }
    }

    /// The guest has made a checkpoint: the vCPU's thread takes the template next.
    pub(crate) fn note_checkpoint(&self) {
        self.0.shared.set_capture_due();
    }

    /// The guest has replied, and a caller sleeps.
    pub(crate) fn note_reply(&self) {
        self.0.shared.wake();
    }
}

/// Tells callers when a VM has ended for good, also after a panic.
#[derive(Debug)]
pub(crate) struct Over(Exports);

impl Over {
    /// For the VM of these calls.
    pub fn new(exports: &Exports) -> Self {
        Self(exports.clone())
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        self.0.0.shared.set_phase(Phase::Over);
    }
}

/// The shared pages of a VM.
type Pages = Arc<Mapping>;
