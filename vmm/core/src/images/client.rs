//! One guest's requests for images of one file: the images made for it, and the code it executes.

use super::ImageFile;
use crate::control::Control;
use crate::kick;
use crate::platform::Mapping;
use hartline_abi::boot::{Shared, news};
use hartline_abi::hart::Pending;
use hartline_abi::hotness::{self, Hot, Hotness, SLOTS};
use hartline_abi::image::{newer_bit, variant};
use hartline_aot::order::Heat;
use hartline_devices::lateness;
use std::collections::VecDeque;
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most load biases of one file that are remembered.
const MAX_BIASES: usize = 64;

/// Period after which the counts of interpreted code are halved.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// Time of the last halving of a VM's counts. Halving keeps the counts current, so that code of the
/// start does not keep its slots.
#[derive(Debug)]
pub(super) struct Cooling(Mutex<Instant>);

impl Default for Cooling {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Cooling {
    fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.elapsed() >= HALF_LIFE;
        if due {
            *last = Instant::now();
        }
        due
    }
}

/// The connection between a guest and the thread that makes images of a file for it.
#[derive(Debug)]
pub struct Client {
    ram: Arc<Mapping>,
    shared: Arc<Mapping>,
    cooling: Arc<Cooling>,
    control: Option<Arc<Control>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The images that the guest has not received yet, oldest first. Each but the first adds to the
    /// earlier ones.
    images: VecDeque<Provided>,
    answered: bool,
    finished: bool,
    /// A request is being answered, so a new image needs no notification.
    awaited: bool,
    biases: Vec<u64>,
    /// The guest's number for the file and variant.
    number: u64,
}

impl State {
    /// Provides an image that contains everything of the earlier ones.
    fn replace(&mut self, image: ImageFile) {
        self.images.clear();
        self.images.push_back(Provided { image, adds: false });
    }
}

/// An image for the guest.
#[derive(Debug)]
pub(super) struct Provided {
    pub image: ImageFile,
    /// Whether it adds to the earlier images; otherwise it replaces them.
    pub adds: bool,
}

/// The pending notification for the guest.
#[derive(Debug)]
pub(super) struct Notification {
    /// The oldest image that the guest has not received.
    pub image: Option<Provided>,
    /// Whether there is another one.
    pub is_followed: bool,
    /// Whether the source has said if there is an image at present.
    pub answered: bool,
    /// Whether no other image will come.
    pub finished: bool,
}

impl Client {
    pub(super) fn new(ram: Arc<Mapping>, shared: Arc<Mapping>, cooling: Arc<Cooling>) -> Self {
        Self {
            ram,
            shared,
            cooling,
            control: None,
            state: Mutex::default(),
        }
    }

    pub(super) fn with_control(self, control: Arc<Control>) -> Self {
        Self {
            control: Some(control),
            ..self
        }
    }

    /// Provides a new image, which replaces all earlier ones. The guest switches to it at its next
    /// safepoint.
    pub fn show(&self, image: ImageFile) {
        self.announce(|state| state.replace(image));
    }

    /// As [`show`](Self::show), for an image that adds to the earlier ones.
    pub fn add(&self, image: ImageFile) {
        self.announce(|state| state.images.push_back(Provided { image, adds: true }));
    }

    /// As [`show`](Self::show); no other image will come.
    pub fn show_last(&self, image: ImageFile) {
        self.announce(|state| {
            state.replace(image);
            state.finished = true;
        });
    }

    /// Changes the state, and notifies the guest that there is an image, unless a vCPU waits for the
    /// answer.
    fn announce(&self, change: impl FnOnce(&mut State)) {
        lateness::point();
        let (mut number, mut awaited) = (0, false);
        self.update(|state| {
            change(state);
            (number, awaited) = (state.number, state.awaited);
        });
        if !awaited {
            self.notify(number);
        }
    }

    /// Notifies the guest that there is an image of the file and variant with this number.
    fn notify(&self, number: u64) {
        let (word, bit) = newer_bit(number);
        let news = offset_of!(Shared, image_news) + word * size_of::<u64>();
        if let Ok(word) = self.shared.atomic_u64(news as u64) {
            word.fetch_or(bit, Ordering::SeqCst);
        }
        if let Ok(word) = self.shared.atomic_u64(offset_of!(Shared, images) as u64) {
            word.fetch_or(news::IMAGES, Ordering::SeqCst);
            kick::all(&self.shared, &self.ram, Pending::Image);
        }
    }

    /// Provides the only image for the guest, which has not asked yet or waits for an answer.
    pub(super) fn give(&self, image: ImageFile) {
        self.update(|state| {
            state.replace(image);
            state.finished = true;
        });
    }

    /// Whether the guest has been told what images there are so far.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.lock().answered
    }

    /// Notes that there is no image yet: the guest need not wait for it.
    pub fn nothing_yet(&self) {
        self.update(|_| {});
    }

    /// The code of this file that the guest interprets most for lack of translations in this
    /// [variant], or for which it uses the baseline translator's code, by link-time addresses. The
    /// guest may have written any values.
    #[must_use]
    pub fn heats(&self, variant: u32) -> Vec<Heat> {
        let biases = self.lock().biases.clone();
        let halve = self.cooling.is_due();
        let table = offset_of!(Shared, hotness) + offset_of!(Hotness, slots);
        let mut heats = Vec::new();
        for slot in 0..SLOTS {
            let at = (table + slot * size_of::<Hot>()) as u64;
            let word = |field: usize| self.shared.atomic_u64(at + field as u64).ok();
            let Some(counter) = word(offset_of!(Hot, count)) else {
                continue;
            };
            let count = counter.load(Ordering::Relaxed);
            if count == 0 {
                continue;
            }
            if halve {
                // Losing a concurrent increment of the guest makes no difference.
                counter.store(count / 2, Ordering::Relaxed);
            }
            let place = word(offset_of!(Hot, place)).map_or(0, |word| word.load(Ordering::Relaxed));
            let (pc, used) = hotness::parts(place);
            if variant == used || variant == variant::baseline_of(used) {
                heats.extend(biases.iter().map(|&bias| Heat {
                    pc: pc.wrapping_sub(bias),
                    count,
                }));
            }
        }
        heats
    }

    pub(super) fn finish(&self) {
        self.update(|state| state.finished = true);
    }

    pub(super) fn add_bias(&self, bias: u64) {
        let mut state = self.lock();
        if !state.biases.contains(&bias) && state.biases.len() < MAX_BIASES {
            state.biases.push(bias);
        }
    }

    /// Begins a request of the guest, whose number for the file and variant is `number`: until
    /// [`take`](Self::take), a new image is part of the answer.
    pub(super) fn begin(&self, number: u64) {
        let mut state = self.lock();
        state.number = number;
        state.awaited = true;
    }

    /// Ends a request without an answer. The guest is notified of an image that has arrived.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.awaited = false;
        let number = (!state.images.is_empty()).then_some(state.number);
        drop(state);
        if let Some(number) = number {
            self.notify(number);
        }
    }

    /// Ends a request with an answer that is not from here.
    pub(super) fn end(&self) {
        self.lock().awaited = false;
    }

    /// Whether there are images that the guest has not received.
    pub(super) fn has_images(&self) -> bool {
        !self.lock().images.is_empty()
    }

    /// Notifies the guest again if there are images that it has not received, or if `always` is set.
    pub(super) fn announce_again(&self, always: bool) {
        let state = self.lock();
        let number = (always || !state.images.is_empty()).then_some(state.number);
        drop(state);
        if let Some(number) = number {
            self.notify(number);
        }
    }

    /// Takes the notification for the answer to a request. Without an answer yet, the vCPU waits.
    pub(super) fn take(&self) -> Notification {
        let mut state = self.lock();
        state.awaited = !state.answered;
        Notification {
            image: state.images.pop_front(),
            is_followed: !state.images.is_empty(),
            answered: state.answered,
            finished: state.finished,
        }
    }

    /// Changes the state, and wakes a guest that waits for an answer.
    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        state.answered = true;
        drop(state);
        if let Some(control) = &self.control {
            control.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notifies the guest that no more images come, also after a panic.
pub(super) struct FinishOnDrop<'a>(pub &'a Client);

impl Drop for FinishOnDrop<'_> {
    fn drop(&mut self) {
        self.0.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::memory_file;

    const NUMBER: u64 = 70;

    fn client() -> Client {
        let memory = |length| Arc::new(Mapping::anonymous("test", length).unwrap());
        let shared = memory(size_of::<Shared>() as u64);
        Client::new(memory(4096), shared, Arc::default())
    }

    fn image() -> ImageFile {
        ImageFile::open(memory_file(c"image", &[0; 64]).unwrap()).unwrap()
    }

    /// Takes the guest's notifications: of images in general, and of this image.
    fn notified(client: &Client) -> (bool, bool) {
        let take = |offset| {
            let word = client.shared.atomic_u64(offset as u64).unwrap();
            word.swap(0, Ordering::SeqCst)
        };
        let (word, bit) = newer_bit(NUMBER);
        let news = take(offset_of!(Shared, image_news) + word * size_of::<u64>());
        (take(offset_of!(Shared, images)) != 0, news & bit != 0)
    }

    /// Otherwise the time of the notification would change the schedule of a repeated run.
    #[test]
    fn an_image_in_the_answer_needs_no_notification() {
        let client = client();
        client.begin(NUMBER);
        assert!(!client.take().answered);
        client.show(image());
        assert!(client.take().image.is_some());
        assert_eq!(notified(&client), (false, false));
        client.show(image());
        assert_eq!(notified(&client), (true, true));
    }

    #[test]
    fn images_that_add_arrive_in_order_and_others_replace_them() {
        let client = client();
        client.begin(NUMBER);
        let take = || {
            let notification = client.take();
            let image = notification.image;
            (
                image.map(|provided| provided.adds),
                notification.is_followed,
            )
        };
        client.show(image());
        client.add(image());
        client.add(image());
        assert_eq!(take(), (Some(false), true));
        assert_eq!(take(), (Some(true), true));
        client.add(image());
        assert_eq!(take(), (Some(true), true));
        client.show(image());
        assert_eq!(take(), (Some(false), false));
        assert_eq!(take(), (None, false));
    }

    #[test]
    fn an_image_after_an_abandoned_request_is_notified() {
        let client = client();
        client.begin(NUMBER);
        assert!(!client.take().answered);
        client.show(image());
        client.abandon();
        assert_eq!(notified(&client), (true, true));
        client.begin(NUMBER);
        assert!(client.take().image.is_some());
        client.begin(NUMBER);
        client.abandon();
        assert_eq!(notified(&client), (false, false));
        client.show_last(image());
        assert_eq!(notified(&client), (true, true));
    }
}
