//! A program in a VM of this process.

use crate::images::{Report, RunningImages};
use crate::program::{Outputs, Program};
use crate::template::Template;
use crate::vm::{FORKED, Vm, Warnings};
use crate::{CallError, Error, Exports, LoadError, Reset, ResetError};
use hartline_abi::image::variant;
use hartline_vmm::boot::Arguments;
use hartline_vmm::exports;
use hartline_vmm::images::{ImageFile, ImageSource};
use hartline_vmm::interrupts::Mode;
use hartline_vmm::machine::{self, Blank, Outcome, Settings};
use hartline_vmm::platform::Kvm;
use hartline_vmm::tree::TreeImage;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Why a sandbox did not start. Also the union of all errors here.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The program cannot be translated.
    #[error(transparent)]
    Translation(#[from] Error),
    /// The files for output cannot be used.
    #[error("output: {0}")]
    Output(#[source] io::Error),
    /// The VM could not be started, or the program does not wait for calls.
    #[error(transparent)]
    Start(#[from] exports::StartError),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A reset failed.
    #[error(transparent)]
    Reset(#[from] ResetError),
}

/// A program in a VM with a thread of its own. It is called, and reset. It may be used from any thread: calls and
/// resets of several threads follow one another. The VM ends when the sandbox is dropped.
#[derive(Debug)]
pub struct Sandbox {
    exports: Exports,
    vm: Vm,
    warnings: Arc<Warnings>,
}

/// What the thread of the VM needs.
struct Machine {
    arguments: Arguments,
    tree: Arc<TreeImage>,
    ram: u64,
    images: Option<Arc<RunningImages>>,
    program_image: Option<ImageFile>,
    outputs: Option<[OwnedFd; 2]>,
    interprets: bool,
}

impl Machine {
    fn run(self, exports: Exports) -> Result<Outcome, machine::Error> {
        let settings = Settings {
            ram: self.ram,
            tree: Some(&self.tree),
            images: self.images.map(|images| images as Arc<dyn ImageSource>),
            program_image: self.program_image,
            interpret_only: self.interprets,
            outputs: self.outputs,
            exports: Some(exports),
            shares_process: true,
            ..Settings::new(&self.arguments)
        };
        let kvm = Kvm::open(Path::new(Kvm::DEVICE))?;
        Blank::new(kvm, settings.cpus, Mode::Safepoint)?.run(settings)
    }
}

impl Sandbox {
    /// Starts a program, and waits until it waits for its first call.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(program: &Program) -> Result<Self, StartError> {
        Self::start_with(program, Exports::new())
    }

    /// As [`start`](Self::start), with functions of this process that were [registered](Exports::register)
    /// before, for programs that call them when they start. `exports` must not be another sandbox's.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_with(program: &Program, exports: Exports) -> Result<Self, StartError> {
        let warnings = Arc::<Warnings>::default();
        let images = program.translation.as_ref().map(|translation| {
            let report = Arc::clone(&warnings) as Arc<dyn Report>;
            let images = RunningImages::new(Arc::clone(translation), program.making(report));
            Arc::new(images)
        });
        let program_image = match &images {
            None => None,
            Some(images) => images.of_program(&program.found, variant::NORMAL)?,
        };
        let outputs = program.options.outputs.duplicate();
        let machine = Machine {
            arguments: program.arguments.clone(),
            tree: Arc::clone(&program.tree),
            ram: program.options.ram,
            images: images.clone(),
            program_image,
            outputs: outputs.map_err(StartError::Output)?,
            interprets: program.options.interprets,
        };
        let limit = program.options.start_limit;
        let run = move |exports| machine.run(exports);
        Ok(Self {
            vm: Vm::start(exports.clone(), limit, images, run)?,
            exports,
            warnings,
        })
    }

    /// Continues a snapshot that was written when its program waited for its first call (`--snapshot-at call`), and waits until it
    /// waits again. Its output goes to `outputs`. Resets put it back to where it waits. Sandboxes of a template share
    /// the memory that none has changed.
    ///
    /// # Errors
    /// [`StartError`]. A program that does not wait for a call is late.
    pub fn clone_of(template: &Arc<Template>, outputs: &Outputs) -> Result<Self, StartError> {
        Self::clone_with(template, outputs, Exports::new())
    }

    /// As [`clone_of`](Self::clone_of), with functions of this process as in [`start_with`](Self::start_with).
    ///
    /// # Errors
    /// [`StartError`].
    pub fn clone_with(
        template: &Arc<Template>,
        outputs: &Outputs,
        exports: Exports,
    ) -> Result<Self, StartError> {
        let warnings = Arc::<Warnings>::default();
        let images = template.images(Arc::clone(&warnings) as _);
        let outputs = outputs.duplicate().map_err(StartError::Output)?;
        let (given, served) = (Arc::clone(template), Arc::clone(&images));
        let run = move |exports| given.run(served, outputs, exports);
        let limit = template.options.start_limit;
        Ok(Self {
            vm: Vm::start(exports.clone(), limit, Some(images), run)?,
            exports,
            warnings,
        })
    }

    /// Calls a function of the program, as [`Exports::call`] does. A call waits for earlier ones of other threads;
    /// `limit` begins after that.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call(
        &self,
        name: &str,
        input: &[u8],
        limit: Option<Duration>,
    ) -> Result<Vec<u8>, CallError> {
        match self.vm.is_here() {
            true => self.exports.call(name, input, limit),
            false => Err(CallError::Ended(FORKED.into())),
        }
    }

    /// Resets the VM, as [`Exports::reset`] does.
    ///
    /// # Errors
    /// [`ResetError`].
    pub fn reset(&self) -> Result<Reset, ResetError> {
        match self.vm.is_here() {
            true => self.exports.reset(),
            false => Err(ResetError::Ended(FORKED.into())),
        }
    }

    /// Gives the program a function of this process, as [`Exports::register`] does.
    pub fn register(
        &self,
        name: &str,
        function: impl Fn(&[u8]) -> Result<Vec<u8>, i32> + Send + Sync + 'static,
    ) {
        if self.vm.is_here() {
            self.exports.register(name, function);
        }
    }

    /// The first 16 files whose code is interpreted because it cannot be translated, with the reasons. Without one,
    /// all code is translated, or will be.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.all()
    }

    /// Ends the VM. Calls and resets fail from now on, also those that other threads have begun. In a function that
    /// the program calls, the VM ends after the function.
    pub fn end(&self) {
        self.vm.end();
    }
}
