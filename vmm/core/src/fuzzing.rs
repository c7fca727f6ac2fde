//! Entry points for the fuzz targets (`fuzz/`), which are separate crates and reach only public
//! items. Not an API: no documentation, no stability. It is always built, so that clippy and the
//! compiler check it together with the code that it calls.

use crate::calls::{Calls, Extensions};
use crate::control::Control;
use crate::devices::{Attached, Devices, interrupting};
use crate::exports::Exports;
use crate::idt::{self, ShadowIdt};
use crate::images::{Client, CodeFile, ImageFile, ImageSource, Images};
use crate::interrupts::{Interrupt, Reach};
use crate::platform::{Error, Kvm, Mapping, memory_file};
use crate::run::start_volumes;
use crate::snapshot::Config;
use crate::timers::{GuestClock, Times};
use crate::tree::{TreeBuilder, TreeImage};
use crate::tree_reads::TreeReads;
use hartline_abi::boot::Shared;
use hartline_abi::call::HostCall;
use hartline_abi::exports::{MAX_DATA, MAX_NAME};
use hartline_abi::interrupt::TABLE_LENGTH;
use hartline_abi::layout::{FILE_BASE, FILE_GPA, FILE_GPA_END, PAGE_SIZE};
use hartline_abi::virtio::FIRST_DISK;
use hartline_abi::volume::VOLUME_DEVICE;
use hartline_aot::translator::Options;
use hartline_devices::console::Outputs;
use hartline_devices::volume::{Server, Volumes};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

const CALL: u64 = offset_of!(Shared, call) as u64;
const DATA: u64 = CALL + offset_of!(HostCall, data) as u64;
const ARGS: u64 = CALL + offset_of!(HostCall, args) as u64;
const RESULT: u64 = CALL + offset_of!(HostCall, result) as u64;
/// Most bytes that the console writes.
const OUTPUT: u64 = 1 << 20;
/// Least of the kernel's error numbers, negated.
const LEAST_RESULT: i64 = -4095;

/// The VMM's side of the mailbox of a VM whose vCPUs never run, and the guest's side.
#[derive(Debug)]
pub struct Mailbox {
    calls: Calls,
    control: Arc<Control>,
    devices: Arc<Devices>,
    exports: Exports,
    volumes: Arc<Volumes>,
    server: Option<JoinHandle<()>>,
    ram: Arc<Mapping>,
    shared: Arc<Mapping>,
    supervisor: Arc<Mapping>,
    vectors: u32,
    has_placed: bool,
}

impl Mailbox {
    /// Length of the guest's RAM, bytes.
    pub const RAM: u64 = 64 << 10;

    /// Makes a VM with an empty file in its tree, and with the devices that every VM has.
    ///
    /// # Errors
    /// If the host has no memory, descriptors or threads left.
    pub fn new(kvm: &Kvm) -> Result<Self, Error> {
        let ram = Arc::new(Mapping::anonymous("RAM", Self::RAM)?);
        let shared = Arc::new(Mapping::anonymous(
            "shared pages",
            size_of::<Shared>() as u64,
        )?);
        let supervisor = Arc::new(Mapping::anonymous("table", TABLE_LENGTH as u64)?);
        let control = Arc::new(Control::new(1)?);
        let clock = GuestClock::new(1_000_000_000, 0);
        let reach = Reach {
            ram: Arc::clone(&ram),
            shared: Arc::clone(&shared),
            control: Arc::clone(&control),
            times: Arc::new(Times::new(Arc::clone(&shared), clock)),
        };
        let outputs = (outputs().map_err(host("console"))?, OUTPUT);
        let devices = Devices::new(Attached::default(), outputs, &reach, None, None)?;
        let devices = Arc::new(devices);
        let volumes = Arc::<Volumes>::default();
        let mut images = Images::new(
            kvm.create_vm()?,
            Arc::clone(&ram),
            Arc::clone(&shared),
            FILE_GPA,
        );
        let tree = tree().map_err(|error| host("tree")(io::Error::other(error)))?;
        let tree = Arc::new(tree);
        images.set_source(Arc::clone(&tree), Arc::new(Source));
        let server = Server::new(Vec::new(), Arc::default());
        let guest = Arc::new(Interrupt::new(&reach, VOLUME_DEVICE, None));
        let server = start_volumes(&shared, &volumes, server, guest, None, || ())?;
        // The vectors of a disk: the table does not need the disk itself.
        let vectors = interrupting(1 << FIRST_DISK);
        let idt = ShadowIdt::new(Arc::clone(&supervisor), 0, vectors);
        let exports = functions();
        exports.connect(&reach)?;
        Ok(Self {
            calls: Calls::new(
                Arc::clone(&shared),
                Arc::clone(&control),
                Arc::clone(&devices),
                Arc::clone(&volumes),
                images,
                (Arc::clone(&ram), idt),
                Extensions {
                    tree: Some(TreeReads::new(tree, FILE_BASE)),
                    exports: Some(exports.clone()),
                    ..Extensions::default()
                },
            ),
            control,
            devices,
            exports,
            volumes,
            server: Some(server),
            ram,
            shared,
            supervisor,
            vectors,
            has_placed: false,
        })
    }

    /// Writes the guest's RAM at an offset. Bytes outside RAM are not written.
    pub fn write_ram(&self, offset: u64, bytes: &[u8]) {
        // Bytes outside are not written.
        let _ = self.ram.write(offset, bytes);
    }

    /// Writes the pages that the guest shares with the VMM. Bytes outside are not written.
    pub fn write_shared(&self, offset: u64, bytes: &[u8]) {
        // Bytes outside are not written.
        let _ = self.shared.write(offset, bytes);
    }

    /// Makes a call, and checks the answer. A signal is pending for the program, so that a call
    /// that would wait returns.
    ///
    /// # Errors
    /// A bug of the VMM.
    ///
    /// # Panics
    /// If a guest must not get the answer.
    pub fn call(&mut self, operation: u32, args: [u64; 6], data: &[u8]) -> Result<(), Error> {
        self.shared.write_value(ARGS, args)?;
        self.shared.write(DATA, data)?;
        let signals = offset_of!(Shared, signals) as u64;
        self.shared.atomic_u64(signals)?.store(1, Ordering::SeqCst);
        self.shared
            .atomic_u32(CALL)?
            .store(operation, Ordering::SeqCst);
        self.control.wake();
        self.volumes.notify();
        self.calls.serve(0)?;
        let result = self.shared.read_value::<i64>(RESULT)?;
        assert!(result >= LEAST_RESULT, "{operation}: {result}");
        if operation == hartline_abi::call::Operation::Image as u32 && result == 0 {
            let [gpa, length, ..] = self.shared.read_value::<[u64; 6]>(ARGS)?;
            assert!(gpa >= FILE_GPA && length > 0 && length <= FILE_GPA_END - gpa);
            self.has_placed = true;
        }
        let mut table = [0; TABLE_LENGTH];
        self.supervisor.read(0, &mut table)?;
        idt::check(&table, self.vectors).expect("the guest has a gate that it may not have");
        Ok(())
    }

    /// Calls a function of the program, and takes the reply that the guest has written by then, if there is one.
    ///
    /// # Errors
    /// A bug of the VMM.
    ///
    /// # Panics
    /// The output is longer than it may be.
    pub fn call_program(
        &self,
        (name, input): (&[u8], &[u8]),
        guest: impl FnOnce(&Self),
    ) -> Result<(), Error> {
        let Some(channel) = self.exports.channel() else {
            return Ok(());
        };
        let name = &name[..name.len().min(MAX_NAME)];
        let input = &input[..input.len().min(MAX_DATA)];
        channel.write(name, input)?;
        guest(self);
        channel.begin_sleep();
        if channel.is_replied() {
            let (_, output) = channel.read()?;
            assert!(output.len() <= MAX_DATA, "{} bytes", output.len());
        }
        Ok(())
    }

    /// Resets the devices and clears the guest's memory. Result: whether the VM can be used for
    /// another guest: it was not stopped, and its memory has not grown.
    #[must_use]
    pub fn reset(&mut self) -> bool {
        self.devices.reset();
        for memory in [&self.ram, &self.shared] {
            const ZEROS: [u8; 4096] = [0; 4096];
            for at in (0..memory.length()).step_by(ZEROS.len()) {
                // A page of a writable mapping.
                let _ = memory.write(at, &ZEROS);
            }
        }
        !self.control.is_over() && !self.has_placed
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.devices.stop(std::time::Duration::ZERO);
        // A queue of the console may be broken.
        let _ = self.devices.console().finish(None);
        self.volumes.finish();
        if let Some(server) = self.server.take() {
            server.join().expect("the thread of the volumes panicked");
        }
    }
}

/// Functions of the host that a guest may call: one that succeeds, and one for each way to fail.
fn functions() -> Exports {
    let exports = Exports::new();
    exports.register("echo", |input| Ok(input.to_vec()));
    exports.register("long", |_| Ok(vec![0; MAX_DATA + 1]));
    exports.register("least", |_| Err(i32::MIN));
    exports.register("none", |_| Err(0));
    exports
}

fn host(request: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Request { request, source }
}

/// Outputs that discard everything.
fn outputs() -> io::Result<Outputs> {
    let null = || -> io::Result<OwnedFd> {
        let file = File::options().write(true).open("/dev/null")?;
        Ok(file.into())
    };
    Ok(Outputs::new([null()?, null()?, null()?]))
}

fn tree() -> Result<TreeImage, crate::tree::TreeError> {
    let mut builder = TreeBuilder::new()?;
    builder.add_text(b"program", "/program")?;
    builder.build()
}

/// Provides an image at once for one variant, later for another one, and never for all others.
#[derive(Debug)]
struct Source;

impl ImageSource for Source {
    fn at_once(&self, _: &CodeFile, variant: u32) -> Option<ImageFile> {
        (variant == 0).then(page).flatten()
    }

    fn serve(&self, _: &CodeFile, variant: u32, client: &Client) {
        if variant == 1 {
            page().into_iter().for_each(|image| client.show(image));
        }
    }

    fn jit_options(&self) -> Option<Options> {
        Some(Options {
            baseline: true,
            ..Options::default()
        })
    }
}

fn page() -> Option<ImageFile> {
    let file = memory_file(c"image", &[0; 4096]).ok()?;
    ImageFile::open(file).ok()
}

/// Reads the description of a snapshot, which may be of another build, and checks what the rest of the
/// VMM relies on.
///
/// # Panics
/// The description has another meaning after it is written again, or an accepted one has a part
/// outside its file.
pub fn read_snapshot(json: &[u8]) {
    let config = match Config::parse_of_any_build(json) {
        Ok(config) => config,
        Err(error) => {
            return assert!(!error.to_string().is_empty());
        }
    };
    let written = serde_json::to_value(&config).unwrap_or_default();
    let again = Config::parse_of_any_build(written.to_string().as_bytes());
    let again = again.map(|again| serde_json::to_value(&again).unwrap_or_default());
    assert!(again.is_ok_and(|again| again == written));
    for part in &config.memory {
        assert!(part.length > 0 && part.offset + part.length <= config.machine.ram);
    }
    for base in config.tree.iter().filter_map(|tree| tree.base.as_ref()) {
        let length = base.length.next_multiple_of(PAGE_SIZE);
        for extent in base.extents() {
            assert!(extent.length > 0 && extent.source + extent.length <= length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_abi::call::Operation;
    use std::path::Path;

    #[test]
    fn every_call_is_answered() {
        let Ok(kvm) = Kvm::open(Path::new(Kvm::DEVICE)) else {
            assert!(std::env::var_os("HARTLINE_REQUIRE_KVM").is_none());
            eprintln!("skipped: no KVM here");
            return;
        };
        let mut mailbox = Mailbox::new(&kvm).unwrap();
        // Standard input and the terminal belong to the caller of the test.
        let own = [Operation::Read, Operation::Ioctl, Operation::Stop].map(|one| one as u32);
        for operation in (0..20).filter(|number| !own.contains(number)) {
            for args in [[0; 6], [1; 6], [u64::MAX; 6]] {
                mailbox.call(operation, args, &[0xff; 24]).unwrap();
            }
        }
        // A table that is not in RAM stops the VM.
        assert!(!mailbox.reset());
        assert!(mailbox.control.is_over());
    }
}
