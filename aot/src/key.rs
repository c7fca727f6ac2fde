//! The key of a translation image.

use hartline_abi::ABI_VERSION;
use sha2::{Digest, Sha256};
use std::fmt;

/// The version of the translator; versions differ if they may generate different code.
pub const TRANSLATOR_VERSION: &str = env!("HARTLINE_TRANSLATOR");

/// The key of an image, a hash of everything that the image depends on: SHA-256 of the ELF file's
/// contents, the translator's version, the processor features that the code uses, and the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// Returns the key for an ELF file. `features` and `options` are compared byte by byte, so the
    /// caller must always write equal ones the same way.
    #[must_use]
    pub fn new(elf: &[u8], features: &str, options: &str) -> Self {
        Self::of_digest(&Sha256::digest(elf).into(), features, options)
    }

    /// Returns the key for an ELF file whose contents have this SHA-256.
    #[must_use]
    pub fn of_digest(content: &[u8; 32], features: &str, options: &str) -> Self {
        let mut hash = Sha256::new();
        let crate_version = env!("CARGO_PKG_VERSION").as_bytes();
        let parts = [
            &content[..],
            &ABI_VERSION.to_le_bytes(),
            TRANSLATOR_VERSION.as_bytes(),
            crate_version,
            features.as_bytes(),
            options.as_bytes(),
        ];
        for part in parts {
            // Each part is hashed with its length, so that different lists of parts differ in
            // bytes.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The key with these [bytes](Self::bytes).
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Key {
    /// Prints 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_counts() {
        let key = Key::new(b"elf", "+bmi2", "fast");
        assert_eq!(key, Key::new(b"elf", "+bmi2", "fast"));
        assert_ne!(key, Key::new(b"elF", "+bmi2", "fast"));
        assert_ne!(key, Key::new(b"elf", "+bmi", "2fast"));
        assert_ne!(key, Key::new(b"elf", "+bmi2fast", ""));
        assert_eq!(key.to_string().len(), 64);
        let digest = Sha256::digest(b"elf").into();
        assert_eq!(key, Key::of_digest(&digest, "+bmi2", "fast"));
    }
}
