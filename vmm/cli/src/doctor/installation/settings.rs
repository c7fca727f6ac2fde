//! The settings of `hartlined.toml` that the checks need. The daemon checks all others itself.

use hartline_jail::spawner::defaults;
use serde::Deserialize;
use std::ops::Range;
use std::path::PathBuf;

/// The configuration of the packaged service.
pub(super) const CONFIGURATION: &str = "/etc/hartline/hartlined.toml";

/// Settings, by their names in the file; omitted ones have the daemon's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    pub data_dir: PathBuf,
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub memory: Option<u64>,
    pub dedicated_cpus: Vec<u32>,
    pub first_uid: u32,
    pub uids: u32,
    pub max_upload: u64,
    pub require_limits: bool,
    pub network_range: Option<String>,
    pub network_range6: Option<String>,
    pub network_outbound: bool,
    pub network_allow: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data_dir: defaults::DATA_DIR.into(),
            tls_certificate: None,
            tls_key: None,
            memory: None,
            dedicated_cpus: Vec::new(),
            first_uid: defaults::FIRST_UID,
            uids: defaults::UIDS,
            max_upload: defaults::MAX_UPLOAD,
            require_limits: false,
            network_range: None,
            network_range6: None,
            network_outbound: false,
            network_allow: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads the text of a configuration file. The error is its first line: it names the location.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().to_owned()
        })
    }

    /// The range of the daemon's users.
    pub(super) fn users(&self) -> Range<u32> {
        self.first_uid..self.first_uid.saturating_add(self.uids)
    }

    /// Kernel settings that must be on, because machines reach addresses outside their network.
    pub(super) fn forwarding(&self) -> Vec<&'static str> {
        let reaches = self.network_outbound || !self.network_allow.is_empty();
        if self.network_range.is_none() || !reaches {
            return Vec::new();
        }
        let mut names = vec!["net.ipv4.ip_forward"];
        if self.network_range6.is_some() {
            names.push("net.ipv6.conf.all.forwarding");
        }
        names
    }
}
