//! Tenants' use of their quotas: from the ledger, and storage from the database.

use super::Daemon;
use super::ledger::Resource;
use super::ports::tenant_connections;
use super::store::{StoreError, Tenant};
use serde::Serialize;

/// A tenant's use of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Use {
    /// The resource: `memory`, `cpus`, `runs`, `connections`, `ports`, `port_connections`, `storage`,
    /// `inodes`, or `translation`, which is CPU time since the start of the daemon.
    #[schema(value_type = String)]
    pub resource: &'static str,
    /// The unit of both numbers: `bytes`, `milliseconds`, or empty for a count.
    #[schema(value_type = String)]
    pub unit: &'static str,
    /// The amount that the tenant uses.
    pub used: u64,
    /// The tenant's limit at one time; null if the tenant has none.
    pub limit: Option<u64>,
}

impl Daemon {
    /// A tenant's use of each resource.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn usage(&self, tenant: &Tenant) -> Result<Vec<Use>, StoreError> {
        let Tenant { name, quota, .. } = tenant;
        let config = self.config();
        let held = Resource::ALL.map(|resource| {
            let (unit, limit) = match resource {
                Resource::Memory => ("bytes", Some(quota.max_memory)),
                Resource::Cpus => ("", None),
                Resource::Runs => ("", Some(quota.max_machines.into())),
                Resource::Connections => ("", Some(self.connections.tenant_limit())),
                Resource::Ports => ("", Some(config.publish_per_tenant.into())),
                Resource::PortConnections => {
                    let most = config.publish_connections.into();
                    ("", Some(tenant_connections(most)))
                }
            };
            Use {
                resource: resource.name(),
                unit,
                used: self.ledger.used(name, resource),
                limit,
            }
        });
        let stored = self.store.storage_used(name)?;
        let storage = Use {
            resource: "storage",
            unit: "bytes",
            used: stored.bytes,
            limit: Some(quota.max_storage),
        };
        let inodes = Use {
            resource: "inodes",
            unit: "",
            used: stored.inodes,
            limit: Some(quota.max_inodes),
        };
        let translation = self.ledger.translation(name).as_millis();
        let translation = Use {
            resource: "translation",
            unit: "milliseconds",
            used: u64::try_from(translation).unwrap_or(u64::MAX),
            limit: None,
        };
        Ok(held
            .into_iter()
            .chain([storage, inodes, translation])
            .collect())
    }
}
