//! Checks the installation of `hartlined`: what docs/operating.md asks an operator to set.

mod settings;

use super::advice::Advice;
use serde::Serialize;
use settings::{CONFIGURATION, Settings};
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The oldest systemd that starts the service again while machines run (`DelegateSubgroup=`).
const SYSTEMD: u32 = 254;
/// The smallest `kernel.pid_max` that gets no advice. systemd sets 4,194,304.
const PIDS: u64 = 100_000;
/// The users that the package makes in the range of the daemon.
const OWN_USERS: [&str; 2] = ["hartline", "hartline-service"];
/// Longest part of a TLS file that is read, bytes.
const TLS_FILE: u64 = 1 << 20;

/// The installation of `hartlined`, and what it needs of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Installation {
    /// Version of systemd; absent if it does not run here.
    pub systemd: Option<u32>,
    /// State of `hartlined.service`; absent if there is no such unit.
    pub unit: Option<Unit>,
    /// The reason why the configuration cannot be read; absent if it can, or if there is none.
    pub unreadable: Option<String>,
    /// Whether the service refuses to start without limits; absent without a readable configuration.
    pub require_limits: Option<bool>,
    /// Faults of the files for TLS.
    pub tls: Vec<String>,
    /// Users of other services in the daemon's range.
    pub foreign_users: Vec<String>,
    /// The user of `hartlined.service` and the user that the configuration makes the service's, if
    /// they differ.
    pub wrong_user: Option<(u32, u32)>,
    /// Bytes that are free for the daemon's data, if they are fewer than the longest upload.
    pub short_of_disk: Option<u64>,
    /// Bytes of memory for machines and of the host, if the host has not as many.
    pub short_of_memory: Option<(u64, u64)>,
    /// Kernel settings that networks of tenants need, and that are off.
    pub no_forwarding: Vec<&'static str>,
    /// Dedicated CPUs that other programs of the host may use.
    pub shared_processors: Vec<u32>,
    /// Most processes and threads of the host.
    pub pid_max: u64,
}

/// State of a unit, in the words of systemctl(1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// For example `active` or `failed`.
    pub active: String,
    /// For example `enabled` or `disabled`.
    pub enabled: String,
}

impl Installation {
    /// Examines this host; `None` if it has neither the unit nor its configuration.
    #[must_use]
    pub fn detect() -> Option<Self> {
        let has_systemd = Path::new("/run/systemd/system").exists();
        let ask = |arguments: &[&str]| {
            if has_systemd {
                systemctl(arguments)
            } else {
                String::new()
            }
        };
        let shown = ask(&[
            "show",
            "--property=LoadState,ActiveState,UnitFileState",
            "hartlined.service",
        ]);
        let unit = Unit::parse(&shown);
        let configuration = match fs::read_to_string(CONFIGURATION) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            text => Some(text),
        };
        if unit.is_none() && configuration.is_none() {
            return None;
        }
        let mut found = Self {
            systemd: version(&ask(&["--version"])),
            unit,
            pid_max: read("/proc/sys/kernel/pid_max").trim().parse().unwrap_or(0),
            ..Self::default()
        };
        let settings = configuration.map(|text| {
            let text = text.map_err(|error| error.to_string())?;
            Settings::parse(&text)
        });
        match settings {
            None => found.look_for(&Settings::default()),
            Some(Ok(settings)) => {
                found.require_limits = Some(settings.require_limits);
                found.look_for(&settings);
            }
            Some(Err(why)) => found.unreadable = Some(why),
        }
        Some(found)
    }

    /// Looks for what these settings need.
    fn look_for(&mut self, settings: &Settings) {
        self.tls = tls_faults(settings);
        let range = settings.users();
        let (passwd, subuid) = (read("/etc/passwd"), read("/etc/subuid"));
        self.foreign_users = foreign_users(&range, &passwd, &subuid);
        let last = range.end.saturating_sub(1);
        self.wrong_user = user(&passwd, OWN_USERS[1])
            .filter(|own| *own != last)
            .map(|own| (own, last));
        self.short_of_disk = rustix::fs::statvfs(&settings.data_dir)
            .ok()
            .map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize))
            .filter(|free| *free < settings.max_upload);
        self.short_of_memory = settings
            .memory
            .zip(memory(&read("/proc/meminfo")))
            .filter(|(wanted, host)| wanted > host);
        self.no_forwarding = settings
            .forwarding()
            .into_iter()
            .filter(|name| read(&format!("/proc/sys/{}", name.replace('.', "/"))).trim() == "0")
            .collect();
        let isolated = numbers(&read("/sys/devices/system/cpu/isolated"));
        let status = read("/proc/1/status");
        let of_init = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let of_init = numbers(of_init.unwrap_or_default());
        let dedicated = settings.dedicated_cpus.iter().copied();
        self.shared_processors = dedicated
            .filter(|number| !isolated.contains(number) && of_init.contains(number))
            .collect();
    }

    /// Advice for this installation.
    pub(super) fn advise(&self) -> Vec<Advice> {
        let mut all = self.advise_on_service();
        all.extend(self.advise_on_settings());
        all.extend(self.advise_on_host());
        all.into_iter()
            .map(|(problem, change)| Advice::new(format!("hartlined: {problem}"), change))
            .collect()
    }

    /// Problems of the service, with their changes.
    fn advise_on_service(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if let Some(version) = self.systemd.filter(|version| *version < SYSTEMD) {
            found.push((
                format!("systemd {version} cannot start the service again while machines run"),
                format!("use systemd {SYSTEMD} or newer (Debian 13)"),
            ));
        }
        if let Some(unit) = &self.unit {
            found.extend(unit.advise());
        }
        found
    }

    /// Problems of settings and of the files that they name, with their changes.
    fn advise_on_settings(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if let Some(why) = &self.unreadable {
            found.push((
                format!("{CONFIGURATION} cannot be read: {why}"),
                format!("correct {CONFIGURATION}; or run hartline doctor as root"),
            ));
        }
        if self.require_limits == Some(false) {
            found.push((
                "the service starts even if nothing limits machines".into(),
                format!("require_limits = true in {CONFIGURATION}"),
            ));
        }
        for fault in &self.tls {
            let change =
                "correct the file: root must be able to read it, and no other user the key";
            found.push((fault.clone(), change.into()));
        }
        if !self.foreign_users.is_empty() {
            let names = self.foreign_users.join(", ");
            found.push((
                format!("others have users of its range: {names}"),
                format!("first_uid in {CONFIGURATION}: a free range, while no machine runs"),
            ));
        }
        if let Some((own, last)) = self.wrong_user {
            found.push((
                format!(
                    "the unit's user is {own}, and first_uid and uids make {last} the service's"
                ),
                "User= in hartlined.service and SocketUser= in hartlined-spawner.socket, with \
                 systemctl edit"
                    .into(),
            ));
        }
        if let Some((wanted, host)) = self.short_of_memory {
            let (wanted, host) = (wanted >> 20, host >> 20);
            found.push((
                format!("machines get {wanted} MiB of memory, and the host has {host} MiB"),
                format!("memory in {CONFIGURATION}: less than the host has"),
            ));
        }
        found
    }

    /// Problems of the host with these settings, with their changes.
    fn advise_on_host(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if let Some(free) = self.short_of_disk {
            let free = free >> 20;
            found.push((
                format!(
                    "its data has {free} MiB of free disk space, less than the longest upload: \
                     requests can fail with 507"
                ),
                format!("free disk space; or a smaller max_upload in {CONFIGURATION}"),
            ));
        }
        for name in &self.no_forwarding {
            found.push((
                format!("{name} is 0, and the configuration lets machines reach other networks"),
                format!("sysctl {name}=1, and a file in /etc/sysctl.d"),
            ));
        }
        if !self.shared_processors.is_empty() {
            let numbers: Vec<_> = self.shared_processors.iter().map(u32::to_string).collect();
            let numbers = numbers.join(",");
            found.push((
                format!("other programs of the host may use the dedicated CPUs {numbers}"),
                format!(
                    "boot with isolcpus={numbers}, or set CPUAffinity= in /etc/systemd/system.conf"
                ),
            ));
        }
        if (1..PIDS).contains(&self.pid_max) {
            let most = self.pid_max;
            found.push((
                format!("the host runs at most {most} threads, and each machine has several"),
                "sysctl kernel.pid_max=4194304".into(),
            ));
        }
        found
    }
}

impl Unit {
    /// The unit in the output of `systemctl show`; `None` if there is no such unit.
    fn parse(shown: &str) -> Option<Self> {
        let property = |name: &str| {
            let mut lines = shown.lines().filter_map(|line| line.split_once('='));
            lines.find_map(|(found, value)| (found == name).then(|| value.to_owned()))
        };
        if property("LoadState")? == "not-found" {
            return None;
        }
        Some(Self {
            active: property("ActiveState")?,
            enabled: property("UnitFileState").unwrap_or_default(),
        })
    }

    /// Problems of this state, with their changes.
    fn advise(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        match self.active.as_str() {
            "failed" => found.push((
                "the service has failed".into(),
                "see journalctl -u 'hartlined*' -n 20".into(),
            )),
            "inactive" => found.push((
                "the service does not run".into(),
                "systemctl start hartlined".into(),
            )),
            _ => {}
        }
        if self.enabled == "disabled" {
            found.push((
                "the service does not start when the host boots".into(),
                "systemctl enable hartlined".into(),
            ));
        }
        found
    }
}

/// The output of systemctl(1); empty if it fails.
fn systemctl(arguments: &[&str]) -> String {
    let mut command = Command::new("systemctl");
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).into_owned()
}

/// The version in the output of `systemctl --version`: `systemd 257 (257.13-1)`.
fn version(text: &str) -> Option<u32> {
    let mut words = text.split_whitespace();
    match (words.next(), words.next()) {
        (Some("systemd"), Some(version)) => version.parse().ok(),
        _ => None,
    }
}

/// A file of the kernel or of the host's users; empty if it cannot be read.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Faults of the files for TLS.
fn tls_faults(settings: &Settings) -> Vec<String> {
    let certificate = settings.tls_certificate.as_deref();
    let key = settings.tls_key.as_deref();
    let certificate = certificate.and_then(|path| fault_of(path, "BEGIN CERTIFICATE-----", 0));
    let key = key.and_then(|path| fault_of(path, "PRIVATE KEY-----", 0o007));
    certificate.into_iter().chain(key).collect()
}

/// The fault of a PEM file, which must have a line with `label`, and whose mode must have no bit of
/// `closed`. A file that only root can read has no fault that other users could see.
fn fault_of(path: &Path, label: &str, closed: u32) -> Option<String> {
    let name = path.display();
    let read = || -> io::Result<(u32, String)> {
        let file = File::open(path)?;
        let mode = file.metadata()?.permissions().mode();
        let mut text = String::new();
        file.take(TLS_FILE).read_to_string(&mut text)?;
        Ok((mode, text))
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        Err(error) => Some(format!("{name}: {error}")),
        Ok((_, text)) if !text.contains(label) => {
            Some(format!("{name}: no line of this PEM file has {label}"))
        }
        Ok((mode, _)) if mode & closed != 0 => {
            Some(format!("{name}: all users of the host can read it"))
        }
        Ok(_) => None,
    }
}

/// The number of a user in the text of `/etc/passwd`.
fn user(passwd: &str, name: &str) -> Option<u32> {
    let mut lines = passwd.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let found = fields.next() == Some(name);
        let number = fields.nth(1)?;
        if found { number.parse().ok() } else { None }
    })
}

/// Users that others have in the daemon's range: users of `/etc/passwd`, and ranges of
/// `/etc/subuid` (subuid(5)).
fn foreign_users(range: &Range<u32>, passwd: &str, subuid: &str) -> Vec<String> {
    let users = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?.parse().ok()?);
        let foreign = range.contains(&number) && !OWN_USERS.contains(&name);
        foreign.then(|| name.to_owned())
    });
    let ranges = subuid.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let first: u64 = fields.next()?.parse().ok()?;
        let count: u64 = fields.next()?.trim().parse().ok()?;
        let overlaps =
            first < u64::from(range.end) && u64::from(range.start) < first.saturating_add(count);
        overlaps.then(|| format!("{name} (/etc/subuid)"))
    });
    users.chain(ranges).collect()
}

/// Bytes of memory in the text of `/proc/meminfo`.
fn memory(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes << 10)
}

/// The numbers of a list of CPUs (cpuset(7), "List format"): `0-3,8`. Parts that are no numbers of
/// CPUs are left out.
fn numbers(list: &str) -> Vec<u32> {
    const LAST: u32 = 1 << 16;
    let parts = list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (last < LAST).then_some(first..=last)
    });
    parts.flatten().collect()
}

#[cfg(test)]
mod tests;
