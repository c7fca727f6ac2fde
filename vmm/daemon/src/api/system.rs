//! Health, version, metrics, figures of the last hour and events.

use super::Refused;
use super::extract::{Caller, Query};
use crate::Daemon;
use crate::events::Event;
use crate::history::Sample;
use crate::metrics::{Disk, Scrape, TenantFigures};
use crate::problem::Problem;
use crate::store::{RESERVE, Scope, Tenant};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;

/// Check that the daemon answers
#[utoipa::path(get, path = "/healthz",
    operation_id = "get_health", security(()),
    responses((status = 200, description = "The daemon answers", body = String)))]
pub async fn health() -> &'static str {
    "ok\n"
}

/// Whether the daemon can run programs.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Readiness {
    /// Whether a VMM is ready, or will be soon.
    ready: bool,
    /// VMMs that are ready.
    vmms_ready: usize,
    /// Whether cgroup limits are enforced.
    limits_enforced: bool,
    /// The reason if not; otherwise empty.
    limits: String,
    /// Whether tenants are kept off each other's cores (`core_scheduling`).
    core_scheduling: bool,
    /// The reason if not; otherwise empty.
    cores: String,
    /// Whether tenants can have networks.
    networks_available: bool,
    /// The reason if not; otherwise empty.
    networks: String,
    /// Whether the disk of the data directory has room.
    storage_available: bool,
    /// Why not; empty if it has.
    storage: String,
}

/// Check whether the daemon can run programs
///
/// Needs a key, unless the configuration has `public_health`.
#[utoipa::path(get, path = "/readyz", operation_id = "get_readiness",
    responses((status = 200, description = "The daemon can run programs", body = Readiness),
    (status = 503, description = "The daemon cannot run programs", body = Readiness), Refused))]
pub async fn ready(
    State(daemon): State<Arc<Daemon>>,
    caller: Result<Caller, Problem>,
) -> Result<Response, Problem> {
    if !daemon.config().public_health {
        caller?.needs(Scope::Read)?;
    }
    let vmms_ready = daemon.pool.ready();
    let running = daemon.scheduler.load().running;
    let networks = daemon.networks.check().err();
    let storage = lacking_storage(&daemon);
    let readiness = Readiness {
        // Under load all VMMs are in use.
        ready: (vmms_ready > 0 || running > 0) && storage.is_none(),
        vmms_ready,
        limits_enforced: daemon.unenforced.is_none(),
        limits: daemon
            .unenforced
            .as_ref()
            .map_or_else(String::new, ToString::to_string),
        core_scheduling: daemon.no_cores.is_none(),
        cores: daemon
            .no_cores
            .as_ref()
            .map_or_else(String::new, ToString::to_string),
        networks_available: networks.is_none(),
        networks: networks.map_or_else(String::new, |why| why.to_string()),
        storage_available: storage.is_none(),
        storage: storage.unwrap_or_default(),
    };
    let status = match readiness.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok((status, axum::Json(readiness)).into_response())
}

/// Why the disk of the data directory has no room; `None` if it has.
fn lacking_storage(daemon: &Daemon) -> Option<String> {
    let waiting = daemon.store.waiting_ends();
    if waiting > 0 {
        return Some(format!(
            "the disk is full: the ends of {waiting} machines and runs wait for room"
        ));
    }
    let disk = rustix::fs::statvfs(&daemon.config().data_dir);
    // A disk that says nothing about itself is not full.
    let free = disk.map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    let is_full = !daemon.store.has_reserve() || free < RESERVE;
    is_full.then(|| "the disk is full".to_owned())
}

/// Version of the daemon.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Version {
    /// Version of the daemon.
    version: &'static str,
    /// Version of the translator: images of other versions are not used.
    translator: &'static str,
}

/// Get the version of the daemon
#[utoipa::path(get, path = "/version",
    operation_id = "get_version", security(()),
    responses((status = 200, description = "The version", body = Version)))]
pub async fn version() -> axum::Json<Version> {
    axum::Json(Version {
        version: env!("CARGO_PKG_VERSION"),
        translator: hartline_aot::key::TRANSLATOR_VERSION,
    })
}

/// The owner of a key.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Identity {
    /// Name of the tenant.
    tenant: String,
    /// Rights of the key.
    scope: Scope,
}

/// Get the tenant and the rights of the key that the request is made with
#[utoipa::path(get, path = "/v1/identity", operation_id = "get_identity",
    responses((status = 200, description = "The tenant and the rights", body = Identity), Refused))]
pub async fn identity(caller: Caller) -> axum::Json<Identity> {
    axum::Json(Identity {
        tenant: caller.tenant,
        scope: caller.scope,
    })
}

/// The requested figures of the last hour.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Since {
    /// Only samples after this time, milliseconds since 1970.
    #[serde(default)]
    #[param(minimum = 0)]
    after_ms: i64,
    /// Only figures of this tenant. A key without the scope `admin` shows only its own tenant.
    tenant: Option<String>,
}

/// Get figures of the last hour, one sample for each ten seconds
///
/// Without `tenant`, a key of the scope `admin` gets the sums of all tenants, and another key those of its
/// own tenant. The samples are in the daemon's memory: they begin with its start.
#[utoipa::path(get, path = "/v1/history", operation_id = "get_history", params(Since),
    responses((status = 200, description = "The samples, the oldest first", body = [Sample]),
    Refused))]
pub async fn history(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Query(since): Query<Since>,
) -> Result<axum::Json<Vec<Sample>>, Problem> {
    if since.after_ms < 0 {
        return Err(Problem::field("after_ms", "must not be negative"));
    }
    let own = caller.tenant.as_str();
    let tenant = match since.tenant.as_deref() {
        None if caller.needs(Scope::Admin).is_ok() => None,
        None => Some(own),
        Some(tenant) if tenant == own => Some(own),
        Some(tenant) => {
            caller.needs(Scope::Admin)?;
            let found = daemon.store.tenant(tenant)?;
            found.ok_or_else(|| Problem::not_found("tenant"))?;
            Some(tenant)
        }
    };
    let history = daemon.metrics.history();
    Ok(axum::Json(history.samples(tenant, since.after_ms)))
}

/// Get metrics for Prometheus
///
/// Needs a key with the scope `admin`. If the configuration has `public_health`, other clients get
/// the metrics without figures of single tenants.
#[utoipa::path(get, path = "/metrics", operation_id = "get_metrics",
    responses((status = 200, description = "The metrics",
        content_type = "application/openmetrics-text",
        body = String), Refused))]
pub async fn metrics(
    State(daemon): State<Arc<Daemon>>,
    caller: Result<Caller, Problem>,
) -> Result<Response, Problem> {
    let may_see_tenants = caller.and_then(|caller| caller.needs(Scope::Admin));
    let tenants = match may_see_tenants {
        Ok(()) => Some(figures(&daemon)?),
        Err(_) if daemon.config().public_health => None,
        Err(problem) => return Err(problem),
    };
    let now = Scrape {
        load: daemon.scheduler.load(),
        capacity: daemon.scheduler.capacity(),
        ready: daemon.pool.ready(),
        warm: daemon.warm.waiting(),
        disk: Disk::of(&daemon.config().data_dir),
        waiting_ends: daemon.store.waiting_ends(),
        waiting_webhooks: daemon.store.waiting_deliveries()?,
        images: daemon.store.image_totals()?,
    };
    let text = daemon.metrics.text(now, tenants);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = text.map_err(Problem::internal)?;
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// The figures of all tenants.
fn figures(daemon: &Daemon) -> Result<Vec<TenantFigures>, Problem> {
    let mut machines: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for (tenant, kind, state, count) in daemon.store.machine_counts()? {
        let of_tenant = machines.entry(tenant).or_default();
        of_tenant.push((kind.name(), state, count));
    }
    let totals = daemon.store.snapshot_totals()?.into_iter();
    let totals = totals.map(|(tenant, count, bytes)| (tenant, (count, bytes)));
    let snapshots: BTreeMap<String, (u64, u64)> = totals.collect();
    let figures = |tenant: Tenant| {
        Ok(TenantFigures {
            used: daemon.usage(&tenant)?,
            machines: machines.remove(&tenant.name).unwrap_or_default(),
            snapshots: snapshots.get(&tenant.name).copied().unwrap_or_default(),
            tenant: tenant.name,
        })
    };
    daemon.store.tenants()?.into_iter().map(figures).collect()
}

/// Follow the state changes of machines and snapshots
///
/// A stream of server-sent events named `machine` and `snapshot`. If the reader is too slow, an event named
/// `missed` has the number of lost events.
#[utoipa::path(get, path = "/v1/events", operation_id = "watch_events",
    responses((status = 200, description = "The events, as they happen",
        content_type = "text/event-stream",
        body = Event),
        (status = 401, description = "There is no valid key",
        body = Problem,
        content_type = "application/problem+json")))]
pub async fn events(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
) -> Result<Sse<impl Stream<Item = Result<axum::response::sse::Event, Infallible>>>, Problem> {
    caller.needs(Scope::Read)?;
    let start = daemon.events.subscribe(&caller.tenant);
    let events = stream::unfold(start, async |mut receiver| {
        let event = axum::response::sse::Event::default();
        let event = match receiver.recv().await {
            // An event always serializes to JSON.
            Ok(happened) => event
                .event(happened.name())
                .json_data(happened)
                .unwrap_or_default(),
            Err(RecvError::Lagged(count)) => event.event("missed").data(count.to_string()),
            Err(RecvError::Closed) => return None,
        };
        Some((Ok(event), receiver))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
