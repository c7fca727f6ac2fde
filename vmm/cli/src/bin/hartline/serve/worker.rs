//! A worker: a VM of the snapshot that gets a connection, and is reset after it.

use super::statistics::{End, Statistics};
use super::visits::Visits;
use super::warm_up::WarmUp;
use crate::run::{Guest, Net, arguments_of_snapshot};
use anyhow::{Context, bail};
use hartline_devices::net::user::{Gate, User, Visit};
use hartline_embed::images::{Baseline, Making, Report, RunningImages};
use hartline_embed::translation::Translation;
use hartline_vmm::exports::{CallError, Exports, Sandbox};
use hartline_vmm::images::ImageSource;
use hartline_vmm::interrupts::Mode;
use hartline_vmm::machine::{self, Blank, Outcome, Settings};
use hartline_vmm::platform::Kvm;
use hartline_vmm::snapshot::Snapshot;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// The pause before another VM is started in place of one that has ended.
const PAUSE: Duration = Duration::from_millis(500);

/// What all workers share.
pub struct Service {
    pub snapshot: Snapshot,
    pub guest: Guest,
    pub translation: Arc<Translation>,
    pub report: Arc<dyn Report>,
    /// Each with a port of the guest.
    pub listeners: Vec<(TcpListener, u16)>,
    pub is_ephemeral: bool,
    pub limit: Option<Duration>,
    pub ready_within: Duration,
    pub warm_up: Option<WarmUp>,
    pub visits: Visits,
    pub statistics: Statistics,
}

/// Says once whether a worker is ready.
#[derive(Debug)]
pub struct Ready(Option<Sender<anyhow::Result<()>>>);

impl Ready {
    /// Says it to the receiver.
    pub fn new(tell: Sender<anyhow::Result<()>>) -> Self {
        Self(Some(tell))
    }

    /// Says it, the first time. Result: an error that was not told.
    fn tell(&mut self, result: anyhow::Result<()>) -> anyhow::Result<()> {
        match self.0.take() {
            // Without a receiver, the service ends.
            Some(tell) => {
                let _ = tell.send(result);
                Ok(())
            }
            None => result,
        }
    }
}

/// Why a VM is not used any more.
enum Leave {
    /// The service ends.
    Closing,
    /// The VM cannot go on.
    Lost(anyhow::Error),
}

/// A VM of a worker.
struct Worker {
    vm: Sandbox,
    gate: Arc<Gate>,
    images: Arc<RunningImages>,
}

impl Service {
    /// The thread of a worker: serves connections until the service ends.
    pub fn work(self: &Arc<Self>, mut ready: Ready) {
        while !self.visits.is_closing() {
            let error = match self.start() {
                Ok(worker) => {
                    // Ready VMs have nothing to report.
                    let _ = ready.tell(Ok(()));
                    let leave = self.serve(&worker);
                    worker.end();
                    match leave {
                        Leave::Closing => return,
                        Leave::Lost(error) => Err(error),
                    }
                }
                Err(error) => ready.tell(Err(error)),
            };
            if let Err(error) = error {
                crate::say(&format!("{error:#}: another VM is started"));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Starts a VM, and waits until its server waits for connections.
    fn start(self: &Arc<Self>) -> anyhow::Result<Worker> {
        let deadline = Instant::now() + self.ready_within;
        let exports = Exports::of_server();
        let waiter = exports.clone();
        let gate = Gate::new(move || waiter.wake()).context("eventfd")?;
        let making = Making {
            processors: None,
            baseline: Baseline::Auto,
            tunes_allocator: true,
            report: Arc::clone(&self.report),
        };
        let images = Arc::new(RunningImages::new(Arc::clone(&self.translation), making));
        let mut user = User::new(&[])?;
        user.guard(self.listeners()?, Arc::clone(&gate))?;
        let outputs = outputs().context("standard output and error")?;
        let (service, given) = (Arc::clone(self), Arc::clone(&images));
        let run = move |exports| service.run(exports, given, user, outputs);
        let vm = Sandbox::begin(exports, run)?;
        let worker = Worker { vm, gate, images };
        let result = self.prepare(&worker, deadline);
        match result {
            Ok(()) => {
                self.statistics.started();
                Ok(worker)
            }
            Err(error) => Err(worker.end_with(error)),
        }
    }

    /// Warms the server up, and takes the template of its VM.
    fn prepare(&self, worker: &Worker, deadline: Instant) -> anyhow::Result<()> {
        let exports = worker.vm.exports();
        if let Some(warm_up) = &self.warm_up {
            warm_up.visit(&worker.gate, deadline)?;
            let is_over = || worker.gate.visit() == Visit::Over;
            exports.wait_until(Some(deadline), &is_over)?;
            worker.gate.close();
        }
        exports.request_template();
        let left = deadline.saturating_duration_since(Instant::now());
        match exports.wait_until_ready(Some(left)) {
            Err(CallError::Late) => bail!(
                "the program has not waited for connections within {} s (--ready-within)",
                self.ready_within.as_secs_f64()
            ),
            result => Ok(result?),
        }
    }

    /// Runs a VM to its end.
    fn run(
        &self,
        exports: Exports,
        images: Arc<RunningImages>,
        user: User,
        outputs: [OwnedFd; 2],
    ) -> Result<Outcome, machine::Error> {
        let variant = self.snapshot.variant();
        let program = self.guest.program.as_ref();
        // Without it, the guest requests it.
        let program_image =
            program.and_then(|program| images.of_program(program, variant).ok().flatten());
        let arguments = arguments_of_snapshot(&self.snapshot, &[]);
        let mut settings = Settings {
            ram: self.snapshot.ram(),
            tree: Some(&self.guest.tree),
            images: Some(images as Arc<dyn ImageSource>),
            program_image,
            outputs: Some(outputs),
            variant,
            exports: Some(exports),
            shares_process: true,
            from: Some(&self.snapshot),
            ..Settings::new(&arguments)
        };
        let (network, net) = Net::of_backend(Box::new(user));
        (settings.devices.network, settings.net) = (Some(network), net);
        let kvm = Kvm::open(Path::new(Kvm::DEVICE))?;
        Blank::new(kvm, settings.cpus, Mode::Safepoint)?.run(settings)
    }

    fn listeners(&self) -> io::Result<Vec<(TcpListener, u16)>> {
        let each = self.listeners.iter();
        each.map(|(listener, guest)| Ok((listener.try_clone()?, *guest)))
            .collect()
    }

    /// Serves connections, one after another.
    fn serve(&self, worker: &Worker) -> Leave {
        let (exports, gate) = (worker.vm.exports(), &worker.gate);
        let _entry = self.visits.add(exports.clone());
        while !self.visits.is_closing() {
            gate.open();
            let is_over = || gate.visit() != Visit::Awaited || self.visits.is_closing();
            let waited = exports.wait_until(None, &is_over);
            let has_visitor = gate.close_unless_present();
            let end = match waited {
                _ if has_visitor => self.attend(worker),
                Ok(()) => return Leave::Closing,
                Err(_) => End::Crashed,
            };
            if !self.is_ephemeral && end == End::Over {
                continue;
            }
            match exports.reset() {
                Ok(reset) => self.statistics.reset(reset.time),
                Err(error) => return Leave::Lost(error.into()),
            }
            if !has_visitor {
                // A program that ends by itself must not use up a processor.
                thread::sleep(PAUSE);
            }
        }
        Leave::Closing
    }

    /// Waits for the end of a connection.
    fn attend(&self, worker: &Worker) -> End {
        let (exports, gate) = (worker.vm.exports(), &worker.gate);
        let limit = self.limit;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let is_over = || gate.visit() != Visit::Present;
        let end = match exports.wait_until(deadline, &is_over) {
            Ok(()) if exports.is_ending() => End::Crashed,
            Ok(()) => End::Over,
            Err(CallError::Late) => End::Late,
            Err(_) => End::Crashed,
        };
        self.statistics.served(end);
        gate.close();
        end
    }
}

impl Worker {
    fn end(mut self) {
        // `serve` has reported why it is not used any more.
        let _ = self.vm.end();
        self.images.finish();
    }

    /// Ends the VM. Result: its own error, if it has one, or `error`.
    fn end_with(mut self, error: anyhow::Error) -> anyhow::Error {
        let ended = self.vm.end();
        self.images.finish();
        match ended {
            Err(own) => own.into(),
            Ok(_) => error,
        }
    }
}

/// The standard output and error of this process.
fn outputs() -> io::Result<[OwnedFd; 2]> {
    Ok([
        io::stdout().as_fd().try_clone_to_owned()?,
        io::stderr().as_fd().try_clone_to_owned()?,
    ])
}
