//! What of a VM's memory is in a snapshot.

use super::{Place, expect};
use hartline_tests::Result;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

/// More memory than is copied ahead.
pub fn large() -> Result<()> {
    let place = Place::new()?;
    place.write("one", &["large", "150"])?;
    for _ in 0..2 {
        expect(&place.from("one", "x", &[])?, 0, "150 MiB\n")?;
        // From then on the snapshot may be known to be whole.
        thread::sleep(Duration::from_millis(2100));
    }
    // The memory is mapped now. A snapshot of it has the pages that were not touched, too.
    let two = place.path("two").display().to_string();
    let options = ["--snapshot", &two, "--snapshot-at", "stdin"];
    expect(&place.from("one", "x", &options)?, 0, "150 MiB\n")?;
    expect(&place.from("two", "x", &[])?, 0, "150 MiB\n")
}

/// The snapshot of a small program in a VM of 2 GiB.
pub fn holes() -> Result<()> {
    let place = Place::new()?;
    place.write("one", &["numbers"])?;
    let memory = fs::metadata(place.path("one").join("memory"))?;
    let (length, used) = (memory.len(), memory.blocks() * 512);
    match length == 2 << 30 && used < 32 << 20 {
        true => Ok(()),
        false => Err(format!("{length} bytes, of which {used} are stored").into()),
    }
}

/// Memory that a program has freed is not in its snapshot.
pub fn freed(cpus: u32) -> Result<()> {
    /// What the program has written to it (`FREED` in the program).
    const WORD: u64 = 0x1d5f_00df_eed0_ff5e;
    /// A page that it has kept, by its number.
    const KEPT: u64 = 12_289;
    let place = Place::on(cpus)?;
    place.write("one", &["freed"])?;
    let memory = fs::read(place.path("one").join("memory"))?;
    let is_full_of = |page: &[u8; 4096], word: u64| {
        let mut words = page.as_chunks::<8>().0.iter();
        words.all(|bytes| u64::from_le_bytes(*bytes) == word)
    };
    let pages = memory.as_chunks::<4096>().0;
    let count = |word| pages.iter().filter(|page| is_full_of(page, word)).count();
    match [count(WORD), count(KEPT)] {
        [0, 1] => expect(&place.from("one", "x", &[])?, 0, "zero again\n"),
        [freed, kept] => Err(format!("{freed} pages that were freed, and {kept} kept").into()),
    }
}
