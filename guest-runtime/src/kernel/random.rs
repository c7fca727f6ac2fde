//! Random numbers: a generator that the VMM seeds when the VM starts, and that is reseeded from the
//! entropy device from time to time, as Linux does from `hwrng`.

use crate::arch::clock;
use crate::arch::host::Host;
use crate::drivers::rng::{self, RngDevice};
use crate::mm::UserSlice;
use alloc::boxed::Box;
use core::fmt::Debug;
use hartline_linux::errno::Errno;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Length of the generator's state, bytes.
const STATE: usize = 32;
/// Most bytes of the device for one call: each page is an exit.
pub const MOST: usize = 64 << 10;
/// Time between reseeds, ns (`CRNG_RESEED_INTERVAL`).
const INTERVAL: u64 = 60_000_000_000;

/// A source of random bytes.
pub trait Source: Debug {
    /// Fills the start of `to`. Returns how many bytes; 0 only if there are none.
    fn fill(&mut self, to: &mut [u8]) -> usize;
}

impl Source for RngDevice {
    fn fill(&mut self, to: &mut [u8]) -> usize {
        RngDevice::fill(self, to)
    }
}

/// The entropy device, which is started on first use.
#[derive(Debug)]
enum Device {
    Unused(Host),
    Missing,
    Started(Box<dyn Source>),
}

/// The random number generator.
#[derive(Debug)]
pub struct Random {
    generator: ChaCha20Rng,
    device: Device,
    /// Time of the next reseed, ns since the VM started.
    due: u64,
}

impl Random {
    /// Creates a generator with a secret seed, which reseeds from a device of `host` if there is
    /// one.
    #[must_use]
    pub fn new(seed: [u8; STATE], host: Option<Host>) -> Self {
        Self {
            generator: ChaCha20Rng::from_seed(seed),
            device: host.map_or(Device::Missing, Device::Unused),
            due: INTERVAL,
        }
    }

    /// Replaces the whole state by one from a secret seed.
    pub fn replace_seed(&mut self, seed: [u8; STATE]) {
        self.generator = ChaCha20Rng::from_seed(seed);
    }

    /// Fills memory with random bytes.
    pub fn fill(&mut self, to: &mut [u8]) {
        if clock::since_boot() >= self.due {
            // Without the device, the generator relies on its first seed.
            let _ = self.reseed();
        }
        self.generator.fill_bytes(to);
    }

    /// A random number.
    pub fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Reseeds from the device at once.
    ///
    /// # Errors
    /// As [`entropy`](Self::entropy).
    pub fn reseed(&mut self) -> Result<(), Errno> {
        self.due = clock::since_boot().saturating_add(INTERVAL);
        let mut more = [0; STATE];
        let filled = self.entropy(&mut more)?;
        self.mix(&more[..filled]);
        Ok(())
    }

    /// Mixes `bytes` into the state. A program that knows them learns nothing about the numbers.
    pub fn mix<'a>(&mut self, bytes: impl Into<UserSlice<'a>>) {
        for part in bytes.into().chunks(STATE) {
            let (mut seed, mut more) = ([0; STATE], [0; STATE]);
            self.generator.fill_bytes(&mut seed);
            part.copy_to(&mut more[..part.len()]);
            for (to, from) in seed.iter_mut().zip(more) {
                *to ^= from;
            }
            self.generator = ChaCha20Rng::from_seed(seed);
        }
    }

    /// Fills the start of `to` with bytes of the device itself. Returns how many.
    ///
    /// # Errors
    /// `ENODEV` if there is no device, `EIO` if it returns nothing.
    pub fn entropy(&mut self, to: &mut [u8]) -> Result<usize, Errno> {
        if let Device::Unused(host) = self.device {
            self.device = match rng::start(host) {
                Ok(device) => Device::Started(Box::new(device)),
                Err(_) => Device::Missing,
            };
        }
        match &mut self.device {
            Device::Started(source) => fill(&mut **source, to),
            _ => Err(Errno::ENODEV),
        }
    }
}

/// Fills `to` from a source, with as many requests as needed.
fn fill(source: &mut dyn Source, to: &mut [u8]) -> Result<usize, Errno> {
    let wanted = to.len().min(MOST);
    let mut filled = 0;
    while filled < wanted {
        match source.fill(&mut to[filled..wanted]) {
            0 if filled == 0 => return Err(Errno::EIO),
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// A device with this byte value, which returns at most this many bytes at a time.
    #[derive(Debug)]
    struct Bytes(u8, usize);

    impl Source for Bytes {
        fn fill(&mut self, to: &mut [u8]) -> usize {
            let count = to.len().min(self.1);
            to[..count].fill(self.0);
            count
        }
    }

    fn with(device: Bytes) -> Random {
        Random {
            device: Device::Started(Box::new(device)),
            ..Random::new([7; STATE], None)
        }
    }

    #[test]
    fn what_is_mixed_in_counts() {
        let after = |bytes: &[u8]| {
            let mut random = Random::new([7; STATE], None);
            random.mix(bytes);
            random.generator.next_u64()
        };
        assert_eq!(after(&[1; 40]), after(&[1; 40]));
        let different = [&[][..], &[0], &[1], &[1; 32], &[1; 33], &[1; 64]].map(after);
        for (n, value) in different.iter().enumerate() {
            assert!(!different[..n].contains(value), "{n}");
        }
    }

    #[test]
    fn the_device_is_asked_until_there_is_enough() {
        let mut pieces = with(Bytes(9, 5));
        let mut whole = with(Bytes(9, 100));
        pieces.reseed().unwrap();
        whole.reseed().unwrap();
        assert_eq!(pieces.generator.next_u64(), whole.generator.next_u64());
        let mut to = [0; 12];
        assert_eq!(pieces.entropy(&mut to), Ok(12));
        assert_eq!(whole.entropy(&mut vec![0; MOST + 1]), Ok(MOST));
        assert_eq!(pieces.entropy(&mut []), Ok(0));
        assert_eq!(with(Bytes(0, 0)).entropy(&mut to), Err(Errno::EIO));
        assert_eq!(with(Bytes(0, 0)).reseed(), Err(Errno::EIO));
    }
}
