//! Damaged, outdated, shared and unwritable caches of translations.

use super::{Place, check_good, check_refusal};
use hartline_tests::elf::Elf;
use hartline_tests::{Result, hartline, paths, process};
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Translates the program ahead.
pub fn built(place: &Place) -> Result<()> {
    match place.run("build")? {
        outcome if outcome.code == 0 => Ok(()),
        outcome => Err(format!("{outcome:?}").into()),
    }
}

/// A damaged entry is detected, not used, and made again.
pub fn damaged_cache() -> Result<()> {
    let place = Place::new(&Elf::good()?)?;
    built(&place)?;
    let [entry] = place
        .cached()?
        .try_into()
        .map_err(|files| format!("in the cache: {files:?}"))?;
    let original = fs::read(&entry)?;
    let length = original.len();
    let mut damaged = vec![
        vec![],
        original[..1].to_vec(),
        original[..length / 2].to_vec(),
        original[..length - 1].to_vec(),
    ];
    damaged.push([&original[..], b"more"].concat());
    damaged.push(vec![0; length]);
    for at in [
        0,
        8,
        12,
        16,
        48,
        80,
        88,
        96,
        104,
        112,
        120,
        128,
        136,
        4096,
        length / 2,
        length - 1,
    ] {
        let mut bytes = original.clone();
        bytes[at] ^= 0x41;
        damaged.push(bytes);
    }
    for (number, bytes) in damaged.iter().enumerate() {
        fs::write(&entry, bytes)?;
        check_good(&place.run("run")?)
            .map_err(|error| format!("damage {number}: {}", error.message().unwrap_or_default()))?;
        if entry.exists() {
            return Err(format!("damage {number} is still in the cache").into());
        }
        built(&place)?;
        if place.cached()? != [entry.clone()] || fs::read(&entry)? == *bytes {
            return Err(format!("damage {number} is still in the cache").into());
        }
    }
    Ok(())
}

/// A damaged addition to a partial image is detected, not used, and removed; a good one stays.
pub fn damaged_additions() -> Result<()> {
    const COUNT: &str = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; echo $i";
    let place = Place::new(&Elf::good()?)?;
    let count = || -> Result<()> {
        let mut command = hartline::command("run")?;
        command.env("HARTLINE_CACHE", place.cache());
        command.env(hartline::BASELINE, "auto");
        command.arg(paths::busybox()).args(["sh", "-c", COUNT]);
        match process::run(&mut command, b"")? {
            outcome if outcome.code == 0 && outcome.stdout == b"30000\n" => Ok(()),
            outcome => Err(format!("{outcome:?}").into()),
        }
    };
    count()?;
    let mut partial = place.cached()?;
    partial.retain(|path| path.extension().is_some_and(|name| name == "partial"));
    let additions: Vec<_> = (partial.iter())
        .map(|path| path.with_extension("addition"))
        .collect();
    let image = fs::read(partial.first().ok_or("no partial image")?)?;
    let mut changed = image.clone();
    changed[image.len() / 2] ^= 0x41;
    let damaged = [&[][..], &image[..image.len() / 2], &changed];
    for (number, bytes) in damaged.into_iter().enumerate() {
        for addition in &additions {
            fs::write(addition, bytes)?;
        }
        count()
            .map_err(|error| format!("damage {number}: {}", error.message().unwrap_or_default()))?;
        // A run may keep an addition of its own.
        let is_left = |addition| fs::read(addition).is_ok_and(|now| now == bytes);
        if additions.iter().any(is_left) {
            return Err(format!("damage {number} is still in the cache").into());
        }
    }
    for (addition, partial) in additions.iter().zip(&partial) {
        fs::copy(partial, addition)?;
    }
    count()?;
    match additions.iter().all(|addition| addition.exists()) {
        true => Ok(()),
        false => Err("a good addition was removed".into()),
    }
}

/// A file and its translation are checked once. They are checked again when one of them or the
/// validated-image cache changes.
pub fn known_files() -> Result<()> {
    let place = Place::new(&Elf::good()?)?;
    built(&place)?;
    // A file that was just written is checked at each start.
    let settle = || std::thread::sleep(Duration::from_millis(2200));
    settle();
    check_good(&place.run("run")?)?;
    let known = fs::read(place.known())?;
    check_good(&place.run("run")?)?;
    if fs::read(place.known())? != known {
        return Err("it was checked again".into());
    }
    fs::write(place.known(), vec![b'x'; known.len()])?;
    check_good(&place.run("run")?)?;
    fs::write(place.known(), &known[..known.len() - 1])?;
    check_good(&place.run("run")?)?;
    // Change the translation.
    let [entry] = place
        .cached()?
        .try_into()
        .map_err(|files| format!("in the cache: {files:?}"))?;
    let length = fs::metadata(&entry)?.len();
    let file = fs::File::options().write(true).open(&entry)?;
    file.write_all_at(b"damage", length / 2)?;
    check_good(&place.run("run")?)?;
    if entry.exists() {
        return Err("the damage was not noticed".into());
    }
    // Change one instruction of the program, but keep its modification time.
    built(&place)?;
    settle();
    check_good(&place.run("run")?)?;
    // addi a0, t0, code
    let exits_with = |code: u32| (0x0002_8513 | code << 20).to_le_bytes();
    let program = fs::read(place.program())?;
    let at = program.windows(4).position(|word| word == exits_with(7));
    let at = at.ok_or("the program does not load its exit code")?;
    let file = fs::File::options().write(true).open(place.program())?;
    let modified = file.metadata()?.modified()?;
    file.write_all_at(&exits_with(8), at as u64)?;
    file.set_modified(modified)?;
    for _ in 0..2 {
        match place.run("run")?.code {
            8 => settle(),
            code => return Err(format!("the program before ran: exit code {code}").into()),
        }
    }
    Ok(())
}

/// Several processes translate the same file at once: all succeed and make one entry.
pub fn many_builds() -> Result<()> {
    let place = Place::new(&Elf::good()?)?;
    let mut children = Vec::new();
    for _ in 0..6 {
        children.push(
            place
                .command("build")?
                .arg(place.program())
                .stderr(std::process::Stdio::null())
                .stdout(std::process::Stdio::null())
                .spawn()?,
        );
    }
    for child in &mut children {
        match process::wait(child)?.map(process::shell_code) {
            Some(0) => {}
            other => return Err(format!("exit code {other:?}").into()),
        }
    }
    match place.cached()?.as_slice() {
        [_] => Ok(()),
        files => Err(format!("in the cache: {files:?}").into()),
    }
}

/// A later build clears away what a killed build leaves behind.
pub fn killed_build() -> Result<()> {
    let place = Place::new(&Elf::good()?)?;
    let mut child = place
        .command("build")?
        .arg(paths::busybox())
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()?;
    std::thread::sleep(Duration::from_millis(700));
    child.kill()?;
    child.wait()?;
    let images = place
        .cached()?
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "img"))
        .count();
    if images != 0 {
        return Err("busybox was translated in 0.7 s, or a part of it was stored".into());
    }
    let outcome = place.run("build")?;
    match place.cached()?.as_slice() {
        [_] if outcome.code == 0 => Ok(()),
        files => Err(format!("{outcome:?}; in the cache: {files:?}").into()),
    }
}

/// The error names a cache folder that cannot be made.
pub fn unwritable_cache(subcommand: &str) -> Result<()> {
    let place = Place::new(&Elf::good()?)?;
    let mut command = place.command(subcommand)?;
    command.env("HARTLINE_CACHE", place.program().join("cache"));
    // Nothing is translated before, so there is no other line.
    let outcome = process::run(command.arg(place.program()), b"")?;
    check_refusal(&outcome, &["good-or-bad/cache"])
}
