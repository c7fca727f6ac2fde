//! The vCPU's side: it takes the template, and resets the VM.

use super::runs::Streams;
use super::state::{Phase, ResetError};
use super::template::TableChange;
use super::writer::Writer;
use super::{Exports, Template};
use crate::calls::Calls;
use crate::control::{Control, Status, Stop};
use crate::devices::Devices;
use crate::kick;
use crate::platform::{self, Mapping, Vcpu};
use crate::run::End;
use hartline_abi::boot::{NextTime, Shared};
use hartline_abi::call::HostCall;
use hartline_abi::checkpoint::SEED;
use hartline_abi::hart::Pending;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The second result of a host call.
const AGAIN: u64 = (offset_of!(Shared, call) + offset_of!(HostCall, args) + 8) as u64;
const DATA: u64 = (offset_of!(Shared, call) + offset_of!(HostCall, data)) as u64;
const NEXT_CHECK: u64 = (offset_of!(Shared, next_time) + offset_of!(NextTime, next_check)) as u64;

/// The time that output of the program may take before it is dropped by a reset.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// What a reset did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reset {
    /// Pages of 4 KiB that were put back.
    pub pages: u64,
    /// Whether page tables of the guest had changed, which KVM with shadow paging must be told.
    pub tables_changed: bool,
    /// The time that the thread of the vCPU took.
    pub time: Duration,
    pub(super) difference: Option<u64>,
}

/// The parts of a VM.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub ram: &'a Mapping,
    pub shared: &'a Mapping,
    pub devices: &'a Devices,
    pub control: &'a Control,
    pub calls: &'a Mutex<Calls>,
}

/// The thread of the VM's only vCPU.
#[derive(Debug)]
pub(crate) struct VcpuSide {
    exports: Exports,
    template: Option<Template>,
    /// KVM has shadows of page tables.
    has_shadows: bool,
    /// Changes them.
    writer: Option<Writer>,
    /// The number of the time since the last reset. It begins at any multiple of 4, so that two VMs have different
    /// ones.
    generation: u64,
}

/// A random number, or 0 if the host has none.
fn random() -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(_) => u64::from_le_bytes(bytes),
        Err(_) => 0,
    }
}

impl VcpuSide {
    /// A VM that has not waited for a call.
    pub fn new(exports: Exports) -> Self {
        Self {
            exports,
            template: None,
            has_shadows: false,
            writer: None,
            generation: random() << 2,
        }
    }

    /// Takes the template, if the guest has just made a checkpoint.
    ///
    /// # Errors
    /// The host refuses what is needed: the VM must end.
    pub fn after_call(&mut self, vcpu: &mut Vcpu, parts: Parts<'_>) -> Result<(), platform::Error> {
        let shared = &self.exports.0.shared;
        if !shared.take_capture_due() || self.template.is_some() {
            return Ok(());
        }
        // Otherwise the guest has used another instruction than `out`, and harms only itself.
        if !vcpu.complete(parts.devices) {
            return Ok(());
        }
        with_images(parts, |images| images.mark());
        let memory = (parts.ram, parts.shared);
        let template = vcpu
            .save()
            .and_then(|vcpu| Template::take(memory, parts.devices, vcpu));
        let ram = parts.ram.length();
        self.has_shadows = with_images(parts, |images| !images.vm().has_nested_paging());
        let writer = with_images(parts, |images| match self.has_shadows {
            false => Ok(None),
            true => Writer::new(ram, |memory| images.add_writer_slot(memory)),
        });
        let template = template.and_then(|template| {
            let restored = parts.devices.restore(template.devices());
            restored.map_err(|error| platform::Error::Request {
                request: "devices of a template",
                source: io::Error::other(error),
            })?;
            Ok(template)
        });
        match template.and_then(|template| Ok((template, writer?))) {
            Ok((template, writer)) => {
                (self.template, self.writer) = (Some(template), writer);
            }
            Err(error) => {
                shared.set_end(error.to_string());
                return Err(error);
            }
        }
        self.begin_generation();
        self.repeat_news(parts);
        // The time that this thread reads next may have been overwritten.
        parts.control.look();
        self.exports.0.shared.set_phase(Phase::Ready);
        self.hold(parts);
        Ok(())
    }

    /// Waits until a run begins, if the VM is one for runs.
    fn hold(&self, parts: Parts<'_>) {
        if !self.exports.holds() {
            return;
        }
        let is_over = || parts.control.is_over();
        if let Some(streams) = self.exports.0.shared.wait_for_run(&is_over) {
            give(streams, parts);
        }
    }

    /// The guest of a VM for runs has ended: writes the rest of its output, and closes its streams. Result: how the VM
    /// ends if it does not go on.
    fn end_run(&self, end: End, parts: Parts<'_>) -> End {
        self.exports.0.shared.note_run_over();
        let gives_up = || parts.control.is_over() || parts.control.is_resetting();
        // A guest that has broken its queues ends with this error.
        let end = match parts.devices.console().flush(&gives_up) {
            Ok(()) => end,
            Err(broken) => End::Stopped(Stop::Device(broken)),
        };
        take_back(parts);
        self.exports.0.shared.end_run(end);
        End::Stopped(Stop::Closed)
    }

    /// The guest has ended. Waits for a reset, and makes it. Result: `None` if the guest runs again; otherwise how
    /// the VM has ended.
    pub fn after_end(&mut self, end: End, vcpu: &mut Vcpu, parts: Parts<'_>) -> Option<End> {
        if self.template.is_none() || is_final(&end) {
            self.exports.0.shared.set_end(describe(&end));
            return Some(end);
        }
        let description = describe(&end);
        let end = match self.exports.holds() {
            true => self.end_run(end, parts),
            false => end,
        };
        let stopped = || parts.control.stopped().map(End::Stopped);
        let is_over = || stopped().as_ref().is_some_and(is_final);
        let shared = &self.exports.0.shared;
        let goes_on =
            shared.wait_for_reset(description, &is_over) && self.reset_if_due(vcpu, parts);
        match goes_on {
            true => None,
            false => Some(stopped().filter(is_final).unwrap_or(end)),
        }
    }

    /// Resets the VM if a reset was requested. Result: whether the VM can go on.
    pub fn reset_if_due(&mut self, vcpu: &mut Vcpu, parts: Parts<'_>) -> bool {
        if self.exports.0.shared.is_closed() {
            return false;
        }
        if !self.exports.0.shared.is_reset_due() {
            return true;
        }
        let result = self.reset(vcpu, parts);
        let is_reset = result.is_ok();
        self.exports.0.shared.end_reset(result);
        if is_reset {
            self.hold(parts);
        }
        is_reset
    }

    fn reset(&mut self, vcpu: &mut Vcpu, parts: Parts<'_>) -> Result<Reset, ResetError> {
        let failed = |error: platform::Error| ResetError::Impossible(error.to_string());
        let template = self.template.as_ref().ok_or(ResetError::NotReady)?;
        let start = Instant::now();
        if !with_images(parts, |images| images.can_rewind()) {
            let why = "the memory for translations of code that the program makes was used again";
            return Err(ResetError::Impossible(why.into()));
        }
        let devices = parts.devices;
        // Otherwise KVM would complete it with the new registers.
        if !vcpu.complete(devices) {
            let why = "the vCPU does not complete an instruction";
            return Err(ResetError::Impossible(why.into()));
        }
        if !devices.console().is_drained() {
            let deadline = start + LAST_OUTPUT;
            // The guest may have broken the queues.
            let _ = devices.console().flush(&|| Instant::now() >= deadline);
        }
        // They do not access memory any more.
        devices.reset();
        if self.exports.holds() {
            take_back(parts);
            if !devices.console().has_replaced(LAST_OUTPUT) {
                let why = "output of the program is still being written";
                return Err(ResetError::Impossible(why.into()));
            }
        }
        let next_check = parts.shared.atomic_u64(NEXT_CHECK).map_err(failed)?;
        let checked = next_check.load(Ordering::SeqCst);
        let restored = template.restore(parts.ram, parts.shared).map_err(failed)?;
        let tables_changed = restored.tables != TableChange::None;
        if tables_changed && self.has_shadows {
            let is_done = match (&self.writer, &restored.tables) {
                (Some(writer), TableChange::Entries(entries)) => {
                    writer.write(vcpu, entries).map_err(failed)?
                }
                _ => false,
            };
            if !is_done {
                with_images(parts, |images| images.forget_page_tables()).map_err(failed)?;
            }
        }
        let difference = match self.exports.0.shared.compares() {
            true => template.difference(parts.ram).map_err(failed)?,
            false => None,
        };
        devices
            .restore(template.devices())
            .map_err(|error| ResetError::Impossible(error.to_string()))?;
        vcpu.restore(template.vcpu()).map_err(failed)?;
        next_check.store(checked, Ordering::SeqCst);
        let mut seed = [0; SEED];
        getrandom(&mut seed, GetRandomFlags::empty())
            .map_err(|error| ResetError::Impossible(error.to_string()))?;
        parts.shared.write(DATA, &seed).map_err(failed)?;
        parts.shared.write_value(AGAIN, 1u64).map_err(failed)?;
        parts.control.forget_failure();
        self.begin_generation();
        with_images(parts, |images| images.rewind());
        self.repeat_news(parts);
        Ok(Reset {
            pages: restored.pages,
            tables_changed,
            time: start.elapsed(),
            difference,
        })
    }

    fn begin_generation(&mut self) {
        // The guest does not see the last bit.
        self.generation = self.generation.wrapping_add(2);
        if let Some(channel) = self.exports.channel() {
            channel.set_generation(self.generation);
        }
    }

    /// Other threads may have written to memory while it was copied.
    fn repeat_news(&self, parts: Parts<'_>) {
        with_images(parts, |images| images.announce_again());
        kick::all(parts.shared, parts.ram, Pending::Tick);
    }
}

/// Gives the guest the streams of a run.
fn give(streams: Streams, parts: Parts<'_>) {
    let status = [0, 1, 2].map(|stream| {
        streams
            .descriptor(stream)
            .and_then(|descriptor| Status::of(descriptor).ok())
    });
    parts.control.give_input(streams.input, status);
    let outputs = streams.outputs.map(Some);
    parts
        .devices
        .console()
        .replace_outputs(outputs, streams.output_limit);
}

/// Closes the streams of a run. The guest has empty ones now.
fn take_back(parts: Parts<'_>) {
    parts.control.give_input(None, [None; 3]);
    parts
        .devices
        .console()
        .replace_outputs([None, None], u64::MAX);
}

fn with_images<T>(parts: Parts<'_>, act: impl FnOnce(&mut crate::images::Images) -> T) -> T {
    let mut calls = parts.calls.lock().unwrap_or_else(PoisonError::into_inner);
    act(calls.images_mut())
}

/// Whether no reset helps: somebody or something outside the guest has ended the VM.
fn is_final(end: &End) -> bool {
    match end {
        End::Stopped(Stop::Device(_) | Stop::Gate(_)) | End::Report(_) | End::Failed(_) => false,
        End::Stopped(_) => true,
    }
}

/// The end of a guest, for callers.
fn describe(end: &End) -> String {
    match end {
        End::Report(report) => match report.code {
            0 => "it has ended".into(),
            code => format!("it has ended with code {code}"),
        },
        End::Failed(failure) => failure.to_string(),
        End::Stopped(Stop::Device(error)) => error.to_string(),
        End::Stopped(stop) => format!("{stop:?}"),
    }
}
