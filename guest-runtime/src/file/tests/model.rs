//! Random operations against a simple model: a map from paths to contents.

use super::{Machine, Node, image, tree};
use crate::convert::{low_u8, to_usize};
use crate::fs::names::Rename;
use hartline_linux::fcntl::{O_CREAT, O_TRUNC, O_WRONLY};
use hartline_linux::stat::{S_IFDIR, S_IFMT};
use std::collections::BTreeMap;

/// `None`: a directory.
type Model = BTreeMap<String, Option<Vec<u8>>>;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn path(&mut self) -> String {
        let depth = 1 + self.below(3);
        (0..depth).fold(String::new(), |path, _| {
            format!("{path}/{}", NAMES[to_usize(self.below(4))])
        })
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').expect("absolute").0
}

fn is_directory(model: &Model, path: &str) -> bool {
    path.is_empty() || matches!(model.get(path), Some(None))
}

fn has_children(model: &Model, path: &str) -> bool {
    let prefix = format!("{path}/");
    model.keys().any(|key| key.starts_with(&prefix))
}

/// Whether rename(2) succeeds.
fn may_rename(model: &Model, from: &str, to: &str) -> bool {
    let Some(source) = model.get(from) else {
        return false;
    };
    if !is_directory(model, parent(to)) || to.starts_with(&format!("{from}/")) {
        return false;
    }
    match (source, model.get(to)) {
        _ if from == to => true,
        (_, None) => true,
        (None, Some(None)) => !has_children(model, to),
        (Some(_), Some(Some(_))) => true,
        _ => false,
    }
}

fn rename(model: &mut Model, from: &str, to: &str) {
    if from == to {
        return;
    }
    let prefix = format!("{from}/");
    let moved: Vec<String> = model
        .keys()
        .filter(|key| *key == from || key.starts_with(&prefix))
        .cloned()
        .collect();
    for key in moved {
        let value = model.remove(&key).expect("listed");
        model.insert(format!("{to}{}", &key[from.len()..]), value);
    }
}

fn write(m: &mut Machine, path: &str, bytes: &[u8]) -> bool {
    let flags = O_CREAT | O_WRONLY | O_TRUNC;
    let Ok(fd) = m.open(path, flags, 0o644) else {
        return false;
    };
    assert_eq!(m.write(fd, bytes), Ok(bytes.len()));
    m.close(fd).expect("open");
    true
}

fn step(m: &mut Machine, model: &mut Model, random: &mut Random) {
    let path = random.path();
    let in_directory = is_directory(model, parent(&path));
    match random.below(6) {
        0 => {
            let expected = in_directory && !model.contains_key(&path);
            assert_eq!(m.mkdir(&path).is_ok(), expected, "mkdir {path}");
            if expected {
                model.insert(path, None);
            }
        }
        1 | 2 => {
            let bytes = vec![low_u8(random.below(256)); to_usize(random.below(9000))];
            let expected = in_directory && model.get(&path) != Some(&None);
            assert_eq!(write(m, &path, &bytes), expected, "write {path}");
            if expected {
                model.insert(path, Some(bytes));
            }
        }
        3 => {
            let expected = matches!(model.get(&path), Some(Some(_)));
            assert_eq!(m.unlink(&path).is_ok(), expected, "unlink {path}");
            if expected {
                model.remove(&path);
            }
        }
        4 => {
            let expected = matches!(model.get(&path), Some(None)) && !has_children(model, &path);
            assert_eq!(m.rmdir(&path).is_ok(), expected, "rmdir {path}");
            if expected {
                model.remove(&path);
            }
        }
        _ => {
            let to = random.path();
            let expected = may_rename(model, &path, &to);
            let done = m.rename(&path, &to, Rename::Replace);
            assert_eq!(done.is_ok(), expected, "rename {path} {to}: {done:?}");
            if expected {
                rename(model, &path, &to);
            }
        }
    }
}

/// Checks everything below `path`; returns the number of names.
fn compare(m: &mut Machine, model: &Model, path: &str) -> usize {
    let listed = m.list(if path.is_empty() { "/" } else { path }).unwrap();
    let mut count = 0;
    let mut directories = 0;
    for name in listed {
        if path.is_empty() && ["dev", "proc", "sys"].contains(&name.as_str()) {
            directories += 1;
            continue;
        }
        let child = format!("{path}/{name}");
        let stat = m.stat(&child).unwrap();
        count += 1;
        match model.get(&child).expect("in the model too") {
            None => {
                assert_eq!(stat.mode & S_IFMT, S_IFDIR);
                directories += 1;
                count += compare(m, model, &child);
            }
            Some(bytes) => assert!(m.contents(&child).unwrap() == *bytes, "{child}"),
        }
    }
    let stat = m.stat(if path.is_empty() { "/" } else { path }).unwrap();
    assert_eq!(stat.nlink, 2 + directories, "links of {path}");
    count
}

#[test]
fn the_overlay_behaves_like_the_model() {
    for seed in 1..25_u64 {
        let node = Node::Dir(vec![
            (
                "a",
                Node::Dir(vec![
                    ("a", Node::File(vec![1; 6000])),
                    ("b", Node::Dir(vec![("c", Node::File(vec![2]))])),
                ]),
            ),
            ("b", Node::File(b"text".to_vec())),
        ]);
        let mut model = Model::from([
            ("/a".into(), None),
            ("/a/a".into(), Some(vec![1; 6000])),
            ("/a/b".into(), None),
            ("/a/b/c".into(), Some(vec![2])),
            ("/b".into(), Some(b"text".to_vec())),
        ]);
        let mut m = Machine::new(Some(tree(image(&node))), super::LIMIT);
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for _ in 0..400 {
            step(&mut m, &mut model, &mut random);
        }
        let count = compare(&mut m, &model, "");
        assert_eq!(count, model.len(), "seed {seed}");
    }
}
