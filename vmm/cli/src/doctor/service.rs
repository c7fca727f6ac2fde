//! Checks which features of `hartlined` this host supports.

use hartline_jail::spawner;
use serde::Serialize;

/// Abilities of `hartlined` on this host.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Service {
    /// The reason why `hartlined` cannot limit machines; absent if it can.
    pub limits: Option<String>,
    /// The reason why `hartlined` cannot make networks of tenants; absent if it can.
    pub networks: Option<String>,
}

impl Service {
    /// Examines this host.
    #[must_use]
    pub fn detect() -> Self {
        Self {
            limits: spawner::check_host().err().map(|why| why.to_string()),
            networks: spawner::lacking().map(|why| why.to_string()),
        }
    }
}
