//! The parts of the project use only the parts that `tests/imports.txt` allows.

use hartline_tests::paths::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// For each part, the parts that it uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the lines of `tests/imports.txt`, split at their colons.
fn rules() -> Vec<(String, String)> {
    let text = read(&repository().join("tests/imports.txt"));
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (left, right) = line.split_once(':').expect("PART: OTHER …");
            (left.to_owned(), right.trim().to_owned())
        })
        .collect()
}

fn allowed() -> Arrows {
    let arrows = rules().into_iter();
    arrows
        .filter(|(part, _)| !part.starts_with("impl "))
        .map(|(part, others)| {
            let others = others.split_whitespace().map(str::to_owned);
            (part, others.collect())
        })
        .collect()
}

/// Returns the folders of the project's crates by package name, from the workspace's manifest.
fn packages() -> BTreeMap<String, String> {
    let manifest = read(&repository().join("Cargo.toml"));
    let entries = manifest.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" = { path = \"")?;
        Some((name.to_owned(), rest.split('"').next()?.to_owned()))
    });
    entries.collect()
}

/// Returns the crates that a crate depends on, without dev-dependencies.
fn dependencies(folder: &str, packages: &BTreeMap<String, String>) -> BTreeSet<String> {
    let manifest = read(&repository().join(folder).join("Cargo.toml"));
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or("");
    let section = section.split("\n[").next().unwrap_or("");
    let names = section.lines().filter_map(|line| {
        let end = line.find([' ', '.', '='])?;
        packages.get(&line[..end]).cloned()
    });
    names.collect()
}

/// Returns the code of a file without comments and without its module of tests.
fn code(path: &Path) -> String {
    let text = read(path);
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines();
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.collect::<Vec<_>>().join("\n")
}

/// Returns the first modules of the paths that begin with `crate::` in `code`.
fn modules(code: &str) -> BTreeSet<&str> {
    let paths = code.split("crate::").skip(1);
    paths
        .map(|path| {
            let end = path.find(|c: char| !c.is_alphanumeric() && c != '_');
            &path[..end.unwrap_or(path.len())]
        })
        .collect()
}

/// Adds the Rust files in `path`, a file or folder, except test files.
fn add_files(path: &Path, files: &mut Vec<std::path::PathBuf>) {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    if name == "tests" || name.ends_with("_tests") {
        return;
    }
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a folder") {
            add_files(&entry.expect("an entry").path(), files);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") && path.is_file() {
        files.push(path.to_owned());
    }
}

/// Returns the parts of the same crate that a part uses.
fn used(part: &str) -> BTreeSet<String> {
    let (source, own) = part.rsplit_once('/').expect("a folder");
    let mut files = Vec::new();
    let path = repository().join(part);
    add_files(&path, &mut files);
    add_files(&path.with_extension("rs"), &mut files);
    assert!(!files.is_empty(), "tests/imports.txt: {part}: no such part");
    let mut found = BTreeSet::new();
    for file in files {
        let code = code(&file);
        for module in modules(&code).into_iter().filter(|&module| module != own) {
            let other = format!("{source}/{module}");
            let path = repository().join(&other);
            if path.is_dir() || path.with_extension("rs").is_file() {
                found.insert(other);
            }
        }
    }
    found
}

/// Describes the differences between the arrows that a part has and those that it may have.
fn differences(part: &str, has: &BTreeSet<String>, may: &BTreeSet<String>) -> Vec<String> {
    let new = has.difference(may).map(|other| {
        format!("{part} uses {other}, which tests/imports.txt does not allow: see its first lines")
    });
    let unused = may.difference(has).map(|other| {
        format!("tests/imports.txt allows {part} to use {other}, which it does not: take it out")
    });
    new.chain(unused).collect()
}

#[test]
fn parts_use_what_they_may_use() {
    let packages = packages();
    let mut wrong = Vec::new();
    for (part, may) in &allowed() {
        let is_crate = repository().join(part).join("Cargo.toml").is_file();
        let has = match is_crate {
            true => dependencies(part, &packages),
            false => used(part),
        };
        wrong.extend(differences(part, &has, may));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether `code` has an `impl` block of the type, with or without a trait.
fn implements(code: &str, name: &str) -> bool {
    let mut blocks = code.lines().filter(|line| line.starts_with("impl"));
    blocks.any(|line| {
        let end = line.trim_end_matches('{').split_whitespace().last();
        end == Some(name)
    })
}

#[test]
fn types_are_implemented_in_their_folder() {
    let rules = rules();
    let homes = rules.iter().filter_map(|(left, folder)| {
        let name = left.strip_prefix("impl ")?;
        Some((name, folder))
    });
    let mut wrong = Vec::new();
    for (name, folder) in homes {
        let home = repository().join(folder);
        let mut files = Vec::new();
        add_files(home.parent().expect("a folder"), &mut files);
        let (own, others): (Vec<_>, Vec<_>) =
            files.iter().partition(|file| file.starts_with(&home));
        let has_any = own.iter().any(|file| implements(&code(file), name));
        assert!(has_any, "tests/imports.txt: no `impl {name}` in {folder}");
        for file in others.iter().filter(|file| implements(&code(file), name)) {
            wrong.push(format!(
                "{}: `impl {name}` may stand only in {folder}: make it a method of the part of \
                 {name} that it needs, or a function that takes `&mut {name}`",
                file.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_crate_is_listed() {
    let allowed = allowed();
    for folder in packages()
        .values()
        .map(String::as_str)
        .chain(["guest-runtime", "tests"])
    {
        assert!(
            allowed.contains_key(folder),
            "tests/imports.txt lacks {folder}"
        );
    }
}

#[test]
fn no_circle_is_allowed() {
    let mut arrows = allowed();
    // Remove parts that use nothing until only cycles are left.
    loop {
        let ends: Vec<String> = (arrows.iter())
            .filter(|(_, others)| !others.iter().any(|other| arrows.contains_key(other)))
            .map(|(part, _)| part.clone())
            .collect();
        if ends.is_empty() {
            break;
        }
        arrows.retain(|part, _| !ends.contains(part));
    }
    assert!(
        arrows.is_empty(),
        "in circles, or before one: {:?}",
        arrows.keys()
    );
}

#[test]
fn an_arrow_is_seen() {
    let code = "use crate::kernel::Kernel;\nfn f() { crate::user::read(); }\n";
    assert_eq!(modules(code), BTreeSet::from(["kernel", "user"]));
    let (has, may) = (
        BTreeSet::from(["b".to_owned()]),
        BTreeSet::from(["c".to_owned()]),
    );
    let told = differences("a", &has, &may);
    assert!(told[0].starts_with("a uses b,") && told[1].contains("allows a to use c"));
    assert_eq!(told.len(), 2);
    let implementation = "struct Kernel;\nimpl Debug for Kernel {\n";
    assert!(implements(implementation, "Kernel") && implements("impl Kernel {\n", "Kernel"));
    assert!(!implements(
        "impl From<Kernel> for KernelGuard {\n",
        "Kernel"
    ));
}
