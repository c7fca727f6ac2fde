//! Figures that are read when Prometheus asks for them.

use super::{Metrics, process};
use crate::scheduler::{Load, Resources};
use crate::store::MachineState;
use crate::usage::Use;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use std::path::Path;

/// The file system of the data directory, bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk {
    size: u64,
    free: u64,
}

impl Disk {
    /// The file system of a directory; `None` if it says nothing about itself.
    #[must_use]
    pub fn of(directory: &Path) -> Option<Self> {
        let disk = rustix::fs::statvfs(directory).ok()?;
        Some(Self {
            size: disk.f_blocks.saturating_mul(disk.f_frsize),
            free: disk.f_bavail.saturating_mul(disk.f_frsize),
        })
    }
}

/// The present state of the daemon.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scrape {
    /// The scheduler's load.
    pub load: Load,
    /// The resources that the scheduler has for machines.
    pub capacity: Resources,
    /// VMMs that wait for a program.
    pub ready: usize,
    /// VMMs that wait for another run from a snapshot.
    pub warm: usize,
    /// The file system of the data directory.
    pub disk: Option<Disk>,
    /// Ends of machines that wait for room on the disk.
    pub waiting_ends: usize,
    /// Webhooks that wait for their receivers.
    pub waiting_webhooks: u64,
    /// Number of translation images, and their bytes.
    pub images: (u64, u64),
}

/// The figures of a tenant.
#[derive(Debug)]
pub struct TenantFigures {
    /// The tenant's name.
    pub tenant: String,
    /// The tenant's use of resources.
    pub used: Vec<Use>,
    /// Number of its kept machines and runs, by kind and state.
    pub machines: Vec<(&'static str, MachineState, u64)>,
    /// Number of its snapshots of machines, and their bytes.
    pub snapshots: (u64, u64),
}

/// A resource of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Used {
    tenant: String,
    resource: &'static str,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTenant {
    tenant: String,
}

/// A state of a tenant's machines or runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    tenant: String,
    kind: &'static str,
    state: &'static str,
}

impl Metrics {
    /// The metrics as text for Prometheus, with the figures of these tenants. `None`: the reader must
    /// not see figures of single tenants.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn text(
        &self,
        now: Scrape,
        tenants: Option<Vec<TenantFigures>>,
    ) -> Result<String, std::fmt::Error> {
        let mut present = Registry::with_prefix("hartline");
        register(&mut present, now);
        if let Some(tenants) = tenants {
            self.register_tenants(&mut present, tenants);
        }
        let mut own = Registry::default();
        process::register(&mut own);
        let mut text = String::new();
        for registry in [&self.registry, &present, &own] {
            encode_registry(&mut text, registry)?;
        }
        encode_eof(&mut text)?;
        Ok(text)
    }

    fn register_tenants(&self, registry: &mut Registry, tenants: Vec<TenantFigures>) {
        let used: Family<Used, Gauge> = Family::default();
        let machines: Family<InState, Gauge> = Family::default();
        let snapshots: Family<OfTenant, Gauge> = Family::default();
        let snapshot_bytes: Family<OfTenant, Gauge> = Family::default();
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        for of in tenants {
            let label = OfTenant {
                tenant: of.tenant.clone(),
            };
            let (count, bytes) = of.snapshots;
            snapshots.get_or_create(&label).set(number(count));
            snapshot_bytes.get_or_create(&label).set(number(bytes));
            for resource in of.used {
                let label = Used {
                    tenant: of.tenant.clone(),
                    resource: resource.resource,
                };
                used.get_or_create(&label).set(number(resource.used));
            }
            for (kind, state, count) in of.machines {
                let label = InState {
                    tenant: of.tenant.clone(),
                    kind,
                    state: state.name(),
                };
                machines.get_or_create(&label).set(number(count));
            }
        }
        let help = "Resources that a tenant uses: bytes, milliseconds or counts, by resource";
        registry.register("tenant_used", help, used);
        let help = "Machines and kept runs of a tenant, by state";
        registry.register("tenant_machines", help, machines);
        let help = "Snapshots of machines of a tenant";
        registry.register("tenant_snapshots", help, snapshots);
        let help = "Bytes of the files of a tenant's snapshots of machines";
        registry.register("tenant_snapshot_bytes", help, snapshot_bytes);
        let help = "Ended runs of a tenant, and ends of programs of its machines, by outcome";
        registry.register("tenant_ends", help, self.of_tenants.clone());
    }
}

fn register(registry: &mut Registry, now: Scrape) {
    let Scrape {
        load,
        capacity,
        ready,
        warm,
        disk,
        waiting_ends,
        waiting_webhooks,
        images: (images, image_bytes),
    } = now;
    for (name, help, value) in [
        (
            "vms_running",
            "Running machines and runs",
            load.running.saturating_sub(warm as u64),
        ),
        (
            "vms_waiting",
            "Waiting machines and runs",
            load.waiting as u64,
        ),
        (
            "free_memory_bytes",
            "Free memory for machines and runs",
            load.free.memory,
        ),
        (
            "memory_bytes",
            "Memory for machines and runs",
            capacity.memory,
        ),
        (
            "free_vcpus",
            "Free vCPUs for machines and runs",
            load.free.cpus,
        ),
        ("vcpus", "vCPUs for machines and runs", capacity.cpus),
        ("vmms_ready", "VMMs that wait for a program", ready as u64),
        (
            "vmms_warm",
            "VMMs that wait for another run from a snapshot",
            warm as u64,
        ),
        (
            "unwritten_ends",
            "Ends of machines and runs that wait for room on the disk",
            waiting_ends as u64,
        ),
        (
            "webhooks_waiting",
            "Webhooks that wait for their receivers",
            waiting_webhooks,
        ),
        ("images", "Translation images, each tenant's", images),
        ("image_bytes", "Bytes of translation images", image_bytes),
    ] {
        registry.register(name, help, ConstGauge::new(value));
    }
    if let Some(Disk { size, free }) = disk {
        let help = "Size of the file system of the data directory";
        registry.register("disk_size_bytes", help, ConstGauge::new(size));
        let help = "Free bytes of the file system of the data directory";
        registry.register("disk_free_bytes", help, ConstGauge::new(free));
    }
}
