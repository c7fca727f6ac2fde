//! Translation images for the guest. The guest requests them by inode of the root file system tree,
//! or by copy of a file of a volume ([`Operation::Image`](hartline_abi::call::Operation::Image)),
//! and gets them as read-only memory.

mod client;
mod code;
mod jit;
mod optimiser;
mod slots;

pub use client::Client;
use client::Cooling;
pub use code::CodeFile;
pub(crate) use jit::JitError;
use jit::JitSlot;
use optimiser::Optimiser;
use slots::Slots;

use crate::background::PrioritySemaphore;

use crate::control::Control;
use crate::platform::{self, Mapping, Vm};
use crate::program::TreeFile;
use crate::tree::TreeImage;
use hartline_abi::call::{COPY_INODES, image_answer};
use hartline_abi::image::variant;
use hartline_abi::layout::RAM_GPA;
use hartline_aot::jit::JitCode;
use hartline_aot::translator::Options;
use hartline_devices::volume::Copies;
use std::collections::HashMap;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;

/// Most files and variants with images in one VM; further requests get none.
const MAX_FILES: usize = 512;

/// A translation image, checked.
#[derive(Debug)]
pub struct ImageFile {
    /// The image file. It never changes.
    pub file: File,
    /// Its length, bytes.
    pub length: u64,
}

impl ImageFile {
    /// Opens the image in a file.
    ///
    /// # Errors
    /// The length of the file cannot be read.
    pub fn open(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// A source of images.
pub trait ImageSource: Debug + Send + Sync {
    /// The image of a whole file in a [variant], if it is available
    /// without work: the vCPU waits.
    fn at_once(&self, file: &CodeFile, variant: u32) -> Option<ImageFile>;

    /// Tells `client` what images there are so far, if that is known without work: the vCPU waits.
    /// This is called before [`serve`](Self::serve).
    fn begin(&self, _file: &CodeFile, _variant: u32, _client: &Client) {}

    /// Makes images of a file in a [variant], and shows them to
    /// `client`. There are none if, for instance,
    /// the file is no program. This is called on a separate thread, which may continue as long as
    /// the VM runs; the end of the VM does not wait for it.
    fn serve(&self, file: &CodeFile, variant: u32, client: &Client);

    /// Whether threads that translate may give the C library's allocator settings for the whole process
    /// ([`allocator`](crate::allocator)).
    fn tunes_allocator(&self) -> bool {
        true
    }

    /// The options for code that the program makes at run time; `None`: it is interpreted.
    fn jit_options(&self) -> Option<Options>;

    /// The permits for LLVM's translations of such code; `None`: LLVM does not translate it.
    fn jit_compilers(&self) -> Option<&PrioritySemaphore> {
        None
    }
}

/// Inode of the file and variant of an image.
type Name = (u32, u32);

/// An image in the guest's memory.
#[derive(Debug)]
pub struct Placed {
    /// Inode of the file that the image was made from.
    pub inode: u32,
    /// The image.
    pub image: ImageFile,
    gpa: u64,
}

/// The state of a file and variant.
#[derive(Debug)]
struct Served {
    /// The client, shared with the thread that makes images.
    client: Arc<Client>,
    /// The newest image in the guest's memory: index into [`Images::placed`]; and whether it adds
    /// to the earlier ones.
    newest: Option<(usize, bool)>,
    /// The images that the guest has received since [`Images::mark`], in order.
    received: Vec<(usize, bool)>,
    /// The first ones of them that the guest knows, after [`Images::rewind`].
    known: usize,
}

/// An answer to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The image is in guest-physical memory.
    At {
        /// Address.
        gpa: u64,
        /// Length, bytes.
        length: u64,
        /// Bits of [`image_answer`].
        flags: u64,
    },
    /// There is no image yet; one may come.
    NotYet,
    /// It is not known yet whether there is an image; the vCPU thread is woken when it is.
    Unknown,
    /// There is no image.
    None,
}

/// The images of one VM, and the VM, into whose memory they are mapped.
#[derive(Debug)]
pub struct Images {
    vm: Vm,
    ram: Arc<Mapping>,
    shared: Arc<Mapping>,
    /// The root file system tree, and the source of images of its files. `None`: there are no
    /// images.
    source: Option<(Arc<TreeImage>, Arc<dyn ImageSource>)>,
    /// Copies of files of volumes, and their addresses in the guest.
    copies: Arc<Copies>,
    seen_copies: HashMap<u32, u64>,
    served: HashMap<Name, Served>,
    cooling: Arc<Cooling>,
    placed: Vec<Placed>,
    /// Translations of code that the program made; `None`: there are none yet.
    jit: Option<JitSlot>,
    /// LLVM's translations of it; `None`: none were requested yet.
    optimiser: Option<Optimiser>,
    /// The guest-physical memory of images and copies.
    slots: Slots,
}

impl Images {
    /// Images for `vm` with its RAM and shared pages, in slots from the guest-physical address
    /// `next`, a multiple of 2 MiB.
    #[must_use]
    pub fn new(vm: Vm, ram: Arc<Mapping>, shared: Arc<Mapping>, next: u64) -> Self {
        Self {
            vm,
            ram,
            shared,
            source: None,
            copies: Arc::default(),
            seen_copies: HashMap::new(),
            served: HashMap::new(),
            cooling: Arc::default(),
            placed: Vec::new(),
            jit: None,
            optimiser: None,
            slots: Slots::new(next),
        }
    }

    /// Enables images of the files in `tree`.
    pub fn set_source(&mut self, tree: Arc<TreeImage>, source: Arc<dyn ImageSource>) {
        self.source = Some((tree, source));
    }

    /// Makes the copies of files of volumes, and images of them, available to the guest.
    pub fn set_copies(&mut self, copies: Arc<Copies>) {
        self.copies = copies;
    }

    /// Provides the only image of a file and variant, before the guest requests it.
    pub fn offer(&mut self, inode: u32, variant: u32, image: ImageFile) {
        let client = self.client();
        client.give(image);
        self.insert((inode, variant), client);
    }

    /// The VM.
    #[must_use]
    pub fn vm(&self) -> &Vm {
        &self.vm
    }

    /// The image that the guest got at a guest-physical address.
    #[must_use]
    pub fn placed_at(&self, gpa: u64) -> Option<&Placed> {
        self.placed.iter().find(|placed| placed.gpa == gpa)
    }

    /// Answers a request of the guest, whose code of the file is loaded with `bias`, and whose number
    /// for the file and variant is `number`. The arguments are not trusted.
    ///
    /// # Errors
    /// KVM refuses the memory.
    pub(crate) fn answer(
        &mut self,
        inode: u64,
        variant: u64,
        (bias, number): (u64, u64),
        control: &Arc<Control>,
    ) -> Result<Answer, platform::Error> {
        let (Ok(inode), Ok(variant)) = (u32::try_from(inode), u32::try_from(variant)) else {
            return Ok(Answer::None);
        };
        let name = (inode, variant);
        if !self.served.contains_key(&name) && !self.start(name, number, control) {
            return Ok(Answer::None);
        }
        let Some(client) = self.served.get(&name).map(|s| Arc::clone(&s.client)) else {
            return Ok(Answer::None);
        };
        client.begin(number);
        client.add_bias(bias);
        if let Some(served) = self.served.get_mut(&name)
            && let Some(&(index, adds)) = served.received.get(served.known)
            && let Some(placed) = self.placed.get(index)
        {
            // The guest has forgotten it.
            served.known += 1;
            let is_followed = served.known < served.received.len() || client.has_images();
            let flags = image_answer::GROWS
                | if is_followed {
                    image_answer::IS_FOLLOWED
                } else {
                    0
                }
                | if adds { image_answer::ADDS } else { 0 };
            let (gpa, length) = (placed.gpa, placed.image.length);
            client.end();
            return Ok(Answer::At { gpa, length, flags });
        }
        let notification = client.take();
        if let Some(provided) = notification.image
            && let Some(index) = self.map_image(inode, provided.image)?
            && let Some(served) = self.served.get_mut(&name)
        {
            served.newest = Some((index, provided.adds));
            served.received.push((index, provided.adds));
            served.known = served.received.len();
        }
        let newest = self.served.get(&name).and_then(|served| served.newest);
        let newest = newest.and_then(|(index, adds)| Some((self.placed.get(index)?, adds)));
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        Ok(match newest {
            Some((placed, adds)) => Answer::At {
                gpa: placed.gpa,
                length: placed.image.length,
                flags: flag(!notification.finished, image_answer::GROWS)
                    | flag(notification.is_followed, image_answer::IS_FOLLOWED)
                    | flag(adds, image_answer::ADDS),
            },
            None if notification.finished => Answer::None,
            None if notification.answered => Answer::NotYet,
            None => Answer::Unknown,
        })
    }

    /// Marks the present state for [`rewind`](Self::rewind).
    pub(crate) fn mark(&mut self) {
        for served in self.served.values_mut() {
            served.received.clear();
            served.known = 0;
        }
        if let Some(jit) = &mut self.jit {
            jit.mark();
        }
    }

    /// Whether the guest can go back to the state at [`mark`](Self::mark): the memory that it knew then has
    /// the same contents.
    pub(crate) fn can_rewind(&self) -> bool {
        self.jit.as_ref().is_none_or(JitSlot::is_kept)
    }

    /// Goes back to the state at [`mark`](Self::mark): the guest has forgotten the images that it has received since.
    /// [`announce_again`](Self::announce_again) announces them.
    pub(crate) fn rewind(&mut self) {
        for served in self.served.values_mut() {
            served.known = 0;
        }
    }

    /// Announces all images that the guest does not know.
    pub(crate) fn announce_again(&self) {
        for served in self.served.values() {
            let is_unknown = served.known < served.received.len();
            served.client.announce_again(is_unknown);
        }
    }

    /// Makes KVM forget what it knows of page tables in RAM, if it has its own copies of them.
    ///
    /// # Errors
    /// KVM refuses.
    pub(crate) fn forget_page_tables(&self) -> Result<(), platform::Error> {
        self.vm.renew_slot(RAM_GPA)
    }

    /// Adds a slot that the guest can only read, if KVM has shadows of page tables. Result: as
    /// [`Slots::add_slot`].
    ///
    /// # Errors
    /// KVM refuses the memory.
    pub(crate) fn add_writer_slot(
        &mut self,
        memory: Arc<Mapping>,
    ) -> Result<Option<u64>, platform::Error> {
        self.slots.add_slot(&mut self.vm, memory)
    }

    /// Ends a request that has no answer yet.
    pub(crate) fn abandon(&self, inode: u64, variant: u64) {
        if let (Ok(inode), Ok(variant)) = (u32::try_from(inode), u32::try_from(variant))
            && let Some(served) = self.served.get(&(inode, variant))
        {
            served.client.abandon();
        }
    }

    /// Translates code that the program made, for a [variant] of the
    /// baseline translator's code. If the guest `reuses` the slot, it has no earlier translations any
    /// more.
    ///
    /// # Errors
    /// [`JitError`].
    pub(crate) fn translate(
        &mut self,
        code: &JitCode<'_>,
        variant: u32,
        reuses: bool,
    ) -> Result<jit::Placed, JitError> {
        let options = self.source.as_ref().and_then(|(_, s)| s.jit_options());
        let options = options.filter(|_| variant::is_baseline(variant));
        let options = options.ok_or(JitError::Off)?;
        let slot = self.jit_slot()?;
        slot.translate(code, &options.for_variant(variant), reuses)
    }

    fn jit_slot(&mut self) -> Result<&mut JitSlot, JitError> {
        Ok(match &mut self.jit {
            Some(slot) => slot,
            none => {
                let slot = JitSlot::add(&mut self.vm, &mut self.slots)?;
                none.insert(slot.ok_or(JitError::Full)?)
            }
        })
    }

    /// Requests a translation by LLVM of code that the program made, for a [variant] of LLVM's code. Result:
    /// the number of the request.
    ///
    /// # Errors
    /// [`JitError`].
    pub(crate) fn optimise(&mut self, code: &JitCode<'_>, variant: u32) -> Result<u64, JitError> {
        let source = self.source.as_ref().map(|(_, source)| source);
        let source = source.filter(|source| source.jit_compilers().is_some());
        let is_untrusting = matches!(variant, variant::PRECISE | variant::UNTRUSTED_ABI);
        let source = source.filter(|_| is_untrusting);
        let source = source.ok_or(JitError::Off)?;
        let options = source.jit_options().ok_or(JitError::Off)?;
        let optimiser = match &mut self.optimiser {
            Some(optimiser) => optimiser,
            none => {
                let (ram, shared) = (Arc::clone(&self.ram), Arc::clone(&self.shared));
                let optimiser = Optimiser::start(Arc::clone(source), ram, shared);
                none.insert(optimiser.map_err(|_| JitError::Off)?)
            }
        };
        let ticket = optimiser.request(code, options.for_variant(variant));
        ticket.map_err(|optimiser::Busy| JitError::Busy)
    }

    /// Places the oldest of LLVM's translations in the slot. If the guest `reuses` the slot, it has no
    /// earlier translations any more. Also returns the number of its request.
    ///
    /// # Errors
    /// [`JitError`].
    pub(crate) fn take_optimised(&mut self, reuses: bool) -> Result<(jit::Placed, u64), JitError> {
        let optimiser = self.optimiser.as_ref().ok_or(JitError::Busy)?;
        let optimised = optimiser.take().ok_or(JitError::Busy)?;
        let placed = self.jit_slot()?.place(&optimised.translation, reuses)?;
        Ok((placed, optimised.ticket))
    }

    fn client(&self) -> Client {
        let (ram, shared) = (Arc::clone(&self.ram), Arc::clone(&self.shared));
        Client::new(ram, shared, Arc::clone(&self.cooling))
    }

    fn insert(&mut self, name: Name, client: Client) -> Arc<Client> {
        let client = Arc::new(client);
        let served = Served {
            client: Arc::clone(&client),
            newest: None,
            received: Vec::new(),
            known: 0,
        };
        self.served.insert(name, served);
        client
    }

    /// Starts to make images of a file. Result: whether there may be any.
    fn start(&mut self, name: Name, number: u64, control: &Arc<Control>) -> bool {
        let Some((tree, source)) = &self.source else {
            return false;
        };
        let file = match name.0.checked_sub(COPY_INODES) {
            None => CodeFile::Tree(TreeFile::new(Arc::clone(tree), name.0)),
            Some(number) => match self.copies.get(number.into()) {
                Some(copy) => CodeFile::Copy(copy, number),
                None => return false,
            },
        };
        if self.served.len() >= MAX_FILES || !file.is_regular() {
            return false;
        }
        let source = Arc::clone(source);
        if let Some(image) = source.at_once(&file, name.1) {
            self.offer(name.0, name.1, image);
            return true;
        }
        let client = self.client();
        client.begin(number);
        source.begin(&file, name.1, &client);
        let client = client.with_control(Arc::clone(control));
        let client = self.insert(name, client);
        let work = move || {
            let _finish = client::FinishOnDrop(&client);
            source.serve(&file, name.1, &client);
        };
        thread::Builder::new()
            .name("translate".into())
            .spawn(work)
            .is_ok()
    }

    /// Maps an image into the guest's memory; `None`: there is no room for it.
    fn map_image(
        &mut self,
        inode: u32,
        image: ImageFile,
    ) -> Result<Option<usize>, platform::Error> {
        let (what, vm) = ("translation image", &mut self.vm);
        let shown = self.slots.show(vm, what, &image.file, image.length)?;
        let Some(gpa) = shown else {
            return Ok(None);
        };
        self.placed.push(Placed { inode, image, gpa });
        Ok(Some(self.placed.len() - 1))
    }

    /// Guest-physical address and length of a copy of a file of a volume; `None`: there is no copy
    /// with this number, or no room for it.
    ///
    /// # Errors
    /// KVM refuses the memory.
    pub(crate) fn show_copy(&mut self, number: u64) -> Result<Option<(u64, u64)>, platform::Error> {
        let (Ok(key), Some(copy)) = (u32::try_from(number), self.copies.get(number)) else {
            return Ok(None);
        };
        let gpa = match self.seen_copies.get(&key) {
            Some(&gpa) => Some(gpa),
            None => {
                let (what, vm) = ("copy of a file", &mut self.vm);
                self.slots.show(vm, what, &copy.file, copy.length)?
            }
        };
        Ok(gpa.map(|gpa| {
            self.seen_copies.insert(key, gpa);
            (gpa, copy.length)
        }))
    }
}
