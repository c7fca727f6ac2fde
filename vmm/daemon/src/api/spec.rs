//! Checks of specs of machines and runs.

use crate::ports::FIRST_PORT;
use crate::problem::Problem;
use crate::snapshots;
use crate::store::{NetworkKind, Port, Restart, Spec};
use hartline_jail::MAX_MESSAGE;
use hartline_vmm::layout::{MAX_CPUS, MAX_RAM, MIN_RAM};
use std::collections::BTreeMap;

const MAX_TIMEOUT_MS: u64 = 30 * 24 * 3600 * 1000;
const MAX_IDLE_S: u64 = MAX_TIMEOUT_MS / 1000;
/// Longest arguments and environment together, bytes: one message takes both to the VMM.
const MAX_STRINGS: usize = MAX_MESSAGE / 4;
const MAX_LABELS: usize = 64;
const MAX_VOLUMES: usize = 8;
const MAX_PORTS: usize = 16;
/// Longest path of a volume in a machine, bytes.
const MAX_MOUNT_PATH: usize = 1024;
/// The limits of core dumps, bytes.
const CORE_LIMITS: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 40;
/// Longest path of a directory, bytes.
const MAX_PATH: usize = 4095;
/// The rule for host names.
const HOST_NAME: &str = "a host name has 1 to 63 letters, digits, dots and hyphens, and begins and ends \
    with a letter or a digit";
/// The rule for names of volumes.
pub(super) const VOLUME_NAME: &str = "a volume's name has 1 to 63 lower-case letters, digits, \
    underscores, dots and hyphens, and begins with a letter or a digit";
const MOUNT_PATH: &str = "a volume's path begins with a slash, and each part of it with a letter, \
    a digit, an underscore or a dot before one of those; further characters may be .@+- too";

/// Checks everything of a spec that needs no database.
///
/// # Errors
/// [`Problem`] with the field's name.
pub(super) fn check_spec(spec: &Spec) -> Result<(), Problem> {
    if !(1..=MAX_CPUS).contains(&(spec.cpus as usize)) {
        return Err(Problem::field(
            "cpus",
            format!("must be from 1 to {MAX_CPUS}"),
        ));
    }
    if !(MIN_RAM..=MAX_RAM).contains(&spec.memory) {
        let rule = format!("must be from {MIN_RAM} to {MAX_RAM} bytes");
        return Err(Problem::field("memory", rule));
    }
    if !spec
        .timeout_ms
        .is_none_or(|ms| (1..=MAX_TIMEOUT_MS).contains(&ms))
    {
        let rule = format!("must be from 1 to {MAX_TIMEOUT_MS}");
        return Err(Problem::field("timeout_ms", rule));
    }
    if !spec
        .idle_timeout_s
        .is_none_or(|s| (1..=MAX_IDLE_S).contains(&s))
    {
        let rule = format!("must be from 1 to {MAX_IDLE_S}");
        return Err(Problem::field("idle_timeout_s", rule));
    }
    if spec.idle_timeout_s.is_some() {
        snapshots::check(spec)?;
    }
    if !spec
        .core_limit
        .is_none_or(|limit| CORE_LIMITS.contains(&limit))
    {
        let rule = format!(
            "must be from {} to {} bytes",
            CORE_LIMITS.start(),
            CORE_LIMITS.end()
        );
        return Err(Problem::field("core_limit", rule));
    }
    let path = spec.path.iter().map(|path| ("path", path));
    let args = spec.args.iter().map(|argument| ("args", argument));
    let env = spec
        .env
        .iter()
        .flat_map(|(name, value)| [("env", name), ("env", value)]);
    let mut length = 0;
    for (field, text) in path.chain(args).chain(env) {
        length += text.len() + 4;
        if text.contains('\0') {
            return Err(Problem::field(field, "must have no NUL"));
        }
        if length > MAX_STRINGS {
            let rule = format!("path, args and env may have {MAX_STRINGS} bytes together");
            return Err(Problem::field(field, rule));
        }
    }
    if spec.path.as_ref().is_some_and(String::is_empty) {
        return Err(Problem::field("path", "must not be empty"));
    }
    check_names(&spec.env)?;
    if !spec.workdir.as_ref().is_none_or(|path| is_directory(path)) {
        let rule = format!("must begin with a slash, and have at most {MAX_PATH} bytes and no NUL");
        return Err(Problem::field("workdir", rule));
    }
    if !spec.hostname.as_ref().is_none_or(|name| is_host_name(name)) {
        return Err(Problem::field("hostname", HOST_NAME));
    }
    if spec.volumes.len() > MAX_VOLUMES {
        return Err(Problem::field(
            "volumes",
            format!("may be {MAX_VOLUMES} at most"),
        ));
    }
    for mount in &spec.volumes {
        if !is_volume_name(&mount.volume) {
            return Err(Problem::field("volumes", VOLUME_NAME));
        }
        if !is_mount_path(&mount.path) {
            return Err(Problem::field("volumes", MOUNT_PATH));
        }
    }
    super::secrets::check_uses(spec)?;
    spec.webhook
        .as_ref()
        .map_or(Ok(()), super::webhooks::check)?;
    check_ports(spec)?;
    if spec.auto_remove && spec.restart != Restart::No {
        let detail = "a machine that is restarted cannot be removed at its end (auto_remove)";
        return Err(Problem::conflict("auto-remove-restart", detail));
    }
    if spec.labels.len() > MAX_LABELS {
        return Err(Problem::field(
            "labels",
            format!("may be {MAX_LABELS} at most"),
        ));
    }
    Ok(())
}

/// Checks everything of published ports that does not depend on the host.
fn check_ports(spec: &Spec) -> Result<(), Problem> {
    let wrong = |rule: String| Err(Problem::field("ports", rule));
    if spec.ports.len() > MAX_PORTS {
        return wrong(format!("may be {MAX_PORTS} at most"));
    }
    if spec.snapshot.is_none() {
        check_publisher(spec)?;
    }
    for (index, port) in spec.ports.iter().enumerate() {
        if port.host < FIRST_PORT || port.guest == 0 {
            return wrong(format!(
                "host must be from {FIRST_PORT} to 65535, and guest from 1 to 65535"
            ));
        }
        let is_same = |other: &Port| other.host == port.host && other.address == port.address;
        if spec.ports[..index].iter().any(is_same) {
            let detail = format!("ports: port {} of the host is there twice", port.host);
            return Err(Problem::conflict("port-twice", detail));
        }
    }
    Ok(())
}

/// Refuses published ports of a machine without a network. The network of one that continues a snapshot is
/// known when the snapshot is.
///
/// # Errors
/// There are ports, and no network.
pub(super) fn check_publisher(spec: &Spec) -> Result<(), Problem> {
    match spec.ports.is_empty() || spec.network != NetworkKind::None {
        true => Ok(()),
        false => {
            let detail = "a machine with published ports must be in the network of its tenant";
            Err(Problem::conflict("no-network", detail))
        }
    }
}

/// Whether a program may start in this directory, if it exists.
fn is_directory(path: &str) -> bool {
    path.starts_with('/') && path.len() <= MAX_PATH && !path.contains('\0')
}

/// Whether a VM may have this host name.
fn is_host_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric();
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    name.len() <= 63
        && ends
            .iter()
            .all(|end| end.is_some_and(|&byte| is_word(byte)))
        && bytes
            .iter()
            .all(|&byte| is_word(byte) || b".-".contains(&byte))
}

/// Whether a volume may have this name.
pub(super) fn is_volume_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 63
        && bytes.next().is_some_and(is_plain)
        && bytes.all(|byte| is_plain(byte) || b"_.-".contains(&byte))
}

/// Whether a volume may be mounted at this path: not the root, and no `.` or `..` in it.
fn is_mount_path(path: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_part = |part: &str| {
        let part = part.strip_prefix('.').unwrap_or(part).as_bytes();
        part.first().is_some_and(|&byte| is_word(byte))
            && part
                .iter()
                .all(|byte| is_word(*byte) || b".@+-".contains(byte))
    };
    path.len() <= MAX_MOUNT_PATH
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(is_part))
}

/// Checks the names of environment variables.
///
/// # Errors
/// A name is not valid.
pub(super) fn check_names(env: &BTreeMap<String, String>) -> Result<(), Problem> {
    let is_valid = |name: &String| !name.is_empty() && !name.contains('=');
    match env.keys().all(is_valid) {
        true => Ok(()),
        false => Err(Problem::field(
            "env",
            "names must not be empty or contain =",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_directories_and_host_names() {
        let spec = |fields: &str| {
            let text = format!(r#"{{"program": "a", {fields}}}"#);
            serde_json::from_str::<Spec>(&text).is_ok_and(|spec| check_spec(&spec).is_ok())
        };
        for good in [
            r#""user": "0""#,
            r#""user": "1000:1000", "read_only": true"#,
            r#""workdir": "/""#,
            r#""hostname": "a""#,
            r#""hostname": "web-1.example""#,
            r#""core_limit": 1048576"#,
            r#""core_limit": 1099511627776"#,
        ] {
            assert!(spec(good), "{good}");
        }
        for bad in [
            r#""user": """#,
            r#""user": "root""#,
            r#""user": "-1""#,
            r#""user": "+1""#,
            r#""user": "1:""#,
            r#""user": "1:2:3""#,
            r#""user": "4294967295""#,
            r#""workdir": """#,
            r#""workdir": "tmp""#,
            r#""workdir": "/\u0000""#,
            r#""hostname": """#,
            r#""hostname": "-a""#,
            r#""hostname": "a b""#,
            r#""read_only": 1"#,
            r#""core_limit": 1048575"#,
            r#""core_limit": 1099511627777"#,
            r#""core_limit": -1"#,
        ] {
            assert!(!spec(bad), "{bad}");
        }
    }

    #[test]
    fn restart_policies() {
        let read = |policy: &str| {
            let text = format!(r#"{{"program": "a", "restart": {policy}}}"#);
            serde_json::from_str::<Spec>(&text)
        };
        for good in [
            "no",
            "always",
            "on-failure",
            "on-failure:1",
            "on-failure:99999",
        ] {
            let spec = read(&format!("\"{good}\"")).unwrap();
            assert_eq!(String::from(spec.restart), good);
        }
        for bad in [
            "",
            "No",
            "on-failure:",
            "on-failure:0",
            "on-failure:01",
            "on-failure:100000",
        ] {
            assert!(read(&format!("\"{bad}\"")).is_err(), "{bad}");
        }
        assert!(read("1").is_err() && read("null").is_err());
        for (policy, is_valid) in [("no", true), ("always", false), ("on-failure:1", false)] {
            let mut spec = read(&format!("\"{policy}\"")).unwrap();
            spec.auto_remove = true;
            assert_eq!(check_spec(&spec).is_ok(), is_valid, "{policy}");
        }
    }

    #[test]
    fn ports_of_machines() {
        let spec = |ports: &str| {
            let text = format!(r#"{{"program": "a", "network": "tenant", "ports": [{ports}]}}"#);
            serde_json::from_str::<Spec>(&text).is_ok_and(|spec| check_spec(&spec).is_ok())
        };
        let many = |count| {
            let ports = (0..count).map(|n| format!(r#"{{"host": {}, "guest": 1}}"#, 2000 + n));
            ports.collect::<Vec<_>>().join(",")
        };
        for good in [
            "",
            r#"{"host": 1024, "guest": 65535}"#,
            r#"{"host": 2000, "guest": 1}, {"host": 2000, "guest": 1, "address": "::1"}"#,
            &many(16),
        ] {
            assert!(spec(good), "{good}");
        }
        for bad in [
            r#"{"host": 1023, "guest": 80}"#,
            r#"{"host": 2000, "guest": 0}"#,
            r#"{"host": 65536, "guest": 1}"#,
            r#"{"host": 2000}"#,
            r#"{"host": 2000, "guest": 1, "address": "localhost"}"#,
            r#"{"host": 2000, "guest": 1, "protocol": "udp"}"#,
            r#"{"host": 2000, "guest": 1}, {"host": 2000, "guest": 2}"#,
            &many(17),
        ] {
            assert!(!spec(bad), "{bad}");
        }
        let text = r#"{"program": "a", "ports": [{"host": 2000, "guest": 1}]}"#;
        let mut spec: Spec = serde_json::from_str(text).unwrap();
        assert!(check_spec(&spec).is_err());
        spec.snapshot = Some("warm".to_owned());
        assert!(check_spec(&spec).is_ok() && check_publisher(&spec).is_err());
    }

    #[test]
    fn names_and_paths_of_volumes() {
        for name in ["a", "0", "data-1.new_x", &"x".repeat(63)] {
            assert!(is_volume_name(name), "{name}");
        }
        for name in ["", "A", ".a", "-a", "a/b", "a b", "\u{e4}", &"x".repeat(64)] {
            assert!(!is_volume_name(name), "{name}");
        }
        for path in ["/data", "/root/.cache/x", "/a/b-c+d@e.f", "/_"] {
            assert!(is_mount_path(path), "{path}");
        }
        for path in [
            "", "/", "data", "/..", "/a/../b", "/.", "/a//b", "/a/", "/...", "/a b", "/\0",
        ] {
            assert!(!is_mount_path(path), "{path}");
        }
    }
}
