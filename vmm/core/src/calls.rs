//! Serving host calls ([`hartline_abi::call`]) on the thread of the calling vCPU. The guest
//! controls the arguments: each is read once and checked.

use crate::call_stacks::{CallStacks, CallingTask, SampleStacks};
use crate::control::{Control, Status, Stop};
use crate::core_dump::CoreDump;
use crate::devices::Devices;
use crate::exports::Exports;
use crate::idt::{GateError, ShadowIdt};
use crate::images::{Answer, Images, JitError};
use crate::inspect::{ProgramMemory, file_mappings};
use crate::interrupts;
use crate::locate::{HostStack, Locate, TranslatedFault};
use crate::platform::{self, Mapping};
use crate::signals;
use crate::snapshot::{Capture, Moment, Then};
use crate::spawn::{Ending, Spawner};
use crate::terminal::Terminal;
use crate::tree_reads::TreeReads;
use hartline_abi::boot::Shared;
use hartline_abi::call::{
    CALL_DATA, HostCall, MAX_JIT_CODE, MAX_JIT_ENTRIES, MAX_REGISTER_ACCESSES, Operation,
    RegisterAccess, jit_request, stack_request,
};
use hartline_abi::exports::{MAX_DATA, MAX_NAME};
use hartline_abi::interrupt::TABLE_LENGTH;
use hartline_abi::layout::{PAGE_SIZE, RAM_GPA};
use hartline_abi::spawn::{Call, Event};
use hartline_abi::volume::{Channel, SUBMITTED, Slot};
use hartline_aot::jit::JitCode;
use hartline_devices::event::Event as Wake;
use hartline_devices::timeline;
use hartline_devices::volume::Volumes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::{stderr, stdin, stdout};
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const MAILBOX: u64 = offset_of!(Shared, call) as u64;
const OPERATION: u64 = MAILBOX + offset_of!(HostCall, operation) as u64;
const ARGS: u64 = MAILBOX + offset_of!(HostCall, args) as u64;
const RESULT: u64 = MAILBOX + offset_of!(HostCall, result) as u64;
const DATA: u64 = MAILBOX + offset_of!(HostCall, data) as u64;
const VOLUME_STATE: u64 =
    (offset_of!(Shared, volumes) + offset_of!(Channel, slots) + offset_of!(Slot, state)) as u64;
const SIGNALS: u64 = offset_of!(Shared, signals) as u64;

/// Largest Linux error number.
const MAX_ERRNO: i32 = 4095;
/// Bit of the set of [`Operation::Wait`]: standard input is readable.
const INPUT: u64 = 1;

/// A Linux error number; x86-64 and riscv64 use the same numbers.
type Errno = i32;

/// What some VMs have.
#[derive(Debug, Default)]
pub(crate) struct Extensions {
    /// Starts processes.
    pub spawner: Option<Arc<dyn Spawner>>,
    /// Writes snapshots.
    pub capture: Option<Capture>,
    /// The file for a core dump.
    pub core: Option<Arc<CoreDump>>,
    /// Finds call stacks for the trace of system calls.
    pub call_stacks: Option<Arc<dyn CallStacks>>,
    /// Finds call stacks for profiles.
    pub sample_stacks: Option<Arc<dyn SampleStacks>>,
    /// Finds the registers at faults in translated code, with the host stacks.
    pub locate: Option<(Arc<dyn Locate>, HostStack)>,
    /// Reads a root file system tree that has a slot.
    pub tree: Option<TreeReads>,
    /// Calls between this process and the program.
    pub exports: Option<Exports>,
}

/// Serves the calls of the vCPUs.
#[derive(Debug)]
pub(crate) struct Calls {
    shared: Arc<Mapping>,
    control: Arc<Control>,
    devices: Arc<Devices>,
    volumes: Arc<Volumes>,
    images: Images,
    ram: Arc<Mapping>,
    idt: ShadowIdt,
    extensions: Extensions,
    terminal: Terminal,
}

impl Calls {
    /// Serves the mailbox in `shared`, for a VM with this RAM and interrupt descriptor table.
    #[must_use]
    pub fn new(
        shared: Arc<Mapping>,
        control: Arc<Control>,
        devices: Arc<Devices>,
        volumes: Arc<Volumes>,
        images: Images,
        (ram, idt): (Arc<Mapping>, ShadowIdt),
        extensions: Extensions,
    ) -> Self {
        Self {
            shared,
            control,
            devices,
            volumes,
            images,
            ram,
            idt,
            extensions,
            terminal: Terminal::default(),
        }
    }

    /// The images that the guest has requested.
    pub fn into_images(self) -> Images {
        self.images
    }

    /// As [`into_images`](Self::into_images), while the VM runs.
    pub fn images_mut(&mut self) -> &mut Images {
        &mut self.images
    }

    /// Serves the call of vCPU `cpu` in the mailbox. A call that the end of the VM interrupts
    /// returns too; the caller checks for that.
    ///
    /// # Errors
    /// Only if the mailbox is not in the shared pages: a bug of the VMM.
    pub fn serve(&mut self, cpu: usize) -> Result<(), platform::Error> {
        let operation = self.shared.atomic_u32(OPERATION)?.load(Ordering::Acquire);
        let mut args = self.shared.read_value::<[u64; 6]>(ARGS)?;
        let result = self.dispatch(cpu, operation, &mut args)?;
        self.shared.write_value(ARGS, args)?;
        let result = result.unwrap_or_else(|errno| -i64::from(errno));
        self.shared.write_value(RESULT, result)
    }

    fn dispatch(
        &mut self,
        cpu: usize,
        operation: u32,
        args: &mut [u64; 6],
    ) -> Result<Result<i64, Errno>, platform::Error> {
        const READ: u32 = Operation::Read as u32;
        const WAIT: u32 = Operation::Wait as u32;
        const FLUSH: u32 = Operation::Flush as u32;
        const IOCTL: u32 = Operation::Ioctl as u32;
        const TICK: u32 = Operation::Tick as u32;
        const STATUS: u32 = Operation::Status as u32;
        const IMAGE: u32 = Operation::Image as u32;
        const VOLUME: u32 = Operation::Volume as u32;
        const STOP: u32 = Operation::Stop as u32;
        const COPY: u32 = Operation::Copy as u32;
        const VECTORS: u32 = Operation::Vectors as u32;
        const REGISTERS: u32 = Operation::Registers as u32;
        const JIT: u32 = Operation::Jit as u32;
        const SPAWN: u32 = Operation::Spawn as u32;
        const CHECKPOINT: u32 = Operation::Checkpoint as u32;
        const CORE: u32 = Operation::Core as u32;
        const STACK: u32 = Operation::Stack as u32;
        const READ_TREE: u32 = Operation::ReadTree as u32;
        const HOST_FUNCTION: u32 = Operation::HostFunction as u32;
        const LOCATE: u32 = Operation::Locate as u32;
        match operation {
            READ => self.control.while_idle(cpu, || self.read(cpu, args)),
            WAIT => self.control.while_idle(cpu, || self.wait(cpu, args)),
            TICK => {
                self.control.start_ticking();
                Ok(Ok(0))
            }
            // The guest must not stop or change what is not its own.
            STOP if self.control.shares_process() => Ok(Ok(0)),
            IOCTL if self.control.shares_process() => Ok(Err(libc::ENOTTY)),
            STOP => {
                self.terminal.while_stopped(signals::stop_process);
                Ok(Ok(0))
            }
            FLUSH => Ok(self.flush().map(|()| 0)),
            IOCTL => self.ioctl(args),
            STATUS => Ok(self.status(args)),
            IMAGE => self.image(cpu, args),
            COPY => Ok(match self.images.show_copy(args[0])? {
                Some((gpa, length)) => {
                    args[..2].copy_from_slice(&[gpa, length]);
                    Ok(0)
                }
                None => Err(libc::ENOSPC),
            }),
            VOLUME => {
                let state = self.shared.atomic_u32(VOLUME_STATE)?;
                let is_submitted = || state.load(Ordering::SeqCst) == SUBMITTED;
                let stopped = || self.control.stopped().is_some();
                if !self.volumes.wait(&is_submitted, &stopped) {
                    // No thread will answer any more: the guest must not repeat the request.
                    self.control.stop(Stop::Volumes);
                }
                Ok(Ok(0))
            }
            VECTORS => self.vectors(args),
            REGISTERS => self.registers(args),
            JIT => self.jit(args),
            SPAWN => self.spawn(args),
            CHECKPOINT => {
                let result = self.checkpoint(args);
                args[1] = 0;
                Ok(result)
            }
            CORE => self.core(args),
            STACK => self.stack(args),
            READ_TREE => Ok(self.read_tree(args)),
            HOST_FUNCTION => self.host_function(args),
            LOCATE => self.locate(args),
            _ => Ok(Err(libc::ENOSYS)),
        }
    }

    /// [`Operation::Flush`].
    fn flush(&self) -> Result<(), Errno> {
        let stopped = || self.control.is_over() || self.control.is_resetting();
        // A broken queue ends the VM through the console's own thread.
        let flushed = self.devices.console().flush(&stopped);
        flushed.map_err(|_| libc::EIO)
    }

    /// [`Operation::Status`].
    fn status(&self, args: &mut [u64; 6]) -> Result<i64, Errno> {
        let descriptor = standard_descriptor(args[0]).ok_or(libc::EBADF)?;
        let status = match self.control.status(args[0]) {
            Some(status) => status,
            // The program sees nothing of this process.
            None if self.control.shares_process() => Status::NULL,
            None => Status::of(descriptor)?,
        };
        args[..4].copy_from_slice(&[status.mode.into(), status.size, status.rdev, 0]);
        Ok(0)
    }

    fn read(&self, cpu: usize, args: &[u64; 6]) -> Result<Result<i64, Errno>, platform::Error> {
        if args[0] != 0 {
            return Ok(Err(libc::EBADF));
        }
        let input = self.control.input();
        let Some(descriptor) = input.descriptor() else {
            return Ok(Ok(0));
        };
        let length = usize::try_from(args[1]).map_or(CALL_DATA, |length| length.min(CALL_DATA));
        loop {
            if let Err(errno) = self.wait_for(cpu, (INPUT, false), None)? {
                return Ok(Err(errno));
            }
            match self.shared.read_descriptor(DATA, descriptor, length) {
                Ok(count) => return Ok(i64::try_from(count).map_err(|_| libc::EIO)),
                // Another reader of the same terminal or pipe was faster.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Ok(Err(e.raw_os_error().unwrap_or(libc::EIO))),
            }
        }
    }

    fn wait(&self, cpu: usize, args: &[u64; 6]) -> Result<Result<i64, Errno>, platform::Error> {
        if args[0] & !INPUT != 0 {
            return Ok(Err(libc::EINVAL));
        }
        let deadline = match args[1] {
            u64::MAX => None,
            // A time that the host's clock cannot express counts as no timeout.
            ns => Instant::now().checked_add(Duration::from_nanos(ns)),
        };
        self.wait_for(cpu, (args[0], true), deadline)
    }

    /// Waits for the descriptors of `set`, for interrupts of devices if requested, for the
    /// deadline, for a signal for the program (`EINTR`), or for the end of the VM (also `EINTR`).
    fn wait_for(
        &self,
        cpu: usize,
        (set, interrupts): (u64, bool),
        deadline: Option<Instant>,
    ) -> Result<Result<i64, Errno>, platform::Error> {
        let (_, wake) = self.control.of_cpu(cpu);
        let input = self.control.input();
        let input = match (set & INPUT != 0).then(|| input.descriptor()) {
            // Its end can be read.
            Some(None) => return Ok(Ok(INPUT.cast_signed())),
            Some(descriptor) => descriptor,
            None => None,
        };
        loop {
            // Checked after this vCPU is counted as waiting, so that no interrupt is missed.
            if interrupts && interrupts::is_pending(&self.control, &self.shared, cpu)? {
                return Ok(Ok(0));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let [ready, woken] = poll_readable(input, wake, left);
            if ready {
                return Ok(Ok(INPUT.cast_signed()));
            }
            if woken {
                // Emptied before the check, so that a later wake is noticed.
                wake.take();
            }
            if self.interrupted()? {
                return Ok(Err(libc::EINTR));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Ok(0));
            }
        }
    }

    /// Whether a waiting call must end: the program got a signal, or the VM ends.
    fn interrupted(&self) -> Result<bool, platform::Error> {
        let signals = self.shared.atomic_u64(SIGNALS)?.load(Ordering::SeqCst);
        Ok(signals != 0 || self.control.is_over() || self.control.is_resetting())
    }

    /// [`Operation::Image`].
    fn image(
        &mut self,
        cpu: usize,
        args: &mut [u64; 6],
    ) -> Result<Result<i64, Errno>, platform::Error> {
        let (_, wake) = self.control.of_cpu(cpu);
        loop {
            let [inode, variant, bias, number, ..] = *args;
            let code = (bias, number);
            match self.images.answer(inode, variant, code, &self.control)? {
                Answer::At { gpa, length, flags } => {
                    args[..3].copy_from_slice(&[gpa, length, flags]);
                    return Ok(Ok(0));
                }
                Answer::NotYet => return Ok(Err(libc::EAGAIN)),
                Answer::None => return Ok(Err(libc::ENOENT)),
                Answer::Unknown => {}
            }
            if self.interrupted()? {
                self.images.abandon(inode, variant);
                return Ok(Err(libc::EINTR));
            }
            poll_readable(None, wake, None);
            // Emptied before the check, so that a later wake is noticed.
            wake.take();
        }
    }

    /// [`Operation::Vectors`].
    fn vectors(&self, args: &[u64; 6]) -> Result<Result<i64, Errno>, platform::Error> {
        if !self.idt.has_devices() {
            return Ok(Err(libc::EOPNOTSUPP));
        }
        // A copy, which the guest cannot change during the check.
        let mut table = [0; TABLE_LENGTH];
        let offset = args[0].checked_sub(RAM_GPA);
        let read = offset
            .filter(|offset| offset.is_multiple_of(PAGE_SIZE))
            .is_some_and(|offset| self.ram.read(offset, &mut table).is_ok());
        let assigned = match read {
            true => self.idt.assign(&table)?,
            false => Err(GateError::Place),
        };
        if let Err(error) = assigned {
            self.control.stop(Stop::Gate(error));
        }
        Ok(Ok(0))
    }

    /// [`Operation::Jit`].
    fn jit(&mut self, args: &mut [u64; 6]) -> Result<Result<i64, Errno>, platform::Error> {
        const KINDS: u64 = jit_request::OPTIMISE | jit_request::TAKE;
        let flags = args[4];
        let reuses = flags & jit_request::REUSE != 0;
        let placed = match (flags & KINDS, flags & !KINDS) {
            (0, 0 | jit_request::REUSE) => {
                let began = timeline::start();
                let placed = self.with_jit_code(args, |images, code, variant| {
                    images.translate(code, variant, reuses)
                });
                if let Some(start) = began {
                    start.end(timeline::Event::Translation {
                        tier: "code made at run time",
                        instructions: None,
                    });
                }
                placed
            }
            (jit_request::TAKE, 0 | jit_request::REUSE) => {
                let taken = self.images.take_optimised(reuses);
                taken.map(|(placed, ticket)| {
                    args[5] = ticket;
                    placed
                })
            }
            (jit_request::OPTIMISE, 0) => {
                let ticket = self.with_jit_code(args, Images::optimise);
                return ticket.map_or_else(refused, |ticket| Ok(Ok(ticket.cast_signed())));
            }
            _ => return Ok(Err(libc::EINVAL)),
        };
        let placed = match placed {
            Ok(placed) => placed,
            Err(error) => return refused(error),
        };
        let layout = placed.layout;
        args[..5].copy_from_slice(&[
            placed.gpa,
            placed.offset,
            layout.code,
            layout.functions,
            layout.accesses,
        ]);
        Ok(Ok(0))
    }

    /// Does `work` with the code, and its variant, in a request of [`Operation::Jit`].
    fn with_jit_code<T>(
        &mut self,
        args: &[u64; 6],
        work: impl FnOnce(&mut Images, &JitCode<'_>, u32) -> Result<T, JitError>,
    ) -> Result<T, JitError> {
        let [start, length, count, variant, ..] = *args;
        let length = usize::try_from(length).ok().filter(|&n| n <= MAX_JIT_CODE);
        let count = usize::try_from(count).ok();
        let count = count.filter(|&n| n <= MAX_JIT_ENTRIES);
        let (Some(length), Some(count), Ok(variant)) = (length, count, u32::try_from(variant))
        else {
            return Err(JitError::Code);
        };
        // Copies, which the guest cannot change meanwhile.
        let mut code = vec![0; length];
        let mut offsets = vec![0; 4 * count];
        self.shared.read(DATA, &mut code)?;
        self.shared.read(DATA + MAX_JIT_CODE as u64, &mut offsets)?;
        let (offsets, _) = offsets.as_chunks::<4>();
        let entries = offsets.iter().map(|&offset| {
            let offset = u32::from_le_bytes(offset);
            start.saturating_add(offset.into())
        });
        let entries: Vec<u64> = entries.collect();
        let code = JitCode {
            start,
            code: &code,
            entries: &entries,
        };
        work(&mut self.images, &code, variant)
    }

    /// [`Operation::Checkpoint`]. There may be more checkpoints than snapshots.
    fn checkpoint(&mut self, args: &[u64; 6]) -> Result<i64, Errno> {
        if let Some(exports) = &self.extensions.exports {
            exports.note_checkpoint();
            return Ok(0);
        }
        let capture = self.extensions.capture.as_mut().ok_or(libc::ENOSYS)?;
        let moment = Moment {
            monotonic_ns: args[0],
            frames: args[2],
        };
        let (is_written, then) = capture.write(moment).ok_or(libc::ENOSYS)?;
        if then == Then::End {
            self.control.stop(Stop::Snapshot { is_written });
        }
        match is_written {
            true => Ok(0),
            false => Err(libc::EIO),
        }
    }

    /// [`Operation::ReadTree`].
    fn read_tree(&self, args: &[u64; 6]) -> Result<i64, Errno> {
        let tree = self.extensions.tree.as_ref().ok_or(libc::ENOENT)?;
        let [from, to, length, ..] = *args;
        tree.read(&self.ram, from, to, length).map(|()| 0)
    }

    /// [`Operation::HostFunction`].
    fn host_function(&self, args: &[u64; 6]) -> Result<Result<i64, Errno>, platform::Error> {
        let Some(exports) = &self.extensions.exports else {
            return Ok(Err(libc::ENOENT));
        };
        let lengths = (usize::try_from(args[0]), usize::try_from(args[1]));
        let (Ok(name @ 0..=MAX_NAME), Ok(input @ 0..=MAX_DATA)) = lengths else {
            return Ok(Err(libc::EINVAL));
        };
        // A copy, which the guest cannot change meanwhile.
        let mut bytes = vec![0; name + input];
        self.shared.read(DATA, &mut bytes)?;
        let (name, input) = bytes.split_at(name);
        Ok(match exports.call_host(name, input) {
            Ok(output) => {
                self.shared.write(DATA, &output)?;
                i64::try_from(output.len()).map_err(|_| libc::E2BIG)
            }
            Err(errno) => Err(errno.clamp(1, MAX_ERRNO)),
        })
    }

    /// [`Operation::Core`].
    fn core(&self, args: &[u64; 6]) -> Result<Result<i64, Errno>, platform::Error> {
        let Some(core) = &self.extensions.core else {
            return Ok(Err(libc::ENOSYS));
        };
        let length = usize::try_from(args[0]).ok().filter(|&n| n <= CALL_DATA);
        let Some(length) = length else {
            return Ok(Err(libc::EINVAL));
        };
        let mut bytes = vec![0; length];
        self.shared.read(DATA, &mut bytes)?;
        Ok(core.append(&bytes, args[1]).map(|()| 0))
    }

    /// [`Operation::Stack`].
    fn stack(&self, args: &[u64; 6]) -> Result<Result<i64, Errno>, platform::Error> {
        let [task, request, pc, page_table, trampoline, _] = *args;
        let from = || {
            Ok(CallingTask {
                pc,
                x: self.shared.read_value(DATA)?,
                trampoline,
                mappings: file_mappings(&self.shared),
                memory: ProgramMemory::new(Arc::clone(&self.ram), page_table),
            })
        };
        let done = match (
            request,
            &self.extensions.call_stacks,
            &self.extensions.sample_stacks,
        ) {
            (stack_request::FIND, Some(stacks), _) => {
                stacks.find(task, &from()?);
                Ok(0)
            }
            (stack_request::WRITE, Some(stacks), _) => self.flush().map(|()| {
                stacks.write(task);
                0
            }),
            (stack_request::SAMPLE, _, Some(stacks)) => {
                stacks.sample(&from()?);
                Ok(0)
            }
            (stack_request::FIND | stack_request::WRITE | stack_request::SAMPLE, ..) => {
                Err(libc::ENOSYS)
            }
            _ => Err(libc::EINVAL),
        };
        Ok(done)
    }

    /// [`Operation::Locate`].
    fn locate(&self, args: &mut [u64; 6]) -> Result<Result<i64, Errno>, platform::Error> {
        /// Bytes of the host registers in the data.
        const HOST_REGISTERS: u64 = size_of::<[u64; 16]>() as u64;
        let Some((locate, stack)) = &self.extensions.locate else {
            return Ok(Err(libc::ENOSYS));
        };
        let [host_pc, image_offset, image, function, ..] = *args;
        let fault = TranslatedFault {
            host_pc,
            image_offset,
            image,
            function,
            host_registers: self.shared.read_value(DATA)?,
            hart: self.shared.read_value(DATA + HOST_REGISTERS)?,
        };
        let Some(found) = locate.locate(&fault, &self.images, stack) else {
            return Ok(Err(libc::ENOENT));
        };
        let known = found.x.iter().enumerate();
        let known = known.filter(|(_, value)| value.is_some());
        let known = known.fold(0u64, |set, (number, _)| set | 1 << number);
        args[..2].copy_from_slice(&[found.pc, known]);
        self.shared
            .write_value(DATA, found.x.map(Option::unwrap_or_default))?;
        Ok(Ok(0))
    }

    /// [`Operation::Registers`].
    fn registers(&self, args: &[u64; 6]) -> Result<Result<i64, Errno>, platform::Error> {
        let count = match usize::try_from(args[0]) {
            Ok(count) if count <= MAX_REGISTER_ACCESSES => count,
            _ => return Ok(Err(libc::EINVAL)),
        };
        for at in (DATA..).step_by(RegisterAccess::LENGTH).take(count) {
            let mut bytes = [0; RegisterAccess::LENGTH];
            self.shared.read(at, &mut bytes)?;
            let mut access = RegisterAccess::from_bytes(bytes);
            self.devices.access(&mut access);
            if !access.is_write {
                self.shared.write(at, &access.to_bytes())?;
            }
        }
        Ok(Ok(0))
    }

    /// [`Operation::Spawn`].
    fn spawn(&self, args: &mut [u64; 6]) -> Result<Result<i64, Errno>, platform::Error> {
        let Some(spawner) = &self.extensions.spawner else {
            return Ok(Err(libc::ENOSYS));
        };
        let [call, id, stream, value, ..] = *args;
        let Some(call) = Call::from_number(call) else {
            return Ok(Err(libc::EINVAL));
        };
        let length = usize::try_from(value).map_or(CALL_DATA, |length| length.min(CALL_DATA));
        let done = match call {
            Call::Next => {
                let event = spawner.next();
                *args = event.map_or([0; 6], Event::encode);
                Ok(i64::from(event.is_some()))
            }
            Call::Read => {
                let mut bytes = vec![0; length];
                match spawner.read(id, stream, &mut bytes) {
                    Ok(count) => {
                        let count = count.min(length);
                        self.shared.write(DATA, &bytes[..count])?;
                        i64::try_from(count).map_err(|_| libc::EIO)
                    }
                    Err(error) => Err(error),
                }
            }
            Call::Write => {
                let mut bytes = vec![0; length];
                self.shared.read(DATA, &mut bytes)?;
                let written = spawner.write(id, stream, &bytes);
                written.and_then(|count| i64::try_from(count).map_err(|_| libc::EIO))
            }
            Call::Close => spawner.close(id, stream).map(|()| 0),
            Call::Ended => spawner.ended(id, Ending::of(stream, value)).map(|()| 0),
            Call::Await => spawner.await_stream(id, stream).map(|()| 0),
        };
        Ok(done)
    }

    fn ioctl(&mut self, args: &[u64; 6]) -> Result<Result<i64, Errno>, platform::Error> {
        let [descriptor, request, size, ..] = *args;
        let Some(descriptor) = standard_descriptor(descriptor) else {
            return Ok(Err(libc::EBADF));
        };
        let Some(needed) = Terminal::argument_size(request) else {
            return Ok(Err(libc::ENOTTY));
        };
        if size < needed as u64 {
            return Ok(Err(libc::EINVAL));
        }
        let mut argument = [0; Terminal::MAX_ARGUMENT];
        self.shared.read(DATA, &mut argument[..needed])?;
        let result = self.terminal.request(descriptor, request, &mut argument);
        if result.is_ok() {
            if self.terminal.is_changed() {
                self.control.manage_terminal();
            }
            self.shared.write(DATA, &argument[..needed])?;
        }
        Ok(result.map(|()| 0))
    }
}

/// The host descriptor, if it is 0, 1 or 2.
fn standard_descriptor(number: u64) -> Option<BorrowedFd<'static>> {
    match number {
        0 => Some(stdin()),
        1 => Some(stdout()),
        2 => Some(stderr()),
        _ => None,
    }
}

/// The answer to a request of [`Operation::Jit`] that failed.
fn refused(error: JitError) -> Result<Result<i64, Errno>, platform::Error> {
    match error {
        JitError::Off => Ok(Err(libc::ENOENT)),
        JitError::Code => Ok(Err(libc::EINVAL)),
        JitError::Busy => Ok(Err(libc::EAGAIN)),
        JitError::Full => Ok(Err(libc::ENOSPC)),
        JitError::Platform(error) => Err(error),
    }
}

/// Whether standard input and an event can be read without waiting, or are at their end, after
/// waiting up to `time` for one of them. Without `input`, it is not waited for and counts as not readable.
pub(crate) fn poll_readable(
    input: Option<BorrowedFd<'_>>,
    event: &Wake,
    time: Option<Duration>,
) -> [bool; 2] {
    let event = || PollFd::new(event, PollFlags::IN);
    let is_ready = |entry: &PollFd<'_>| !entry.revents().is_empty();
    match input {
        None => {
            let mut polls = [event()];
            wait_for(&mut polls, time);
            [false, is_ready(&polls[0])]
        }
        Some(input) => {
            let mut polls = [event(), PollFd::from_borrowed_fd(input, PollFlags::IN)];
            wait_for(&mut polls, time);
            [is_ready(&polls[1]), is_ready(&polls[0])]
        }
    }
}

/// Calls `ppoll`. If it is interrupted, nothing is ready.
pub(crate) fn wait_for(polls: &mut [PollFd<'_>], time: Option<Duration>) {
    let longest = Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    };
    let time = time.map(|time| Timespec::try_from(time).unwrap_or(longest));
    let _ = poll(polls, time.as_ref());
}
