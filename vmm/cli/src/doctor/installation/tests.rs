//! Installations that are made up.

use super::*;
use std::fs::Permissions;
use std::path::PathBuf;

/// An installation as docs/operating.md asks for it.
fn right() -> Installation {
    Installation {
        systemd: Some(257),
        unit: Some(Unit {
            active: "active".into(),
            enabled: "enabled".into(),
        }),
        require_limits: Some(true),
        pid_max: 4_194_304,
        ..Installation::default()
    }
}

#[test]
fn a_right_installation_gets_no_advice() {
    assert_eq!(right().advise(), []);
    // Without systemd, and without a file, there is nothing to change.
    assert_eq!(Installation::default().advise(), []);
}

#[test]
fn each_fault_gets_its_change() {
    fn set(found: &mut Installation, active: &str, enabled: &str) {
        found.unit = Some(Unit {
            active: active.into(),
            enabled: enabled.into(),
        });
    }
    type Spoil = fn(&mut Installation);
    let cases: [(Spoil, &str); 13] = [
        (|i| i.systemd = Some(252), "Debian 13"),
        (|i| set(i, "failed", "enabled"), "journalctl"),
        (|i| set(i, "inactive", "enabled"), "systemctl start"),
        (|i| set(i, "active", "disabled"), "systemctl enable"),
        (|i| i.unreadable = Some("TOML".into()), "correct /etc"),
        (|i| i.require_limits = Some(false), "require_limits = true"),
        (|i| i.tls = vec!["/key.pem: no".into()], "correct the file"),
        (|i| i.foreign_users = vec!["bob".into()], "first_uid"),
        (|i| i.wrong_user = Some((5, 6)), "SocketUser="),
        (|i| i.short_of_disk = Some(1 << 30), "max_upload"),
        (
            |i| i.no_forwarding = vec!["net.ipv4.ip_forward"],
            "sysctl net.ipv4.ip_forward=1",
        ),
        (|i| i.shared_processors = vec![2, 3], "isolcpus=2,3"),
        (|i| i.pid_max = 32_768, "kernel.pid_max"),
    ];
    for (spoil, change) in cases {
        let mut found = right();
        spoil(&mut found);
        let advice = found.advise();
        assert_eq!(advice.len(), 1, "{change}: {advice:?}");
        assert!(advice[0].change.contains(change), "{advice:?}");
        assert!(advice[0].problem.starts_with("hartlined: "), "{advice:?}");
    }
    let mut small = right();
    small.short_of_memory = Some((2 << 30, 1 << 30));
    assert!(small.advise()[0].problem.contains("2048 MiB"), "{small:?}");
}

#[test]
fn units_and_versions_are_read() {
    let shown = "LoadState=loaded\nActiveState=failed\nUnitFileState=enabled\n";
    let unit = Unit::parse(shown).unwrap();
    assert_eq!(
        (unit.active.as_str(), unit.enabled.as_str()),
        ("failed", "enabled")
    );
    let absent = "LoadState=not-found\nActiveState=inactive\nUnitFileState=\n";
    assert_eq!(Unit::parse(absent), None);
    assert_eq!(Unit::parse(""), None);
    assert_eq!(version("systemd 257 (257.13-1~deb13u1)\n+PAM"), Some(257));
    assert_eq!(version("systemd x"), None);
    assert_eq!(version(""), None);
}

#[test]
fn users_of_others_in_the_range_are_found() {
    let passwd = "root:x:0:0::/:/bin/sh\nhartline:x:100:100::/:/\nbob:x:103:103::/:/\n\
        hartline-service:x:109:109::/:/\nbroken\ncarol:x:110:110::/:/\n";
    let subuid = "dave:100000:65536\nerin:90:11\nfrank:50:50\nbroken:x\n";
    let found = foreign_users(&(100..110), passwd, subuid);
    assert_eq!(found, ["bob", "erin (/etc/subuid)"]);
    assert_eq!(user(passwd, "hartline-service"), Some(109));
    assert_eq!(user(passwd, "nobody"), None);
}

#[test]
fn the_files_of_the_kernel_are_read() {
    assert_eq!(numbers("0-2,5\n"), [0, 1, 2, 5]);
    assert_eq!(numbers("\n"), [0_u32; 0]);
    assert_eq!(numbers("x,3-1,0-4294967295,7"), [7]);
    assert_eq!(
        memory("MemTotal:       2048 kB\nMemFree: 1 kB\n"),
        Some(2 << 20)
    );
    assert_eq!(memory("MemFree: 1 kB\n"), None);
}

#[test]
fn tls_files_must_be_usable() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        Some(path)
    };
    let with = |tls_certificate: Option<PathBuf>, tls_key: Option<PathBuf>| Settings {
        tls_certificate,
        tls_key,
        ..Settings::default()
    };
    let certificate = file("certificate", "x\n-----BEGIN CERTIFICATE-----\n", 0o644);
    let key = file("key", "-----BEGIN EC PRIVATE KEY-----\n", 0o600);
    let open = file("open", "-----BEGIN PRIVATE KEY-----\n", 0o644);
    let absent = Some(directory.path().join("absent"));
    assert_eq!(tls_faults(&with(None, None)), [""; 0]);
    assert_eq!(tls_faults(&with(certificate.clone(), key.clone())), [""; 0]);
    assert_eq!(tls_faults(&with(absent.clone(), absent)).len(), 2);
    // Swapped.
    assert_eq!(tls_faults(&with(key, certificate.clone())).len(), 2);
    let faults = tls_faults(&with(certificate, open));
    assert!(
        faults.len() == 1 && faults[0].contains("all users"),
        "{faults:?}"
    );
}

#[test]
fn settings_that_other_checks_need_are_read() {
    let text = "network_range = '10.0.0.0/8'\nnetwork_range6 = 'fd00::/48'\n\
        network_allow = ['192.0.2.1/32']\nfirst_uid = 1000\nuids = 8\nunknown = 'ignored'\n";
    let settings = Settings::parse(text).unwrap();
    assert_eq!(settings.users(), 1000..1008);
    let both = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
    assert_eq!(settings.forwarding(), both);
    let defaults = Settings::parse("").unwrap();
    assert_eq!(defaults, Settings::default());
    assert_eq!(defaults.forwarding(), [""; 0]);
    let inside = "network_range = '10.0.0.0/8'\nnetwork_outbound = false\n";
    assert_eq!(Settings::parse(inside).unwrap().forwarding(), [""; 0]);
    let why = Settings::parse("require_limits = true\nuids =").unwrap_err();
    assert!(why.contains("line 2"), "{why}");
}
