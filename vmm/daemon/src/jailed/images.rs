//! Translation images that the daemon prepared, or prepares when the guest requests them.

use super::protocol::{FromVmm, ImageAnswer, ImageName};
use hartline_aot::translator::Options;
use hartline_jail::Channel;
use hartline_vmm::images::{Client, CodeFile, ImageFile, ImageSource};
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{self, Sender};
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
}

impl FromDaemon {
    /// Starts to listen for images, on a thread that ends with the channel. Translations of code that
    /// the program makes at run time use these processor features, as LLVM names them.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        channel: Arc<Channel>,
        there: HashMap<ImageName, ImageFile>,
        features: &str,
    ) -> io::Result<Arc<Self>> {
        let state = State {
            there,
            waiting: Some(HashMap::new()),
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
            .spawn(move || listener.listen())?;
        Ok(images)
    }

    /// Takes an image that is already there.
    pub fn take(&self, name: ImageName) -> Option<ImageFile> {
        self.lock().there.remove(&name)
    }

    fn listen(&self) {
        while let Ok((message, descriptors)) = self.channel.receive()
            && let Ok(ImageAnswer(name)) = serde_json::from_slice(&message)
        {
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

    /// Asks the daemon for an image and waits for it.
    fn ask(&self, name: ImageName) -> Option<ImageFile> {
        let (sender, receiver) = mpsc::channel();
        self.lock().waiting.as_mut()?.insert(name, sender);
        let message = serde_json::to_vec(&FromVmm::Wants(name)).ok()?;
        self.channel.send(&message, &[]).ok()?;
        receiver.recv().ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ImageSource for FromDaemon {
    fn at_once(&self, file: &CodeFile, variant: u32) -> Option<ImageFile> {
        let CodeFile::Tree(file) = file else {
            return None;
        };
        let inode = file.inode();
        self.take(ImageName { inode, variant })
    }

    /// The code is interpreted until the daemon answers.
    fn begin(&self, _: &CodeFile, _: u32, client: &Client) {
        client.nothing_yet();
    }

    fn serve(&self, file: &CodeFile, variant: u32, client: &Client) {
        // The daemon knows files of the tree only.
        if !matches!(file, CodeFile::Tree(_)) {
            return;
        }
        let name = ImageName {
            inode: file.inode(),
            variant,
        };
        if let Some(image) = self.ask(name) {
            client.show_last(image);
        }
    }

    fn jit_options(&self) -> Option<Options> {
        Some(self.jit.clone())
    }
}
