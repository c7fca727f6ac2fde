//! Translation images that the daemon prepared, or prepares when the guest requests them.

use super::protocol::{FromVmm, ImageName, NextRun, ToVmm};
use hartline_aot::translator::Options;
use hartline_jail::Channel;
use hartline_vmm::images::{Client, CodeFile, ImageFile, ImageSource};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The images of one VM.
#[derive(Debug)]
pub struct FromDaemon {
    channel: Arc<Channel>,
    jit: Options,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Images that have not been requested yet.
    there: HashMap<ImageName, ImageFile>,
    /// Requests that wait for other images; `None`: the daemon is gone, no more images will come.
    waiting: Option<HashMap<ImageName, Sender<ImageFile>>>,
    /// Where the images arrive that have been requested and that no thread waits for yet.
    requested: HashMap<ImageName, Receiver<ImageFile>>,
}

/// Another run, and its descriptors.
pub type Next = (NextRun, Vec<OwnedFd>);

impl FromDaemon {
    /// Starts to listen for images, on a thread that ends with the channel, and passes other runs on to `runs`, if that
    /// is given. Translations of code that the program makes at run time use these processor features, as LLVM names them.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        channel: Arc<Channel>,
        there: HashMap<ImageName, ImageFile>,
        features: &str,
        runs: Option<Sender<Next>>,
    ) -> io::Result<Arc<Self>> {
        let state = State {
            there,
            waiting: Some(HashMap::new()),
            requested: HashMap::new(),
        };
        let images = Arc::new(Self {
            channel,
            jit: Options {
                features: features.to_owned(),
                baseline: true,
                ..Options::default()
            },
            state: Mutex::new(state),
        });
        let listener = Arc::clone(&images);
        thread::Builder::new()
            .name("images".into())
            .spawn(move || listener.listen(runs.as_ref()))?;
        Ok(images)
    }

    /// Takes an image that is already there.
    pub fn take(&self, name: ImageName) -> Option<ImageFile> {
        self.lock().there.remove(&name)
    }

    fn listen(&self, runs: Option<&Sender<Next>>) {
        while let Ok((message, descriptors)) = self.channel.receive()
            && let Ok(message) = serde_json::from_slice(&message)
        {
            let name = match (message, runs) {
                (ToVmm::Image(name), _) => name,
                (ToVmm::Run(run), Some(runs)) => {
                    // The process ends.
                    if runs.send((run, descriptors)).is_err() {
                        break;
                    }
                    continue;
                }
                // The daemon is another version.
                (ToVmm::Run(_), None) => break,
            };
            let file = descriptors.into_iter().next();
            let image = file.and_then(|file| ImageFile::open(file.into()).ok());
            let waiting = self.lock().waiting.as_mut().and_then(|w| w.remove(&name));
            if let (Some(image), Some(waiting)) = (image, waiting) {
                // The receiver waits until this sender is dropped.
                let _ = waiting.send(image);
            }
        }
        // Dropping the senders ends the waiting requests.
        self.lock().waiting = None;
    }

    /// Requests an image from the daemon, which makes it also if the VM ends meanwhile.
    fn request(&self, name: ImageName) -> Option<()> {
        let message = serde_json::to_vec(&FromVmm::Wants(name)).ok()?;
        let (sender, receiver) = mpsc::channel();
        let mut state = self.lock();
        state.waiting.as_mut()?.insert(name, sender);
        state.requested.insert(name, receiver);
        drop(state);
        self.channel.send(&message, &[]).ok()
    }

    /// Waits for a requested image.
    fn receive(&self, name: ImageName) -> Option<ImageFile> {
        let receiver = self.lock().requested.remove(&name)?;
        receiver.recv().ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ImageSource for FromDaemon {
    fn at_once(&self, file: &CodeFile, variant: u32) -> Option<ImageFile> {
        self.take(name(file, variant)?)
    }

    /// The code is interpreted until the daemon answers. The request is sent here: the program could
    /// end before the thread that waits for the answer runs, and no later run would have the image.
    fn begin(&self, file: &CodeFile, variant: u32, client: &Client) {
        if let Some(name) = name(file, variant) {
            // Without the daemon there is no image.
            let _ = self.request(name);
        }
        client.nothing_yet();
    }

    fn serve(&self, file: &CodeFile, variant: u32, client: &Client) {
        let image = name(file, variant).and_then(|name| self.receive(name));
        if let Some(image) = image {
            client.show_last(image);
        }
    }

    fn jit_options(&self) -> Option<Options> {
        Some(self.jit.clone())
    }
}

/// The name of a file's image; `None`: the daemon knows files of the tree only.
fn name(file: &CodeFile, variant: u32) -> Option<ImageName> {
    let CodeFile::Tree(file) = file else {
        return None;
    };
    let inode = file.inode();
    Some(ImageName { inode, variant })
}
