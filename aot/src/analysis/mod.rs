//! Analyses of recovered control flow: contents and liveness of a function's registers, and the
//! locations where its code polls, saves registers or can be entered.
//!
//! An analysis takes a [`Function`](crate::cfg::Function) and the file's [`Unit`] and returns plain
//! data. Analyses generate no code: [`lift`](crate::lift) generates it from their results.

mod block_graph;
mod checkpoints;
mod constant_folding;
mod convention;
mod features;
mod flag_saves;
mod function_summary;
mod liveness;
mod load_combining;
mod polls;
mod register_flow;
mod register_set;
mod residency;
mod resume;
mod returns;
mod shared_tables;
#[cfg(test)]
pub(crate) mod testing;
mod unit;
mod warmth;

pub use checkpoints::{Before, before_each, ends_checkpoint, ends_in_checkpoint, tracked};
pub use constant_folding::ConstantLoads;
pub use convention::{Convention, Conventions};
pub use features::Features;
pub use flag_saves::saves_flags;
pub use liveness::Liveness;
pub use load_combining::{CombinedLoad, Extent, Load, LoadCombiner};
pub use polls::{needs_poll, polled_loops, rounds};
pub use register_flow::{RegisterFlow, Whereabouts, whereabouts};
pub use register_set::{RegisterSet, unpinned, uses};
pub use resume::resume_points;
pub use returns::returns_with_arguments;
pub use shared_tables::{addresses, shared_tables};
pub use unit::Unit;
pub use warmth::guess;
