//! A tenant watches pages that it shares with another tenant's VM (Flush+Reload).

use super::neighbour::Scene;
use super::{Test, vmm};
use hartline_tests::daemon::until;
use hartline_tests::{Result, compile};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub const TESTS: &[(&str, Test)] = &[
    ("pages of others", pages_of_others),
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
