//! Changes of the configuration while the daemon runs.

use super::config::{Config, ConfigError};
use serde_json::{Map, Value};
use std::sync::{Arc, PoisonError, RwLock};

/// The settings that take effect without a restart. `tls_certificate` and `tls_key` do too, unless
/// TLS is switched on or off.
const CHANGEABLE: [&str; 33] = [
    "tls_certificate",
    "tls_key",
    "cpu_overcommit",
    "memory",
    "max_upload",
    "idle_timeout_s",
    "copy_max_size",
    "copy_max_files",
    "copy_timeout_s",
    "translation_timeout_s",
    "translation_budget_s",
    "collect_every_s",
    "keep_runs_s",
    "keep_machines_s",
    "keep_programs_s",
    "keep_snapshots_s",
    "max_images",
    "log_max_size",
    "log_max_files",
    "requests_per_second",
    "max_connections",
    "max_connections_per_peer",
    "max_connections_per_tenant",
    "public_health",
    "ui",
    "network_bandwidth",
    "network_packets",
    "publish_ports",
    "publish_addresses",
    "publish_per_tenant",
    "publish_connections",
    "webhooks",
    "webhook_networks",
];

/// The reason why a configuration does not take effect.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The settings cannot be compared.
    #[error("the configuration: {0}")]
    Json(#[from] serde_json::Error),
}

/// The configuration that is in force. Clones are the same.
#[derive(Debug, Clone)]
pub struct Current(Arc<RwLock<Arc<Config>>>);

impl Current {
    /// A configuration at the daemon's start.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(config))))
    }

    /// The configuration.
    #[must_use]
    pub fn get(&self) -> Arc<Config> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another configuration in force.
    pub(crate) fn set(&self, config: Config) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(config);
    }
}

/// The difference of two configurations.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The configuration from now on: the one before, with the settings that can change.
    pub config: Config,
    /// Names of the settings that change.
    pub changed: Vec<String>,
    /// Names of the settings that a restart would change.
    pub postponed: Vec<String>,
}

impl Changes {
    /// The difference of the configuration in force to another one.
    ///
    /// # Errors
    /// [`ReloadError`].
    pub fn new(before: &Config, now: &Config) -> Result<Self, ReloadError> {
        now.check()?;
        let is_tls_kept = before.tls_key.is_some() == now.tls_key.is_some();
        let is_changeable = |name: &str| match name {
            "tls_certificate" | "tls_key" => is_tls_kept,
            name => CHANGEABLE.contains(&name),
        };
        let mut settings = settings(before)?;
        let (mut changed, mut postponed) = (Vec::new(), Vec::new());
        for (name, value) in self::settings(now)? {
            if settings.get(&name) == Some(&value) {
                continue;
            }
            match is_changeable(&name) {
                true => {
                    settings.insert(name.clone(), value);
                    changed.push(name);
                }
                false => postponed.push(name),
            }
        }
        let config: Config = serde_json::from_value(settings.into())?;
        // The settings that stay may not go with those that change.
        config.check()?;
        Ok(Self {
            config,
            changed,
            postponed,
        })
    }
}

/// The settings by name.
fn settings(config: &Config) -> Result<Map<String, Value>, ReloadError> {
    Ok(serde_json::from_value(serde_json::to_value(config)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn every_changeable_setting_exists() {
        let all = settings(&Config::default()).unwrap();
        for name in CHANGEABLE {
            assert!(all.contains_key(name), "{name}");
        }
    }

    #[test]
    fn settings_change_or_wait_for_a_restart() {
        let before = config("max_upload = 1\npool = 2\nkeep_runs_s = 7");
        let now = config("max_upload = 2\npool = 3\nkeep_runs_s = 7\npublic_health = true");
        let changes = Changes::new(&before, &now).unwrap();
        assert_eq!(changes.changed, ["max_upload", "public_health"]);
        assert_eq!(changes.postponed, ["pool"]);
        let expected = config("max_upload = 2\npool = 2\nkeep_runs_s = 7\npublic_health = true");
        assert_eq!(changes.config, expected);
        let same = Changes::new(&before, &before.clone()).unwrap();
        assert!(same.changed.is_empty() && same.postponed.is_empty());
    }

    #[test]
    fn tls_is_renewed_but_not_switched() {
        let plain = config("listen = '127.0.0.1:80'");
        let tls = config("listen = '127.0.0.1:80'\ntls_certificate = '/a'\ntls_key = '/b'");
        let other = config("listen = '127.0.0.1:80'\ntls_certificate = '/c'\ntls_key = '/d'");
        let names = ["tls_certificate", "tls_key"];
        let switched = Changes::new(&plain, &tls).unwrap();
        assert_eq!(
            (switched.config, &switched.postponed[..]),
            (plain, &names.map(str::to_owned)[..])
        );
        let renewed = Changes::new(&tls, &other).unwrap();
        assert_eq!(
            (renewed.config, &renewed.changed[..]),
            (other, &names.map(str::to_owned)[..])
        );
    }

    #[test]
    fn invalid_configurations_are_refused() {
        let before = Config::default();
        let wrong = config("max_connections = 0");
        let error = Changes::new(&before, &wrong).unwrap_err().to_string();
        assert!(error.starts_with("max_connections"), "{error}");
    }
}
