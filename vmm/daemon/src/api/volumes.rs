//! Volumes: directories that outlast machines.

use super::Refused;
use super::extract::{Caller, Json, Target};
use super::pages::{List, Listed, Page};
use super::spec::{VOLUME_NAME, is_volume_name};
use crate::Daemon;
use crate::integer;
use crate::problem::Problem;
use crate::store::{Scope, Spec, Storage, Store, Volume};
use axum::extract::State;
use axum::http::StatusCode;
use hartline_devices::volume::cost;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;

const MIN_SIZE: u64 = 1 << 20;
const MAX_SIZE: u64 = 1 << 40;
const MAX_INODES: u64 = MAX_SIZE / cost::NODE;

/// Refuses volumes that the caller does not have, and volumes that occur twice.
///
/// # Errors
/// [`Problem`] with the fault.
pub(super) fn check_mounts(daemon: &Daemon, caller: &Caller, spec: &Spec) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    for mount in &spec.volumes {
        if daemon
            .store
            .volume(&caller.tenant, &mount.volume)?
            .is_none()
        {
            return Err(Problem::not_found("volume"));
        }
        if !seen.insert(&mount.volume) || !seen.insert(&mount.path) {
            let detail = "each volume and each path may be there once";
            return Err(Problem::conflict("volume-twice", detail));
        }
    }
    Ok(())
}

/// List the tenant's volumes, by name
#[utoipa::path(get, path = "/v1/volumes", operation_id = "list_volumes", params(Page),
    responses((status = 200, description = "The volumes, by name", body = [Volume],
        headers(("Link" = String, description = "The next page, if there is one (rel=next)"))),
    Refused))]
pub async fn list(list: List<Page>) -> Result<Listed<Volume>, Problem> {
    list.page(Store::volumes, |volume| &volume.name)
}

/// A request for a volume.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"name": "data", "size": 104857600}))]
#[serde(deny_unknown_fields)]
pub struct VolumeRequest {
    /// Name of the volume.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,62}$")]
    name: String,
    /// Size limit, bytes. It counts toward the tenant's quota, used or not.
    #[serde(deserialize_with = "integer::unsigned")]
    #[schema(minimum = 1048576, maximum = 1099511627776i64)]
    size: u64,
    /// Limit of files, directories and links; the default, and the maximum, is as many as fit the
    /// size. They count toward the tenant's quota too.
    #[serde(default, deserialize_with = "integer::optional")]
    #[schema(minimum = 1, maximum = 268435456)]
    inodes: Option<u64>,
}

/// Create an empty volume
#[utoipa::path(post, path = "/v1/volumes",
    operation_id = "create_volume",
    request_body = VolumeRequest,
    responses((status = 201, description = "The volume", body = Volume), Refused))]
pub async fn create(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<VolumeRequest>,
) -> Result<(StatusCode, axum::Json<Volume>), Problem> {
    caller.needs(Scope::Write)?;
    if !is_volume_name(&request.name) {
        return Err(Problem::field("name", VOLUME_NAME));
    }
    if !(MIN_SIZE..=MAX_SIZE).contains(&request.size) {
        let rule = format!("must be from {MIN_SIZE} to {MAX_SIZE} bytes");
        return Err(Problem::field("size", rule));
    }
    if request
        .inodes
        .is_some_and(|n| !(1..=MAX_INODES).contains(&n))
    {
        let rule = format!("must be from 1 to {MAX_INODES}");
        return Err(Problem::field("inodes", rule));
    }
    // Each inode costs that much of the size.
    let most = request.size / cost::NODE;
    let inodes = request.inodes.map_or(most, |inodes| inodes.min(most));
    let volumes = &daemon.volumes;
    let size = Storage {
        bytes: request.size,
        inodes,
    };
    let make = || volumes.create(&caller.tenant, &request.name, size);
    // The transaction waits for the disk.
    let volume = tokio::task::block_in_place(make)?;
    Ok((StatusCode::CREATED, axum::Json(volume)))
}

/// Get a volume
#[utoipa::path(get, path = "/v1/volumes/{name}",
    operation_id = "get_volume", params(("name" = String, Path)),
    responses((status = 200, description = "The volume", body = Volume), Refused))]
pub async fn get(target: Target) -> Result<axum::Json<Volume>, Problem> {
    find(&target).map(axum::Json)
}

fn find(target: &Target) -> Result<Volume, Problem> {
    let store = &target.daemon.store;
    let volume = store.volume(&target.caller.tenant, &target.id)?;
    volume.ok_or_else(|| Problem::not_found("volume"))
}

/// Delete a volume that no machine uses, with its contents
///
/// If there are many files, their deletion continues after the answer. The volume counts toward
/// the tenant's quota until they are gone.
#[utoipa::path(delete, path = "/v1/volumes/{name}",
    operation_id = "delete_volume", params(("name" = String, Path)),
    responses((status = 204, description = "The volume is deleted"), Refused))]
pub async fn delete(target: Target) -> Result<StatusCode, Problem> {
    find(&target)?;
    let volumes = &target.daemon.volumes;
    match volumes.delete(&target.caller.tenant, &target.id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => {
            let detail = "machines have this volume: delete them first";
            Err(Problem::conflict("volume-in-use", detail))
        }
    }
}
