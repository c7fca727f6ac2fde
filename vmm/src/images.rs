//! Translation images for the guest: it asks for them by inode of the root file system
//! tree ([`Operation::Image`](hartline_abi::call::Operation::Image)), and gets them as
//! read-only memory.

use crate::control::Control;
use crate::platform::{self, Access, Mapping, Vm};
use crate::program::TreeFile;
use hartline_abi::layout::{FILE_GPA_END, HUGE_PAGE_SIZE};
use std::collections::HashMap;
use std::fmt::Debug;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

/// Most images of one VM: a guest that asks on gets no more.
const MAX_IMAGES: usize = 1024;

/// A translation image, checked.
#[derive(Debug)]
pub struct ImageFile {
    /// The image file. It never changes.
    pub file: File,
    /// Its length, bytes.
    pub length: u64,
}

/// Where images come from.
pub trait ImageSource: Debug + Send + Sync {
    /// The image of a file in a [variant](hartline_abi::image::variant); `None` if there
    /// is none, for instance because the file is no program. May take long: it is called
    /// on a thread of its own, which the end of the VM does not wait for.
    fn image(&self, file: &TreeFile, variant: u32) -> Option<ImageFile>;
}

/// Names an image: inode of the file, and variant.
type Name = (u32, u32);

/// What is known about an image.
#[derive(Debug)]
enum State {
    /// It is being made.
    Working(Receiver<Option<ImageFile>>),
    /// It is there, and the guest may have it.
    Ready(ImageFile),
    /// It is in the guest's memory.
    Placed { image: ImageFile, gpa: u64 },
    /// There is none.
    Missing,
}

/// An answer to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is in guest-physical memory.
    At {
        /// Address.
        gpa: u64,
        /// Length, bytes.
        length: u64,
    },
    /// It is being made; [`Control::wake`] is called when it is there.
    Later,
    /// There is none.
    None,
}

/// The images of one VM, and the VM, whose memory they become.
#[derive(Debug)]
pub struct Images {
    vm: Vm,
    /// The root file system tree, and what makes images of its files. Without it there
    /// are none.
    source: Option<(Arc<File>, Arc<dyn ImageSource>)>,
    states: HashMap<Name, State>,
    /// The image that is being made.
    busy: Option<Name>,
    /// Guest-physical address of the next slot.
    next: u64,
}

impl Images {
    /// Images for `vm`, in slots from the guest-physical address `next`, a multiple of
    /// 2 MiB.
    #[must_use]
    pub fn new(vm: Vm, next: u64) -> Self {
        Self {
            vm,
            source: None,
            states: HashMap::new(),
            busy: None,
            next,
        }
    }

    /// Lets the guest ask for images of the files in `tree`.
    pub fn set_source(&mut self, tree: Arc<File>, source: Arc<dyn ImageSource>) {
        self.source = Some((tree, source));
    }

    /// Has an image ready before the guest asks.
    pub fn offer(&mut self, inode: u32, variant: u32, image: ImageFile) {
        self.states.insert((inode, variant), State::Ready(image));
    }

    /// The VM.
    #[must_use]
    pub fn vm(&self) -> &Vm {
        &self.vm
    }

    /// An image that the guest has got.
    #[must_use]
    pub fn placed(&self, inode: u32, variant: u32) -> Option<&ImageFile> {
        match self.states.get(&(inode, variant))? {
            State::Placed { image, .. } => Some(image),
            _ => None,
        }
    }

    /// Answers the guest. Nothing that it says is believed.
    ///
    /// # Errors
    /// KVM refuses the memory.
    pub(crate) fn answer(
        &mut self,
        inode: u64,
        variant: u64,
        control: &Arc<Control>,
    ) -> Result<Answer, platform::Error> {
        let (Ok(inode), Ok(variant)) = (u32::try_from(inode), u32::try_from(variant)) else {
            return Ok(Answer::None);
        };
        let name = (inode, variant);
        // One after the other: a guest that does not wait must not use up the host.
        if let Some(busy) = self.busy.filter(|&busy| busy != name) {
            self.look_at(busy, control)?;
            if self.busy.is_some() {
                return Ok(Answer::Later);
            }
        }
        self.look_at(name, control)
    }

    /// What is known about an image now; begins to make one that was not asked for.
    fn look_at(&mut self, name: Name, control: &Arc<Control>) -> Result<Answer, platform::Error> {
        let state = match self.states.remove(&name) {
            Some(state) => state,
            None => self.start(name, control),
        };
        let state = self.advance(state)?;
        let answer = match &state {
            State::Working(_) => Answer::Later,
            State::Placed { image, gpa } => Answer::At {
                gpa: *gpa,
                length: image.length,
            },
            State::Ready(_) | State::Missing => Answer::None,
        };
        self.busy = (answer == Answer::Later).then_some(name);
        self.states.insert(name, state);
        Ok(answer)
    }

    /// Begins to make an image.
    fn start(&self, (inode, variant): Name, control: &Arc<Control>) -> State {
        let Some((tree, source)) = &self.source else {
            return State::Missing;
        };
        let file = TreeFile::new(Arc::clone(tree), inode);
        if self.states.len() >= MAX_IMAGES || !file.is_regular() {
            return State::Missing;
        }
        let (sender, receiver) = mpsc::channel();
        let (source, control) = (Arc::clone(source), Arc::clone(control));
        let work = move || {
            // Without a receiver the VM has ended.
            let _ = sender.send(source.image(&file, variant));
            control.wake();
        };
        match thread::Builder::new().name("translate".into()).spawn(work) {
            Ok(_) => State::Working(receiver),
            Err(_) => State::Missing,
        }
    }

    /// Takes an image that has become ready, and gives it to the guest.
    fn advance(&mut self, state: State) -> Result<State, platform::Error> {
        let state = match state {
            State::Working(receiver) => match receiver.try_recv() {
                Ok(Some(image)) => State::Ready(image),
                Err(TryRecvError::Empty) => State::Working(receiver),
                Ok(None) | Err(TryRecvError::Disconnected) => State::Missing,
            },
            state => state,
        };
        match state {
            State::Ready(image) => self.place(image),
            state => Ok(state),
        }
    }

    fn place(&mut self, image: ImageFile) -> Result<State, platform::Error> {
        let gpa = self.next;
        let end = gpa.checked_add(image.length);
        let end = end.and_then(|end| end.checked_next_multiple_of(HUGE_PAGE_SIZE));
        let Some(end) = end.filter(|&end| end <= FILE_GPA_END && image.length != 0) else {
            return Ok(State::Missing);
        };
        let mapping = Mapping::file("translation image", &image.file, image.length)?;
        self.vm.add_slot(gpa, Arc::new(mapping), Access::ReadOnly)?;
        self.next = end;
        Ok(State::Placed { image, gpa })
    }
}
