//! Tenants, their quotas and their keys.

use super::Refused;
use super::extract::{Caller, Json, Path};
use crate::Daemon;
use crate::ledger::Resource;
use crate::problem::Problem;
use crate::store::{ApiKey, DEFAULT_TENANT, DeletedTenant, Quota, Scope, Tenant};
use crate::usage::Use;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const MAX_NAME: usize = 63;
const MAX_LABEL: usize = 256;

/// Checks the name of a tenant: as a DNS label.
fn check_name(name: &str) -> Result<(), Problem> {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(valid) {
        let rule = "1 to 63 lower-case letters, digits and hyphens";
        return Err(Problem::field("tenant", rule));
    }
    Ok(())
}

/// List all tenants
#[utoipa::path(get, path = "/v1/tenants",
    operation_id = "list_tenants",
    responses((status = 200, description = "The tenants, by name", body = [Tenant]), Refused))]
pub async fn list(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
) -> Result<Json<Vec<Tenant>>, Problem> {
    caller.needs(Scope::Admin)?;
    Ok(Json(daemon.store.tenants()?))
}

/// Get a tenant with its quota
#[utoipa::path(get, path = "/v1/tenants/{tenant}",
    operation_id = "get_tenant", params(("tenant" = String, Path)),
    responses((status = 200, description = "The tenant", body = Tenant), Refused))]
pub async fn get(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(tenant): Path<String>,
) -> Result<Json<Tenant>, Problem> {
    if tenant != caller.tenant {
        caller.needs(Scope::Admin)?;
    }
    let tenant = daemon.store.tenant(&tenant)?;
    tenant.map(Json).ok_or_else(|| Problem::not_found("tenant"))
}

/// Get the resources that a tenant uses, and their limits
///
/// A key without the scope `admin` shows only its own tenant.
#[utoipa::path(get, path = "/v1/tenants/{tenant}/usage",
    operation_id = "get_tenant_usage", params(("tenant" = String, Path)),
    responses((status = 200, description = "The resources", body = [Use]), Refused))]
pub async fn usage(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(tenant): Path<String>,
) -> Result<Json<Vec<Use>>, Problem> {
    if tenant != caller.tenant {
        caller.needs(Scope::Admin)?;
    }
    let tenant = daemon.store.tenant(&tenant)?;
    let tenant = tenant.ok_or_else(|| Problem::not_found("tenant"))?;
    Ok(Json(daemon.usage(&tenant)?))
}

/// Create a tenant, or change its quota
#[utoipa::path(put, path = "/v1/tenants/{tenant}", operation_id = "set_tenant",
    params(("tenant" = String, Path, pattern = "^[a-z0-9-]{1,63}$")),
    request_body = Quota,
    responses((status = 200, description = "The tenant", body = Tenant), Refused))]
pub async fn put(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(tenant): Path<String>,
    Json(quota): Json<Quota>,
) -> Result<Json<Tenant>, Problem> {
    caller.needs(Scope::Admin)?;
    check_name(&tenant)?;
    if !(1..=10_000).contains(&quota.weight) {
        return Err(Problem::field("weight", "must be from 1 to 10000"));
    }
    for (name, value, most) in [
        ("max_machines", quota.max_machines.into(), 1_000_000),
        ("max_queued", quota.max_queued.into(), 1_000_000),
        ("max_memory", quota.max_memory, 1 << 50),
        ("max_storage", quota.max_storage, 1 << 50),
        ("max_inodes", quota.max_inodes, 1 << 40),
    ] {
        if value > most {
            return Err(Problem::field(name, format!("must be at most {most}")));
        }
    }
    // The transaction waits for the disk.
    let put = || daemon.store.put_tenant(&tenant, &quota);
    Ok(Json(tokio::task::block_in_place(put)?))
}

/// Delete a tenant that has no machines, runs, programs and volumes, with its keys
#[utoipa::path(delete, path = "/v1/tenants/{tenant}", operation_id = "delete_tenant",
    params(("tenant" = String, Path)),
    responses((status = 204, description = "The tenant is deleted"), Refused))]
pub async fn delete(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(tenant): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.needs(Scope::Admin)?;
    if tenant == DEFAULT_TENANT {
        let detail = format!("the tenant {DEFAULT_TENANT} always exists");
        return Err(Problem::conflict("default-tenant", detail));
    }
    daemon.warm.forget_tenant(&tenant);
    let is_running = daemon.ledger.used(&tenant, Resource::Runs) > 0;
    // The transaction waits for the disk.
    let delete = || match is_running {
        true => Ok(DeletedTenant::InUse),
        false => daemon.library.delete_tenant(&tenant),
    };
    match tokio::task::block_in_place(delete)? {
        DeletedTenant::Deleted => {
            daemon.networks.forget(&tenant);
            daemon.metrics.forget_tenant(&tenant);
            Ok(StatusCode::NO_CONTENT)
        }
        DeletedTenant::InUse => {
            let detail = "the tenant has machines, runs, programs, volumes or snapshots: delete them \
                first";
            Err(Problem::conflict("tenant-in-use", detail))
        }
        DeletedTenant::Missing => Err(Problem::not_found("tenant")),
    }
}

/// List the keys of a tenant, without their secrets
#[utoipa::path(get, path = "/v1/tenants/{tenant}/keys",
    operation_id = "list_keys", params(("tenant" = String, Path)),
    responses((status = 200, description = "The keys, without their secrets",
        body = [ApiKey]), Refused))]
pub async fn keys(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(tenant): Path<String>,
) -> Result<Json<Vec<ApiKey>>, Problem> {
    caller.needs(Scope::Admin)?;
    if daemon.store.tenant(&tenant)?.is_none() {
        return Err(Problem::not_found("tenant"));
    }
    Ok(Json(daemon.store.keys(&tenant)?))
}

/// A request for a key.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"scope": "write", "label": "builds"}))]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// Rights of the key.
    scope: Scope,
    /// Label of the key.
    #[serde(default)]
    #[schema(max_length = 256)]
    label: String,
}

/// A new key.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct KeyMade {
    /// The key's entry in the database.
    #[serde(flatten)]
    kept: ApiKey,
    /// The key itself. The daemon shows it only once.
    key: String,
}

/// Create a key for a tenant
#[utoipa::path(post, path = "/v1/tenants/{tenant}/keys",
    operation_id = "create_key", params(("tenant" = String, Path)),
    request_body = KeyRequest,
    responses((status = 201, description = "The key, whose secret is shown only here",
        body = KeyMade), Refused))]
pub async fn create_key(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(tenant): Path<String>,
    Json(request): Json<KeyRequest>,
) -> Result<(StatusCode, Json<KeyMade>), Problem> {
    caller.needs(Scope::Admin)?;
    if request.label.len() > MAX_LABEL {
        return Err(Problem::field("label", "must be at most 256 bytes"));
    }
    if daemon.store.tenant(&tenant)?.is_none() {
        return Err(Problem::not_found("tenant"));
    }
    let (scope, label) = (request.scope, &request.label);
    // The transaction waits for the disk.
    let make = || daemon.keys.make(&daemon.store, &tenant, scope, label);
    let (kept, key) = tokio::task::block_in_place(make)?;
    Ok((StatusCode::CREATED, Json(KeyMade { kept, key })))
}

/// Revoke a key
#[utoipa::path(delete, path = "/v1/tenants/{tenant}/keys/{key}", operation_id = "delete_key",
    params(("tenant" = String, Path), ("key" = String, Path)),
    responses((status = 204, description = "The key is deleted"), Refused))]
pub async fn delete_key(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path((tenant, key)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    caller.needs(Scope::Admin)?;
    // The transaction waits for the disk.
    match tokio::task::block_in_place(|| daemon.store.delete_key(&tenant, &key))? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("key")),
    }
}
