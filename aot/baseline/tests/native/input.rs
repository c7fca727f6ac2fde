//! Random numbers and operands.

use hartline_isa::Format;

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// Seeded from `HARTLINE_SEED`, by default 1; prints the seed.
    pub fn seeded() -> Self {
        let seed = std::env::var("HARTLINE_SEED").ok();
        let seed = seed.and_then(|text| text.parse().ok()).unwrap_or(1);
        println!("HARTLINE_SEED={seed}");
        Self(seed)
    }

    /// Returns any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns one of `from`.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns a value of an integer register.
    pub fn integer(&mut self) -> u64 {
        const LIMITS: [u64; 10] = [
            0,
            1,
            2,
            u64::MAX,
            1 << 63,
            i64::MAX as u64,
            1 << 31,
            i32::MIN as u64,
            i32::MAX as u64,
            u32::MAX as u64,
        ];
        match self.below(6) {
            0 => self.next(),
            1 => self.next() >> self.below(64),
            2 | 3 => self.pick(&LIMITS),
            4 => (self.next() as i64 >> self.below(64)) as u64,
            _ => self.float(),
        }
    }

    /// Returns a value of a floating-point register: a double or a single, seldom not NaN-boxed.
    pub fn float(&mut self) -> u64 {
        match self.below(16) {
            0 => self.next(),
            1..=7 => self.number(Format::Single) | 0xffff_ffff_0000_0000,
            _ => self.number(Format::Double),
        }
    }

    /// Returns the bits of a number, often one at a limit.
    fn number(&mut self, format: Format) -> u64 {
        let (exponent_bits, fraction_bits) = match format {
            Format::Single => (8, 23),
            Format::Double => (11, 52),
        };
        let (ones, fraction_ones) = ((1u64 << exponent_bits) - 1, (1u64 << fraction_bits) - 1);
        let bias = ones >> 1;
        let exponent = match self.below(8) {
            0 => 0,
            1 => ones,
            2 => 1 + self.below(3),
            3 => ones - 1 - self.below(3),
            4 | 5 => bias.wrapping_add(self.below(129)).wrapping_sub(64),
            6 => bias.wrapping_add(self.below(5)).wrapping_sub(2),
            _ => self.next(),
        } & ones;
        let fraction = match self.below(6) {
            0 => 0,
            1 => fraction_ones,
            2 => 1 << self.below(fraction_bits),
            3 => fraction_ones << self.below(fraction_bits),
            _ => self.next(),
        } & fraction_ones;
        let sign = self.below(2) << (exponent_bits + fraction_bits);
        sign | exponent << fraction_bits | fraction
    }

    /// Returns bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words = (0..length / 8).flat_map(|_| {
            let word = if self.below(2) == 0 {
                self.next()
            } else {
                self.float()
            };
            word.to_le_bytes()
        });
        words.collect()
    }
}
