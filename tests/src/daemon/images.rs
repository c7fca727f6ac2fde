//! Translation images that an earlier daemon has kept.
//!
//! Each daemon of a test has a new data directory, and would translate the same program again. A
//! data directory may have images that belong to no tenant: those of a time when all tenants shared
//! them. A daemon copies them to a tenant after checking them, as it copies another tenant's.

use super::Daemon;
use crate::{Result, hartline};
use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

impl Daemon {
    /// Gives the daemon the translation image of a program, before the program is uploaded, alone or
    /// in a root file system. For tests that need a program, and not its translation.
    ///
    /// # Errors
    /// The program cannot be translated, or the image cannot be copied.
    pub fn give_image(&self, program: &Path) -> Result<()> {
        copy_images(&kept(program)?, &self.data().join("images")).map(drop)
    }
}

/// Returns the folder with the image of a program. The first call translates it.
fn kept(program: &Path) -> Result<PathBuf> {
    static KEPT: Mutex<Option<HashMap<PathBuf, PathBuf>>> = Mutex::new(None);
    let mut all = KEPT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let all = all.get_or_insert_default();
    if let Some(folder) = all.get(program) {
        return Ok(folder.clone());
    }
    let bytes = fs::read(program)?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let name = format!("of-{:016x}", hasher.finish());
    // Programs of other suites may run at the same time.
    let cache = hartline::cache()?;
    let lock = File::create(cache.join(&name).with_added_extension("lock"))?;
    lock.lock()?;
    let folder = cache.join(name);
    if !folder.exists() {
        let new = folder.with_added_extension("new");
        let _ = fs::remove_dir_all(&new);
        fs::create_dir(&new)?;
        make(program, &bytes, &new)?;
        fs::rename(&new, &folder)?;
    }
    all.insert(program.to_path_buf(), folder.clone());
    Ok(folder)
}

/// Fills a folder with the image that a daemon has of a program.
fn make(program: &Path, bytes: &[u8], folder: &Path) -> Result<()> {
    // The suites of `hartline run` need it too. The daemon selects the one of this program.
    hartline::translate(program)?;
    let daemon = Daemon::start("pool = 1")?;
    copy_images(&hartline::cache()?, &daemon.data().join("images"))?;
    let pushed = daemon.push("name=program", bytes)?;
    if pushed["state"] != "ready" || pushed["message"] != "" {
        return Err(format!("{}: {pushed}, {}", program.display(), daemon.log()).into());
    }
    match copy_images(&daemon.data().join("images/default"), folder)? {
        1 => Ok(()),
        count => Err(format!("{}: {count} images", program.display()).into()),
    }
}

/// Copies the images of a folder to another one. Result: how many.
fn copy_images(from: &Path, to: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name() else {
            continue;
        };
        if path.extension().is_some_and(|extension| extension == "img") {
            fs::copy(&path, to.join(name))?;
            count += 1;
        }
    }
    Ok(count)
}
