//! Tests of the description: what is written is read again, and every field is checked.

use super::*;
use serde_json::{Value, json};

fn part(offset: u64, length: u64) -> Part {
    let sha256 = Digest::of(b"");
    Part {
        offset,
        length,
        sha256,
    }
}

fn config() -> Config {
    let digest = Digest::of(b"");
    Config {
        version: VERSION,
        abi: ABI_VERSION,
        runtime: runtime_digest(),
        machine: Machine {
            program: "/bin/p".into(),
            inode: 5,
            user: (1, 2),
            ram: 64 << 20,
            ram_free: 40 << 20,
            cpus: 1,
            stack_block: 8 << 20,
            read_only: false,
            variant: variant::NORMAL,
            monotonic_ns: 7,
            terminals: 3,
            network: true,
        },
        memory: vec![part(0, 8192), part(12288, 4096), part(62 << 20, 2 << 20)],
        tree: Some(Tree {
            length: 10_000,
            sha256: Some(digest),
            gpa: Some(FILE_GPA),
            base: Some(Base {
                length: 8192,
                sha256: digest,
                gpa: Some(FILE_GPA + HUGE_PAGE_SIZE),
                extents: vec![(0, 4096, 4096), (8192, 0, 4096)],
            }),
        }),
    }
}

fn parse(value: &Value) -> Result<Config, ConfigError> {
    Config::parse(&serde_json::to_vec(value).unwrap())
}

#[test]
fn what_is_written_is_read() {
    let json = serde_json::to_value(config()).unwrap();
    let read = parse(&json).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), json);
}

#[test]
fn every_wrong_value_is_refused_by_name() {
    let wrong = [
        (
            "/machine/program",
            json!("x".repeat(MAX_NAME + 1)),
            "machine.program",
        ),
        ("/machine/ram", json!(0), "machine.ram"),
        ("/machine/ram", json!((64u64 << 20) + 4096), "machine.ram"),
        ("/machine/ram", json!(1u64 << 60), "machine.ram"),
        ("/machine/ram_free", json!(64 << 20), "machine.ram_free"),
        ("/machine/ram_free", json!(1), "machine.ram_free"),
        (
            "/machine/stack_block",
            json!(39 << 20),
            "machine.stack_block",
        ),
        (
            "/machine/stack_block",
            json!(!4095u64),
            "machine.stack_block",
        ),
        ("/machine/variant", json!(99), "machine.variant"),
        (
            "/machine/monotonic_ns",
            json!(u64::MAX),
            "machine.monotonic_ns",
        ),
        ("/machine/terminals", json!(8), "machine.terminals"),
        ("/memory/0/offset", json!(1), "memory.offset"),
        ("/memory/1/offset", json!(4096), "memory.offset"),
        ("/memory/2/offset", json!(64 << 20), "memory.offset"),
        ("/memory/0/length", json!(0), "memory.length"),
        ("/memory/0/length", json!(4097), "memory.length"),
        ("/memory/1/length", json!(2 << 20), "memory.length"),
        ("/tree/length", json!(0), "tree.length"),
        ("/tree/length", json!(1u64 << 40), "tree.length"),
        ("/tree/gpa", json!(4096), "tree.gpa"),
        ("/tree/gpa", json!(FILE_GPA + 4096), "tree.gpa"),
        ("/tree/gpa", json!(FILE_GPA_END), "tree.gpa"),
        ("/tree/base/gpa", json!(FILE_GPA), "tree.base.gpa"),
        ("/tree/base/length", json!(0), "tree.base.length"),
        (
            "/tree/base/extents/1/0",
            json!(0),
            "tree.base.extents.offset",
        ),
        (
            "/tree/base/extents/1/0",
            json!(12288),
            "tree.base.extents.offset",
        ),
        (
            "/tree/base/extents/0/1",
            json!(8192),
            "tree.base.extents.source",
        ),
        (
            "/tree/base/extents/0/2",
            json!(8192),
            "tree.base.extents.length",
        ),
        (
            "/tree/base/extents/0/2",
            json!(0),
            "tree.base.extents.length",
        ),
    ];
    for (at, value, field) in wrong {
        let mut json = serde_json::to_value(config()).unwrap();
        *json.pointer_mut(at).unwrap() = value.clone();
        let error = parse(&json).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{field}: ")),
            "{at} {value}: {error}"
        );
    }
}

#[test]
fn every_missing_unknown_or_misshapen_field_is_refused() {
    fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
        let Value::Object(fields) = value else { return };
        for (name, inner) in fields {
            let path = format!("{at}/{name}");
            paths(inner, &path, found);
            found.push(path);
        }
    }
    let good = serde_json::to_value(config()).unwrap();
    let mut all = Vec::new();
    paths(&good, "", &mut all);
    for path in all {
        let (parent, name) = path.rsplit_once('/').unwrap();
        let change = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
            let mut json = good.clone();
            let parent = json.pointer_mut(parent).unwrap();
            change(parent.as_object_mut().unwrap());
            parse(&json)
        };
        // A field that may be null may be missing.
        let may_be_null = ["tree", "gpa", "base"].contains(&name) || path == "/tree/sha256";
        if !may_be_null {
            assert!(
                change(&|fields| drop(fields.remove(name))).is_err(),
                "{path}"
            );
        }
        assert!(change(&|fields| drop(fields.insert(name.into(), json!([true])))).is_err());
        assert!(change(&|fields| drop(fields.insert("other".into(), json!(1)))).is_err());
    }
}

#[test]
fn other_versions_are_refused() {
    let mut json = serde_json::to_value(config()).unwrap();
    json["version"] = json!(VERSION + 1);
    // Fields of later versions are not looked at.
    json["later"] = json!({});
    assert!(matches!(parse(&json), Err(ConfigError::Version(v)) if v == u64::from(VERSION) + 1));
    let mut json = serde_json::to_value(config()).unwrap();
    json["abi"] = json!(ABI_VERSION + 1);
    assert!(matches!(parse(&json), Err(ConfigError::Runtime)));
    let mut json = serde_json::to_value(config()).unwrap();
    json["runtime"] = json!(String::from(Digest::of(b"other")));
    assert!(matches!(parse(&json), Err(ConfigError::Runtime)));
}

#[test]
fn damaged_text_is_refused() {
    let text = serde_json::to_vec(&config()).unwrap();
    for length in 0..text.len() {
        assert!(Config::parse(&text[..length]).is_err(), "{length}");
    }
    for digest in ["", "0", "zz", &"0".repeat(63), &"é".repeat(32)] {
        assert!(Digest::try_from(digest.to_owned()).is_err(), "{digest}");
    }
}
