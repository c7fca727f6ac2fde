//! A tenant watches pages that it shares with another tenant's VM (Flush+Reload).

use super::neighbour::Scene;
use super::{Test, vmm};
use hartline_tests::daemon::until;
use hartline_tests::{Result, compile};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

pub const TESTS: &[(&str, Test)] = &[
    ("pages of others", pages_of_others),
    ("frames of others", frames_of_others),
    ("frames of others, if shared", shared_frames),
    ("pages of others, if shared", shared_pages),
];

/// Device and inode number of a file.
type Identity = (u64, u64);

/// Adds the files in a directory and below.
fn files(path: &Path, found: &mut BTreeSet<Identity>) -> Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        match metadata.is_dir() {
            true => files(&entry.path(), found)?,
            false => drop(found.insert((metadata.dev(), metadata.ino()))),
        }
    }
    Ok(())
}

/// Returns the program files that a machine's VMM has open, to map them into the VM.
fn mapped(scene: &Scene, machine: &str) -> Result<BTreeSet<Identity>> {
    let mut known = BTreeSet::new();
    for name in ["trees", "images"] {
        files(&scene.daemon.data().join(name), &mut known)?;
    }
    let open = fs::read_dir(format!("/proc/{}/fd", vmm::of_machine(scene, machine)?))?;
    let found = open.flatten().filter_map(|file| {
        let metadata = fs::metadata(file.path()).ok()?;
        Some((metadata.dev(), metadata.ino()))
    });
    Ok(found.filter(|identity| known.contains(identity)).collect())
}

/// Starts a machine of a tenant with the program. Result: its files.
fn pages(scene: &Scene, key: &str, program: &str) -> Result<BTreeSet<Identity>> {
    let body = json!({ "program": program, "args": ["idle"], "start": true }).to_string();
    let made = scene.request(key, "POST", "/v1/machines", body.as_bytes())?;
    let machine = made.expect(201)?.text("id");
    // The two files are the tree and the image.
    let both = || mapped(scene, &machine).is_ok_and(|pages| pages.len() == 2);
    until(both).map_err(|_| format!("{:?}", mapped(scene, &machine)))?;
    let pages = mapped(scene, &machine)?;
    let path = format!("/v1/machines/{machine}/kill");
    scene.request(key, "POST", &path, b"")?.expect(200)?;
    Ok(pages)
}

/// Counts the files that both machines of the attacker and of the neighbour map. Both run the same
/// program.
fn common(scene: &Scene) -> Result<usize> {
    let program = fs::read(compile::service()?)?;
    let keys = [scene.attacker(), scene.neighbour()];
    let mut all = Vec::new();
    for key in keys {
        let id = scene.push(key, "name=service", &program)?;
        all.push((id.clone(), pages(scene, key, &id)?));
        // Within a tenant the files are shared.
        let again = pages(scene, key, &id)?;
        if all.last().is_none_or(|(_, pages)| *pages != again) {
            return Err("a tenant's own machines do not share files".into());
        }
    }
    Ok(all[0].1.intersection(&all[1].1).count())
}

fn pages_of_others() -> Result<()> {
    let scene = Scene::start("pool = 2")?;
    match common(&scene)? {
        0 => {}
        shared => return Err(format!("the VMs of two tenants share {shared} files").into()),
    }
    // Files of the attacker's program belong to the attacker.
    let programs = scene.attack("GET", "/v1/programs", b"")?.json();
    let machines = scene.attack("GET", "/v1/machines", b"")?.json();
    for (kind, all) in [("machines", machines), ("programs", programs)] {
        for one in all.as_array().ok_or("no list")? {
            let path = format!("/v1/{kind}/{}", one["id"].as_str().unwrap_or_default());
            until(|| {
                let deleted = scene.attack("DELETE", &path, b"");
                deleted.is_ok_and(|answer| answer.status == 204)
            })?;
        }
    }
    let mut left = BTreeSet::new();
    for name in ["trees", "images"] {
        files(&scene.daemon.data().join(name).join("attacker"), &mut left)?;
    }
    match left.is_empty() {
        true => scene.end(),
        false => Err(format!("{} files are left of the attacker", left.len()).into()),
    }
}

/// The operator may enable sharing, and disable it later.
fn shared_pages() -> Result<()> {
    let mut scene = Scene::start("pool = 2\nshare_files = true")?;
    let shared = common(&scene)?;
    if shared != 2 {
        return Err(format!("the VMs share {shared} files, not the tree and the image").into());
    }
    scene.daemon.terminate()?;
    scene.daemon.configure("pool = 2")?;
    scene.daemon.restart()?;
    match common(&scene)? {
        0 => scene.end(),
        shared => Err(format!("the VMs of two tenants still share {shared} files").into()),
    }
}

/// Bytes of a page, and of its entry in `/proc/PID/pagemap` and `/proc/kpageflags`.
const PAGE: u64 = 4096;
const ENTRY: usize = 8;
/// Bits of an entry of `/proc/PID/pagemap` (the kernel's `Documentation/admin-guide/mm/pagemap.rst`).
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
/// Bit of an entry of `/proc/kpageflags`: the page of zeros.
const ZERO_PAGE: u64 = 1 << 24;

/// The page frames of the host that a VMM maps, each with the mapping.
struct Frames {
    all: BTreeMap<u64, String>,
    /// Frames of the program's tree and image.
    program: BTreeSet<u64>,
}

/// Reads entries of 64 bits from a file, the first one with the number `index`.
fn entries(file: &File, index: u64, count: u64) -> Result<Vec<u64>> {
    let mut bytes = vec![0; usize::try_from(count)? * ENTRY];
    let offset = index * ENTRY as u64;
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            length => done += length,
        }
    }
    let words = bytes[..done].chunks_exact(ENTRY);
    let words = words.map(|word| word.try_into().map(u64::from_ne_bytes));
    Ok(words.collect::<std::result::Result<_, _>>()?)
}

/// Finds the frames of a VMM. The program's files are in `known`.
fn frames(vmm: u32, known: &BTreeSet<Identity>) -> Result<Frames> {
    let process = format!("/proc/{vmm}");
    let pages = File::open(format!("{process}/pagemap"))?;
    let flags = File::open("/proc/kpageflags")?;
    let mut found = Frames {
        all: BTreeMap::new(),
        program: BTreeSet::new(),
    };
    for line in fs::read_to_string(format!("{process}/maps"))?.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let (start, end) = range.split_once('-').ok_or("no range")?;
        let [start, end] = [start, end].map(|number| u64::from_str_radix(number, 16));
        let (start, end) = (start?, end?);
        // Reservations of address space have no pages.
        if !rights.starts_with('r') || line.ends_with("[vsyscall]") {
            continue;
        }
        let file = fs::metadata(format!("{process}/map_files/{range}"));
        let file = file.map(|file| (file.dev(), file.ino()));
        let is_program = file.is_ok_and(|identity| known.contains(&identity));
        for entry in entries(&pages, start / PAGE, (end - start) / PAGE)? {
            let frame = entry & FRAME;
            if entry & PRESENT == 0
                || entries(&flags, frame, 1)?
                    .iter()
                    .all(|f| f & ZERO_PAGE != 0)
            {
                continue;
            }
            if is_program {
                found.program.insert(frame);
            }
            found.all.insert(frame, line.to_owned());
        }
    }
    Ok(found)
}

/// Runs the same program for both tenants at the same time. Result: the number of frames of program
/// files that both VMMs map, after a check that they share no others except files of the host's
/// software.
fn common_frames(scene: &Scene) -> Result<usize> {
    let program = fs::read(compile::service()?)?;
    let mut machines = Vec::new();
    for key in [scene.attacker(), scene.neighbour()] {
        let id = scene.push(key, "name=service", &program)?;
        let body = json!({ "program": id, "args": ["tick"], "start": true });
        let (machine, vmm) = vmm::start(scene, key, &body)?;
        let path = format!("/v1/machines/{machine}");
        let runs = || {
            let log = scene.request(key, "GET", &format!("{path}/logs"), b"");
            log.is_ok_and(|log| log.body.starts_with(b"tick\n"))
        };
        until(runs)?;
        machines.push((key, path, vmm));
    }
    let mut known = BTreeSet::new();
    for name in ["trees", "images"] {
        files(&scene.daemon.data().join(name), &mut known)?;
    }
    let [first, second] = [&machines[0], &machines[1]].map(|(_, _, vmm)| frames(*vmm, &known));
    let (first, second) = (first?, second?);
    let own = fs::read_link(format!("/proc/{}/exe", machines[0].2))?;
    let own = own.display().to_string();
    let is_software =
        |mapping: &str| mapping.contains(&own) || mapping.contains(".so") || mapping.contains("[v");
    let shared: Vec<_> = first
        .all
        .iter()
        .filter(|(frame, _)| second.all.contains_key(frame))
        .collect();
    println!(
        "{} and {} frames, {} shared; {} and {} of the program",
        first.all.len(),
        second.all.len(),
        shared.len(),
        first.program.len(),
        second.program.len()
    );
    if first.program.is_empty() || second.program.is_empty() {
        return Err("the VMMs do not map the program".into());
    }
    let common = first.program.intersection(&second.program).count();
    let others: BTreeSet<_> = shared
        .into_iter()
        .filter(|(frame, mapping)| !first.program.contains(frame) && !is_software(mapping))
        .map(|(_, mapping)| mapping)
        .collect();
    if !others.is_empty() {
        return Err(format!("the VMMs share {others:#?}").into());
    }
    for (key, path, _) in &machines {
        scene
            .request(key, "POST", &format!("{path}/kill"), b"")?
            .expect(200)?;
    }
    Ok(common)
}

fn frames_of_others() -> Result<()> {
    let scene = Scene::start("pool = 2")?;
    match common_frames(&scene)? {
        0 => scene.end(),
        shared => Err(format!("the VMs of two tenants share {shared} page frames").into()),
    }
}

fn shared_frames() -> Result<()> {
    let scene = Scene::start("pool = 2\nshare_files = true")?;
    match common_frames(&scene)? {
        0 => Err("the VMs share no page frames".into()),
        _ => scene.end(),
    }
}
