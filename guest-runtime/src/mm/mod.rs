//! The program's memory: physical frames, page tables, the map of the address space, and the
//! operations of `mmap` and related calls.

mod advice;
mod audit;
mod disturb;
mod file_pages;
mod force;
mod fork;
mod frames;
pub mod heap;
mod inspect;
mod limits;
mod lock;
mod made_code;
mod map;
mod page_table;
mod shared;
mod space;
pub mod user;
mod user_slice;
mod userfault;
mod vma;

pub use file_pages::FileReader;
pub use frames::{Chunk, Frames, Ram, chunk_table_size, share_table_size};
pub use limits::Limits;
pub use lock::Populate;
pub use map::{MapLocation, MapRequest};
pub use page_table::{Exhausted, Leaf, PageTable, Window};
pub use shared::{PageStore, SharedMemory};
pub use space::{Access, AddressSpace, Fault, SharedFrames};
pub use user_slice::{UserSlice, UserSliceMut};
pub use vma::{Backing, Label, MappedFile, Protection, VmFlags, Vma, VmaTree};
