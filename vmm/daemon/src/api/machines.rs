//! Machines.

use super::Refused;
use super::extract::{Asked, Caller, Excess, Json, Query, Target};
use super::lookup::{
    check_name, check_network, find, find_program, find_snapshot, idempotency_key, insert,
    start_new, wait_for_end,
};
use super::pages::{List, Listed, Which};
use super::secrets::find_uses;
use super::spec::check_spec;
use super::volumes::check_mounts;
use super::webhooks::check_sent;
use crate::Daemon;
use crate::execute::path_in_tree;
use crate::integer;
use crate::jailed::protocol::CoreFile;
use crate::machines::{MachineError, Machines};
use crate::problem::Problem;
use crate::store::{Kind, Machine, MachineState, Port, Scope, Spec, Webhook};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A machine as the API shows it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct MachineView {
    /// Its id.
    id: String,
    /// Its name, if it has one.
    name: Option<String>,
    /// The program, its arguments and its limits.
    spec: Spec,
    /// State of the machine.
    state: MachineState,
    /// Exit code of its program.
    exit_code: Option<u8>,
    /// Number of restarts by its policy since a client started it.
    restarts: u32,
    /// Its address in the network of its tenant, while it runs there.
    #[schema(value_type = Option<String>, format = "ipv4")]
    address: Option<Ipv4Addr>,
    /// Its IPv6 address in the network of its tenant, if the network has IPv6.
    #[schema(value_type = Option<String>, format = "ipv6")]
    address6: Option<Ipv6Addr>,
    /// The error that ended it; empty if there was none.
    message: String,
    /// The core dump of its last end, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    core: Option<CoreFile>,
    /// Time at which it was made, milliseconds since 1970.
    created_ms: i64,
    /// Time of its last start.
    started_ms: Option<i64>,
    /// Time of its last end.
    ended_ms: Option<i64>,
}

impl MachineView {
    /// The current view of a machine.
    pub(super) fn new(daemon: &Daemon, machine: Machine) -> Self {
        let address = machine.address.filter(|_| machine.state.has_started());
        Self {
            id: machine.id,
            name: machine.name,
            spec: machine.spec,
            state: machine.state,
            address,
            address6: address.and_then(|address| daemon.networks.second(&machine.tenant, address)),
            exit_code: machine.result.as_ref().map(|result| result.code),
            core: machine.result.and_then(|result| result.core),
            restarts: machine.restarts,
            message: machine.message,
            created_ms: machine.created_ms,
            started_ms: machine.started_ms,
            ended_ms: machine.ended_ms,
        }
    }
}

type Answer = Result<axum::Json<MachineView>, Problem>;

/// List the tenant's machines, by id
#[utoipa::path(get, path = "/v1/machines", operation_id = "list_machines", params(Which),
    responses((status = 200, description = "The machines, by id", body = [MachineView],
        headers(("Link" = String, description = "The next page, if there is one (rel=next)"))),
    Refused))]
pub async fn list(list: List<Which>) -> Result<Listed<MachineView>, Problem> {
    list.page(Kind::Machine, MachineView::new, |view| &view.id)
}

/// A machine to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"program": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    "name": "web-1", "args": ["serve"], "labels": {"app": "web"}, "start": true}))]
#[serde(try_from = "Map<String, Value>")]
pub struct MachineRequest {
    #[serde(flatten)]
    pub(super) spec: Spec,
    /// A field that a request with a snapshot must not have.
    #[schema(ignore)]
    excess: Option<Excess>,
    /// Name of the machine, which no other machine of the tenant has. It may be given wherever an id
    /// may. It has a character that is no digit of ids.
    #[schema(
        required = false,
        max_length = 63,
        pattern = "^([A-Zg-z_][A-Za-z0-9_.-]*|[0-9a-f]+[A-Zg-z_.-][A-Za-z0-9_.-]*)$"
    )]
    name: Option<String>,
    /// Start the machine too.
    #[schema(required = false)]
    start: bool,
}

/// A machine to be made that continues a snapshot.
#[derive(utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only described: MachineRequest is read")]
struct MachineOfSnapshot {
    /// Id of the snapshot, a unique begin of it, or the snapshot's name.
    #[schema(min_length = 1, max_length = 63)]
    snapshot: String,
    /// Name of the machine, as of any machine.
    #[schema(
        required = false,
        max_length = 63,
        pattern = "^([A-Zg-z_][A-Za-z0-9_.-]*|[0-9a-f]+[A-Zg-z_.-][A-Za-z0-9_.-]*)$"
    )]
    name: Option<String>,
    /// Start the machine too.
    #[schema(required = false)]
    start: bool,
    /// Labels of the machine.
    #[schema(required = false)]
    labels: BTreeMap<String, String>,
    /// Keep standard input open for clients that attach; otherwise it is empty.
    #[schema(required = false)]
    interactive: bool,
    /// TCP ports of the host whose connections lead to ports of the machine, if the snapshot's machine
    /// was in the network of its tenant.
    #[schema(required = false, max_items = 16)]
    ports: Vec<Port>,
    /// Delete the machine ten seconds after its end.
    #[schema(required = false)]
    auto_remove: bool,
    /// Suspend the machine when it has been idle for so many seconds.
    #[schema(required = false, minimum = 1, maximum = 2592000)]
    idle_timeout_s: u64,
    /// The receiver of the message that the program of the machine has ended.
    #[schema(required = false)]
    webhook: Webhook,
}

/// A machine that starts a program, or continues a snapshot.
#[derive(utoipa::ToSchema)]
#[schema(example = json!({"snapshot": "warm", "name": "web-2", "start": true}))]
#[serde(untagged)]
#[expect(dead_code, reason = "only described")]
enum MachineBody {
    Program(Box<MachineRequest>),
    Snapshot(MachineOfSnapshot),
}

impl TryFrom<Map<String, Value>> for MachineRequest {
    type Error = String;

    /// Unlike serde's `flatten`, this refuses unknown fields.
    fn try_from(mut object: Map<String, Value>) -> Result<Self, Self::Error> {
        let start = match object.remove("start") {
            None => false,
            Some(Value::Bool(start)) => start,
            Some(_) => return Err("start: must be true or false".to_owned()),
        };
        let name = match object.remove("name") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name),
            Some(_) => return Err("name: must be a string".to_owned()),
        };
        let Asked { spec, excess } = Asked::new(object)?;
        Ok(Self {
            spec,
            excess,
            name,
            start,
        })
    }
}

/// Create a machine, and start it on request
///
/// A repeated request with the same `Idempotency-Key` does not create a second machine.
#[utoipa::path(post, path = "/v1/machines",
    operation_id = "create_machine",
    request_body = MachineBody,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255)),
    responses((status = 201, description = "The machine, which is new", body = MachineView),
    (status = 200, description = "The machine that a request with this key made earlier",
        body = MachineView), Refused))]
pub async fn create(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    headers: HeaderMap,
    Json(mut request): Json<MachineRequest>,
) -> Result<(StatusCode, axum::Json<MachineView>), Problem> {
    caller.needs(Scope::Write)?;
    check_spec(&request.spec)?;
    let name = request.name.as_deref();
    name.map_or(Ok(()), check_name)?;
    let key = idempotency_key(&headers)?;
    find_snapshot(&daemon, &caller, (&mut request.spec, request.excess))?;
    let program = find_program(&daemon, &caller, &mut request.spec)?;
    // Without a name as in earlier versions, which hashed the same.
    let extra = match name {
        None => json!(request.start),
        Some(name) => json!([request.start, name]),
    };
    check_mounts(&daemon, &caller, &request.spec)?;
    find_uses(&daemon, &caller, &request.spec)?;
    check_sent(&daemon, &request.spec)?;
    check_network(&daemon, &request.spec)?;
    path_in_tree(&request.spec, &program)?;
    let make = || -> Result<_, Problem> {
        // Queued from the start: if the daemon ends now, the next one finds the machine queued.
        let state = match request.start {
            true => MachineState::Queued,
            false => MachineState::Created,
        };
        let kind = (Kind::Machine, name, state);
        match insert(&daemon, &caller, kind, &request.spec, (&extra, 0), key)? {
            (machine, false) => Ok((StatusCode::OK, machine)),
            (machine, true) => {
                daemon.events.publish(&machine);
                let machine = match request.start {
                    true => start_new(&daemon, &machine)?,
                    false => machine,
                };
                Ok((StatusCode::CREATED, machine))
            }
        }
    };
    let _turn = daemon.repeats.enter(&caller.tenant, key).await;
    // The transaction waits for the disk.
    let (status, machine) = tokio::task::block_in_place(make)?;
    Ok((status, axum::Json(MachineView::new(&daemon, machine))))
}

/// Get a machine
#[utoipa::path(get, path = "/v1/machines/{id}",
    operation_id = "get_machine", params(("id" = String, Path)),
    responses((status = 200, description = "The machine", body = MachineView), Refused))]
pub async fn get(target: Target) -> Answer {
    show(&target)
}

fn show(target: &Target) -> Answer {
    let machine = find(target, Kind::Machine)?;
    Ok(axum::Json(MachineView::new(&target.daemon, machine)))
}

/// Delete a machine that is not running, with its output, and with its memory if it is suspended
#[utoipa::path(delete, path = "/v1/machines/{id}",
    operation_id = "delete_machine", params(("id" = String, Path)),
    responses((status = 204, description = "The machine is deleted"), Refused))]
pub async fn delete(target: Target) -> Result<StatusCode, Problem> {
    let machine = find(&target, Kind::Machine)?;
    tokio::task::block_in_place(|| target.daemon.machines.delete(&machine))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Does an action with a machine, and shows the machine afterwards.
fn act(
    target: &Target,
    action: impl FnOnce(&Arc<Machines>, Machine) -> Result<(), MachineError>,
) -> Answer {
    let machine = find(target, Kind::Machine)?;
    // The transaction waits for the disk.
    tokio::task::block_in_place(|| action(&target.daemon.machines, machine))?;
    show(target)
}

/// Start a machine, or restart one that has ended; a suspended one goes on where it stopped
#[utoipa::path(post, path = "/v1/machines/{id}/start",
    operation_id = "start_machine", params(("id" = String, Path)),
    responses((status = 200, description = "The machine", body = MachineView), Refused))]
pub async fn start(target: Target) -> Answer {
    act(&target, |machines, machine| {
        machines.start(&machine).map(drop)
    })
}

/// Stop a machine: send `SIGTERM` to its program, and kill it two seconds later
#[utoipa::path(post, path = "/v1/machines/{id}/stop",
    operation_id = "stop_machine", params(("id" = String, Path)),
    responses((status = 200, description = "The machine", body = MachineView), Refused))]
pub async fn stop(target: Target) -> Answer {
    act(&target, |machines, machine| machines.stop(&machine))
}

/// Kill a machine
#[utoipa::path(post, path = "/v1/machines/{id}/kill",
    operation_id = "kill_machine", params(("id" = String, Path)),
    responses((status = 200, description = "The machine", body = MachineView), Refused))]
pub async fn kill(target: Target) -> Answer {
    act(&target, |machines, machine| machines.kill(&machine))
}

/// Pause a running machine: it gets no CPU time
#[utoipa::path(post, path = "/v1/machines/{id}/pause",
    operation_id = "pause_machine", params(("id" = String, Path)),
    responses((status = 200, description = "The machine", body = MachineView), Refused))]
pub async fn pause(target: Target) -> Answer {
    act(&target, |machines, machine| {
        machines.set_paused(machine, true)
    })
}

/// Resume a paused machine
#[utoipa::path(post, path = "/v1/machines/{id}/resume",
    operation_id = "resume_machine", params(("id" = String, Path)),
    responses((status = 200, description = "The machine", body = MachineView), Refused))]
pub async fn resume(target: Target) -> Answer {
    act(&target, |machines, machine| {
        machines.set_paused(machine, false)
    })
}

/// Suspend a running machine: its memory is on the disk until it is started, and then goes on
///
/// Answers when it is suspended. If it cannot be, it goes on.
#[utoipa::path(post, path = "/v1/machines/{id}/suspend",
    operation_id = "suspend_machine", params(("id" = String, Path)),
    responses((status = 200, description = "The machine", body = MachineView), Refused,
    (status = "5XX", description = "The disk is full, or the daemon has failed", body = Problem,
        content_type = "application/problem+json")))]
pub async fn suspend(target: Target) -> Answer {
    let machine = find(&target, Kind::Machine)?;
    target.daemon.machines.suspend(&machine).await?;
    show(&target)
}

/// Limits of a network interface in each direction; 0: none.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"bandwidth": 1000000, "packets": 0}))]
#[serde(deny_unknown_fields)]
pub struct NetworkLimits {
    /// Most bytes per second.
    #[serde(default, deserialize_with = "integer::unsigned")]
    bandwidth: u64,
    /// Most packets per second.
    #[serde(default, deserialize_with = "integer::unsigned")]
    packets: u64,
}

/// Change the limits of a running machine's network interface, until it ends
#[utoipa::path(put, path = "/v1/machines/{id}/network-limits",
    operation_id = "limit_machine_network", params(("id" = String, Path)),
    request_body = NetworkLimits,
    responses((status = 200, description = "The limits in force", body = NetworkLimits), Refused))]
pub async fn limit_network(
    target: Target,
    Json(limits): Json<NetworkLimits>,
) -> Result<Json<NetworkLimits>, Problem> {
    // Tenants must not change the operator's limits.
    target.caller.needs(Scope::Admin)?;
    let machine = find(&target, Kind::Machine)?;
    let both = [limits.bandwidth, limits.packets];
    target.daemon.machines.set_network_limits(&machine, both)?;
    Ok(Json(limits))
}

/// The longest wait.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// Longest wait, seconds; then the answer has the present state.
    #[serde(default = "default_wait")]
    #[param(minimum = 0, maximum = 300)]
    seconds: u64,
}

fn default_wait() -> u64 {
    30
}

/// Wait until a machine has ended
#[utoipa::path(get, path = "/v1/machines/{id}/wait",
    operation_id = "wait_for_machine", params(("id" = String, Path), Wait),
    responses((status = 200, description = "The machine, ended or after this time",
        body = MachineView), Refused))]
pub async fn wait(target: Target, Query(wait): Query<Wait>) -> Answer {
    wait_for_end(&target, Kind::Machine, wait.seconds).await?;
    show(&target)
}
