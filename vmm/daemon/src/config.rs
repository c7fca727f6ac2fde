//! The daemon's configuration, `hartlined.toml`.

use crate::log;
use crate::ports::{FIRST_PORT, PortRange};
use hartline_jail::spawner::{self, NetworkSettings, PREFIX, PREFIX6, TenantLimits, defaults};
use hartline_vmm::platform::CoreSchedulingMode;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The settings; omitted ones have a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Directory of the database, uploads, translations and logs.
    pub data_dir: PathBuf,
    /// The unix socket; clients that run as root or as the daemon's user need no key there.
    pub socket: PathBuf,
    /// TCP address to listen at; loopback only without TLS.
    pub listen: Option<SocketAddr>,
    /// Certificates for TLS on that address (a PEM file), the daemon's own first.
    pub tls_certificate: Option<PathBuf>,
    /// Private key of the first certificate (a PEM file).
    pub tls_key: Option<PathBuf>,
    /// vCPUs that may run at once, for each processor of the host.
    pub cpu_overcommit: u32,
    /// Numbers of CPUs that machines can reserve; all other threads avoid them.
    pub dedicated_cpus: Vec<u32>,
    /// Memory for machines, bytes; three quarters of the host's by default.
    pub memory: Option<u64>,
    /// VMMs that are kept ready.
    pub pool: usize,
    /// Most VMMs that wait for another run from a snapshot; 0: none do.
    pub warm: usize,
    /// Most seconds that they wait.
    pub warm_idle_s: u64,
    /// First of the users of jailed processes; each process has its own user.
    pub first_uid: u32,
    /// Number of users: one for volumes, one for the daemon, the rest for jailed processes.
    pub uids: u32,
    /// Longest upload, bytes.
    pub max_upload: u64,
    /// Most seconds that the body of a request may take without a byte.
    pub idle_timeout_s: u64,
    /// Most bytes of a tar file that `hartline cp` copies.
    pub copy_max_size: u64,
    /// Most files, directories and links in it.
    pub copy_max_files: u64,
    /// Most seconds that a copy takes.
    pub copy_timeout_s: u64,
    /// Most seconds that the translation of one file may take.
    pub translation_timeout_s: u64,
    /// Seconds between two garbage collections.
    pub collect_every_s: u64,
    /// Seconds that asynchronous runs are kept after their end.
    pub keep_runs_s: u64,
    /// Seconds that machines and their output are kept after their end.
    pub keep_machines_s: u64,
    /// Seconds that programs without machines are kept after their upload or last use.
    pub keep_programs_s: u64,
    /// Seconds that snapshots without machines are kept after they were made or last used; without it,
    /// they are kept until a client deletes them.
    pub keep_snapshots_s: Option<u64>,
    /// Longest file of a machine's log, bytes.
    pub log_max_size: u64,
    /// Files of each output of a machine; when all are full, the oldest is emptied.
    pub log_max_files: u32,
    /// Most bytes of translation images; the least recently used ones are deleted first.
    pub max_images: u64,
    /// Requests per second and key, averaged over ten seconds.
    pub requests_per_second: u32,
    /// Most simultaneous connections. One in 16, at most 32, is for root over the unix socket only.
    pub max_connections: usize,
    /// Connections without a key of one address (of one /64 of IPv6), or of one user over the unix
    /// socket; at most a quarter of `max_connections`.
    pub max_connections_per_peer: usize,
    /// Connections of one tenant; at most a quarter of `max_connections`.
    pub max_connections_per_tenant: usize,
    /// Whether `/readyz` and `/metrics` need no key.
    pub public_health: bool,
    /// Whether there is a page at `/ui/`.
    pub ui: bool,
    /// Whether to refuse to start if cgroup limits cannot be enforced.
    pub require_limits: bool,
    /// Whether processes of different tenants are kept off the same core.
    pub core_scheduling: CoreSchedulingMode,
    /// Most bytes per second that a VM reads from, and writes to, the disk of the data
    /// directory, by cgroups.
    pub disk_bandwidth: Option<u64>,
    /// Addresses for networks of tenants, a /24 for each; without it there are no networks.
    pub network_range: Option<Ipv4Net>,
    /// IPv6 addresses for networks of tenants, a /64 for each; without it there is no IPv6.
    pub network_range6: Option<Ipv6Net>,
    /// Whether machines reach public addresses, by the host's address.
    pub network_outbound: bool,
    /// Other addresses that machines reach, even if they are not public.
    pub network_allow: Vec<IpNet>,
    /// Most bytes per second that a machine sends, and receives.
    pub network_bandwidth: Option<u64>,
    /// Most packets per second that a machine sends, and receives.
    pub network_packets: Option<u64>,
    /// Simultaneous connections that the machines of one tenant have opened to hosts outside their
    /// network.
    pub network_tenant_connections: u32,
    /// New connections of that kind per second.
    pub network_tenant_new_connections: u32,
    /// Most bytes per second that the machines of one tenant together send out of their network,
    /// and receive from outside.
    pub network_tenant_bandwidth: u64,
    /// Most packets per second, counted in the same way.
    pub network_tenant_packets: u32,
    /// TCP ports of the host that machines may publish; without it, none.
    pub publish_ports: Option<PortRange>,
    /// Addresses of the host on which ports may be published; the first is the default.
    pub publish_addresses: Vec<IpAddr>,
    /// Most ports that the machines of one tenant publish.
    pub publish_per_tenant: u32,
    /// Simultaneous connections to published ports; a quarter of them for one tenant.
    pub publish_connections: u32,
    /// Whether the daemon sends webhooks.
    pub webhooks: bool,
    /// Networks that webhooks reach although they are not public, and without TLS.
    pub webhook_networks: Vec<IpNet>,
    /// Processor time that a tenant's translations may use in an hour, seconds, summed over all
    /// processors; 0: no limit.
    pub translation_budget_s: u64,
    /// Whether tenants share the files and translations of identical programs.
    pub share_files: bool,
    /// Whether the baseline translator serves machines until LLVM has translated a file.
    pub baseline: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: defaults::DATA_DIR.into(),
            socket: "/run/hartline/hartlined.sock".into(),
            listen: None,
            tls_certificate: None,
            tls_key: None,
            cpu_overcommit: 4,
            dedicated_cpus: Vec::new(),
            memory: None,
            pool: 4,
            warm: 4,
            warm_idle_s: 60,
            first_uid: defaults::FIRST_UID,
            uids: defaults::UIDS,
            max_upload: defaults::MAX_UPLOAD,
            idle_timeout_s: 30,
            copy_max_size: 16 << 30,
            copy_max_files: 1_000_000,
            copy_timeout_s: 3600,
            translation_timeout_s: 900,
            collect_every_s: 60,
            keep_runs_s: 86_400,
            keep_machines_s: 2_592_000,
            keep_programs_s: 7_776_000,
            keep_snapshots_s: None,
            log_max_size: 4 << 20,
            log_max_files: 4,
            max_images: 32 << 30,
            requests_per_second: 1000,
            max_connections: 4096,
            max_connections_per_peer: 256,
            max_connections_per_tenant: 1024,
            public_health: false,
            ui: true,
            require_limits: false,
            core_scheduling: CoreSchedulingMode::Auto,
            disk_bandwidth: None,
            network_range: None,
            network_range6: None,
            network_outbound: false,
            network_allow: Vec::new(),
            network_bandwidth: None,
            network_packets: None,
            network_tenant_connections: 4096,
            network_tenant_new_connections: 1000,
            network_tenant_bandwidth: 1_250_000_000,
            network_tenant_packets: 1_000_000,
            publish_ports: None,
            publish_addresses: vec![Ipv4Addr::LOCALHOST.into()],
            publish_per_tenant: 64,
            publish_connections: 4096,
            webhooks: false,
            webhook_networks: Vec::new(),
            translation_budget_s: 3600,
            share_files: false,
            baseline: true,
        }
    }
}

/// The reason why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is not a valid configuration.
    #[error("{}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The location and the reason.
        source: Box<toml::de::Error>,
    },
    /// A value is not allowed.
    #[error("{name}: {why}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The allowed values.
        why: &'static str,
    },
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.into(),
            source,
        })?;
        toml::from_str(&text).map_err(|source| ConfigError::Parse {
            path: path.into(),
            source: Box::new(source),
        })
    }

    /// The settings for the spawner.
    #[must_use]
    pub fn for_spawner(&self) -> spawner::Settings {
        let networks = self.network_range.map(|range| NetworkSettings {
            range,
            range6: self.network_range6,
            outbound: self.network_outbound,
            allowed: self.network_allow.clone(),
            limits: TenantLimits {
                connections: self.network_tenant_connections,
                new_connections: self.network_tenant_new_connections,
                bandwidth: self.network_tenant_bandwidth,
                packets: self.network_tenant_packets,
            },
        });
        spawner::Settings {
            data_dir: self.data_dir.clone(),
            socket: self.socket.clone(),
            listen: self.listen,
            tls: self.tls_certificate.clone().zip(self.tls_key.clone()),
            first_uid: self.first_uid,
            uids: self.uids,
            dedicated_cpus: self.dedicated_cpus.clone(),
            disk_bandwidth: self.disk_bandwidth,
            require_limits: self.require_limits,
            core_scheduling: self.core_scheduling,
            networks,
        }
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`ConfigError::Value`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |name, why| Err(ConfigError::Value { name, why });
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            return wrong("tls_certificate", "must be set together with tls_key");
        }
        let is_local = |address: SocketAddr| address.ip().is_loopback();
        if self.tls_key.is_none() && !self.listen.is_none_or(is_local) {
            return wrong(
                "listen",
                "only a loopback address without tls_certificate and tls_key",
            );
        }
        if self.warm > 1024 {
            return wrong("warm", "must be from 0 to 1024");
        }
        if self.pool == 0 || self.pool > 1024 {
            return wrong("pool", "must be from 1 to 1024");
        }
        if self.cpu_overcommit == 0 {
            return wrong("cpu_overcommit", "must be at least 1");
        }
        let distinct: BTreeSet<_> = self.dedicated_cpus.iter().collect();
        if distinct.len() != self.dedicated_cpus.len() {
            return wrong("dedicated_cpus", "must not list a CPU twice");
        }
        if self.first_uid < 1000 {
            return wrong(
                "first_uid",
                "must be at least 1000, in a range of users that no other service has",
            );
        }
        if self.uids < 3 {
            return wrong(
                "uids",
                "must be at least 3: one owns the files in volumes, one runs the service",
            );
        }
        if self
            .first_uid
            .checked_add(self.uids)
            .is_none_or(|end| end == u32::MAX)
        {
            return wrong("uids", "the range of users exceeds the highest user ID");
        }
        if self.collect_every_s == 0 {
            return wrong("collect_every_s", "must be at least 1");
        }
        if self.keep_snapshots_s == Some(0) {
            return wrong(
                "keep_snapshots_s",
                "must be at least 1; without it, snapshots are kept",
            );
        }
        if self
            .network_range
            .is_some_and(|range| range.prefix_len() > PREFIX || range.trunc() != range)
        {
            return wrong(
                "network_range",
                "must be addresses with a prefix of 24 bits or less, and zeros after it",
            );
        }
        if self
            .network_range6
            .is_some_and(|range| range.prefix_len() > PREFIX6 || range.trunc() != range)
        {
            return wrong(
                "network_range6",
                "must be addresses with a prefix of 64 bits or less, and zeros after it",
            );
        }
        if self.network_range6.is_some() && self.network_range.is_none() {
            return wrong("network_range6", "needs network_range too");
        }
        if let Some(range) = self.publish_ports {
            if *range.ports().start() < FIRST_PORT {
                return wrong("publish_ports", "must begin at 1024 or later");
            }
            let own = self.listen.map(|address| address.port());
            if own.is_some_and(|port| range.ports().contains(&port)) {
                return wrong("publish_ports", "must not contain the port of listen");
            }
        }
        if self.publish_addresses.is_empty() {
            return wrong("publish_addresses", "must have an address");
        }
        let [shortest, longest] = log::SIZES;
        if !(shortest..=longest).contains(&self.log_max_size) {
            return wrong("log_max_size", "must be from 131072 to 16777216");
        }
        if !(1..=log::MAX_FILES).contains(&self.log_max_files) {
            return wrong("log_max_files", "must be from 1 to 16");
        }
        let limits = [
            ("copy_max_size", self.copy_max_size),
            ("copy_max_files", self.copy_max_files),
            ("copy_timeout_s", self.copy_timeout_s),
            ("requests_per_second", u64::from(self.requests_per_second)),
            ("max_connections", self.max_connections as u64),
            (
                "max_connections_per_peer",
                self.max_connections_per_peer as u64,
            ),
            (
                "max_connections_per_tenant",
                self.max_connections_per_tenant as u64,
            ),
            (
                "network_tenant_connections",
                self.network_tenant_connections.into(),
            ),
            (
                "network_tenant_new_connections",
                self.network_tenant_new_connections.into(),
            ),
            ("network_tenant_bandwidth", self.network_tenant_bandwidth),
            ("network_tenant_packets", self.network_tenant_packets.into()),
            ("publish_connections", self.publish_connections.into()),
        ];
        match limits.into_iter().find(|(_, limit)| *limit == 0) {
            Some((name, _)) => wrong(name, "must be at least 1"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example shows every default.
    #[test]
    fn the_example_is_right() {
        const EXAMPLE: &str = include_str!("../../../deploy/hartlined.toml");
        let shown: String = EXAMPLE
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| !line.starts_with(' '))
            .flat_map(|line| [line, "\n"])
            .collect();
        let mut config: Config = toml::from_str(&shown).unwrap();
        assert!(config.listen.take().is_some() && config.memory.take().is_some());
        assert!(config.tls_certificate.take().is_some() && config.tls_key.take().is_some());
        assert!(config.disk_bandwidth.take().is_some() && config.network_range.take().is_some());
        assert!(config.network_range6.take().is_some() && config.publish_ports.take().is_some());
        assert!(config.keep_snapshots_s.take().is_some());
        let limits = [&mut config.network_bandwidth, &mut config.network_packets];
        assert!(limits.into_iter().all(|limit| limit.take().is_some()));
        assert_eq!(config, Config::default());
    }

    #[test]
    fn faults_of_the_file_are_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hartlined.toml");
        let tell = || {
            format!(
                "{:#}",
                anyhow::Error::from(Config::read(&path).unwrap_err())
            )
        };
        assert_eq!(tell().matches("No such file").count(), 1, "{}", tell());
        std::fs::write(&path, "pol = 2").unwrap();
        assert_eq!(tell().matches("unknown field").count(), 1, "{}", tell());
        assert!(
            tell().starts_with(&path.display().to_string()),
            "{}",
            tell()
        );
    }

    #[test]
    fn defaults_are_valid_and_mistakes_are_named() {
        Config::default().check().unwrap();
        let parsed: Config = toml::from_str("listen = '127.0.0.1:80'\npool = 2").unwrap();
        parsed.check().unwrap();
        assert_eq!(parsed.pool, 2);
        let tls = "listen = '10.0.0.1:80'\ntls_certificate = '/c'\ntls_key = '/k'";
        toml::from_str::<Config>(tls).unwrap().check().unwrap();
        assert!(toml::from_str::<Config>("pol = 2").is_err(), "unknown");
        for wrong in [
            "listen = '10.0.0.1:80'",
            "tls_certificate = '/x'",
            "pool = 0",
            "collect_every_s = 0",
            "max_connections_per_peer = 0",
            "network_tenant_connections = 0",
            "dedicated_cpus = [1, 2, 1]",
            "first_uid = 0",
            "network_range = '10.0.0.0/25'",
            "network_range = '10.0.0.1/16'",
            "network_range6 = 'fd00::/64'",
            "uids = 4294967295",
            "uids = 2",
            "log_max_size = 131071",
            "log_max_size = 16777217",
            "log_max_files = 0",
            "log_max_files = 17",
            "publish_ports = '1023-2000'",
            "publish_ports = '8000-8009'\nlisten = '127.0.0.1:8009'",
            "publish_addresses = []",
            "publish_connections = 0",
        ] {
            let config: Config = toml::from_str(wrong).unwrap();
            let name = wrong.split(' ').next().unwrap();
            let error = config.check().unwrap_err().to_string();
            assert!(error.starts_with(name), "{wrong}: {error}");
        }
    }
}
