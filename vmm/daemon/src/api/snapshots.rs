//! Snapshots of machines.

use super::Refused;
use super::extract::{Json, Target};
use super::lookup::{check_name, find as find_machine};
use super::pages::{List, Listed, Page};
use crate::problem::Problem;
use crate::store::{KeptSnapshot, Kind, Store};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

/// A snapshot as the API shows it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct SnapshotView {
    /// Its id.
    id: String,
    /// Its name, if it has one.
    name: Option<String>,
    /// Id of the machine that it was made of, which may be gone.
    machine: String,
    /// Id of the program.
    program: String,
    /// Memory of machines that continue it, bytes.
    memory: u64,
    /// Bytes of its files on the disk. They count toward the tenant's quota.
    size: u64,
    /// Creation time, milliseconds since 1970.
    created_ms: i64,
}

impl From<KeptSnapshot> for SnapshotView {
    fn from(snapshot: KeptSnapshot) -> Self {
        Self {
            id: snapshot.id,
            name: snapshot.name,
            machine: snapshot.machine,
            program: snapshot.spec.program,
            memory: snapshot.spec.memory,
            size: snapshot.size,
            created_ms: snapshot.created_ms,
        }
    }
}

/// A snapshot to make.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"name": "warm"}))]
#[serde(deny_unknown_fields)]
pub struct SnapshotRequest {
    /// Name of the snapshot, which no other snapshot of the tenant has. It may be given wherever an
    /// id may. It has a character that is no digit of ids.
    #[serde(default)]
    #[schema(
        max_length = 63,
        pattern = "^([A-Zg-z_][A-Za-z0-9_.-]*|[0-9a-f]+[A-Zg-z_.-][A-Za-z0-9_.-]*)$"
    )]
    name: Option<String>,
}

/// Make a snapshot of a running machine, which goes on
///
/// Machines and runs can continue it, any number of times. The machine has no volumes, terminal or secrets, and no
/// processes that were started in it. While the snapshot is made, it counts toward the
/// tenant's quota with all the memory of the machine.
#[utoipa::path(post, path = "/v1/machines/{id}/snapshots",
    operation_id = "create_snapshot", params(("id" = String, Path)),
    request_body = SnapshotRequest,
    responses((status = 201, description = "The snapshot", body = SnapshotView), Refused,
    (status = "5XX", description = "The disk is full, or the daemon has failed", body = Problem,
        content_type = "application/problem+json")))]
pub async fn create(
    target: Target,
    Json(request): Json<SnapshotRequest>,
) -> Result<(StatusCode, axum::Json<SnapshotView>), Problem> {
    let machine = find_machine(&target, Kind::Machine)?;
    request.name.as_deref().map_or(Ok(()), check_name)?;
    let made = target.daemon.machines.snapshot(&machine, request.name);
    Ok((StatusCode::CREATED, axum::Json(made.await?.into())))
}

/// List the tenant's snapshots, by id
#[utoipa::path(get, path = "/v1/snapshots", operation_id = "list_snapshots", params(Page),
    responses((status = 200, description = "The snapshots, by id", body = [SnapshotView],
        headers(("Link" = String, description = "The next page, if there is one (rel=next)"))),
    Refused))]
pub async fn list(list: List<Page>) -> Result<Listed<SnapshotView>, Problem> {
    let find = |store: &Store, tenant: &str, after: &str, limit| {
        let found = store.snapshots(tenant, after, limit)?;
        Ok(found.into_iter().map(SnapshotView::from).collect())
    };
    list.page(find, |snapshot: &SnapshotView| &snapshot.id)
}

/// Get a snapshot
#[utoipa::path(get, path = "/v1/snapshots/{id}",
    operation_id = "get_snapshot", params(("id" = String, Path)),
    responses((status = 200, description = "The snapshot", body = SnapshotView), Refused))]
pub async fn get(target: Target) -> Result<axum::Json<SnapshotView>, Problem> {
    Ok(axum::Json(find(&target)?.into()))
}

/// Finds the caller's snapshot. Those of other tenants are not found.
fn find(target: &Target) -> Result<KeptSnapshot, Problem> {
    let found = target.daemon.store.snapshot(&target.id)?;
    let own = found.filter(|snapshot| snapshot.tenant == target.caller.tenant);
    own.ok_or_else(|| Problem::not_found("snapshot"))
}

/// Delete a snapshot that no machine continues
#[utoipa::path(delete, path = "/v1/snapshots/{id}",
    operation_id = "delete_snapshot", params(("id" = String, Path)),
    responses((status = 204, description = "The snapshot is deleted"), Refused))]
pub async fn delete(target: Target) -> Result<StatusCode, Problem> {
    let snapshot = find(&target)?;
    let snapshots = &target.daemon.snapshots;
    let delete = || snapshots.delete(&snapshot);
    match tokio::task::block_in_place(delete)? {
        true => {
            target.daemon.warm.forget_snapshot(&snapshot.id);
            Ok(StatusCode::NO_CONTENT)
        }
        false => {
            let detail = "machines or kept runs continue this snapshot: delete them first";
            Err(Problem::conflict("snapshot-in-use", detail))
        }
    }
}
