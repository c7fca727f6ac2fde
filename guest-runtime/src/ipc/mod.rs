//! System V IPC: shared memory, semaphores and message queues (`sysvipc(7)`).
//!
//! The objects know neither tasks nor processes but by number. An operation that has to wait
//! returns so, and one that ends another's wait returns the numbers of the tasks to wake.

mod ids;
mod messages;
mod segments;
mod semaphores;
mod text;

pub use ids::{Ids, Object, Permission};
pub use messages::{Message, Queue, Queues, Selection};
pub use segments::{Segment, Segments};
pub use semaphores::{Outcome, SemaphoreSet, Semaphores};
pub use text::Table;

/// All objects of the VM.
#[derive(Debug)]
pub struct Ipc {
    /// Shared memory.
    pub segments: Segments,
    /// Semaphores.
    pub semaphores: Semaphores,
    /// Message queues.
    pub queues: Queues,
}

impl Ipc {
    /// No objects; the messages of all queues take at most `messages` bytes.
    #[must_use]
    pub fn new(messages: u64) -> Self {
        Self {
            segments: Segments::default(),
            semaphores: Semaphores::default(),
            queues: Queues::new(messages),
        }
    }
}
