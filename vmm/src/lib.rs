//! Part of Hartline.

pub mod tree;
