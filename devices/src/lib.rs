//! Part of Hartline.
