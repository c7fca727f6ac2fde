//! The state that the threads of a block device share.

use super::backend::Image;
use super::request::Request;
use super::stats::Counters;
use crate::limiter::Limiter;
use crate::virtio::stats::count;
use crate::virtio::{DeviceError, Guest, Memory, add_used, notify_used};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use virtio_queue::Queue;

/// The state that the threads of a block device share.
#[derive(Debug)]
pub(super) struct Shared {
    pub image: Arc<Image>,
    pub requests: Mutex<Queue>,
    pub memory: Memory,
    pub guest: Arc<dyn Guest>,
    pub counters: Arc<Counters>,
    /// Limits of all requests together.
    pub limiter: Limiter,
}

impl Shared {
    /// Locks the request queue.
    pub fn requests(&self) -> MutexGuard<'_, Queue> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a request, completes it, and notifies the driver.
    ///
    /// # Errors
    /// The guest broke the ring.
    pub fn serve(&self, head: u16, mut request: Request) -> Result<(), DeviceError> {
        let written = request.serve(&self.image, &self.counters);
        let mut requests = self.requests();
        add_used(&mut requests, &self.memory, head, written)?;
        self.notify_used(&mut requests)
    }

    /// Completes a request without a notification.
    ///
    /// # Errors
    /// The guest broke the ring.
    pub fn add_used(&self, head: u16, written: u32) -> Result<(), DeviceError> {
        add_used(&mut self.requests(), &self.memory, head, written)
    }

    /// Interrupts the guest if the driver wants a notification of completed requests.
    ///
    /// # Errors
    /// The guest broke the ring.
    pub fn notify_used(&self, requests: &mut Queue) -> Result<(), DeviceError> {
        if notify_used(requests, &self.memory, &*self.guest)? {
            count(&self.counters.interrupts, 1);
        }
        Ok(())
    }
}
