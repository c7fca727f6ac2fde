//! Debuggers of running machines, as a WebSocket (RFC 6455).

use super::Refused;
use super::attach::MAX_MESSAGE;
use super::exec::serve;
use super::extract::{Query, Target};
use super::lookup::find;
use super::websocket::accept;
use crate::connections::Room;
use crate::jailed::protocol::DebuggerLost;
use crate::problem::Problem;
use crate::store::{Kind, Scope};
use axum::Extension;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;
use serde::Deserialize;

/// How to debug.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Debug {
    /// What the program does when the connection breaks: it goes on without breakpoints, or stays
    /// stopped until a debugger connects again.
    #[serde(default)]
    #[param(inline)]
    lost: DebuggerLost,
}

/// Debug a running machine, as a WebSocket
///
/// The program stops. Binary messages of the client are what GDB sends in its remote serial protocol.
/// Binary messages of the daemon are the answers, after a first byte 1. There is one debugger of a
/// machine at a time. When the debugger has detached, or the program has ended, the daemon sends an
/// `ExecEnd` in a text message and closes the connection. Its `message` is not empty if the debugger
/// was refused, or the machine has ended.
#[utoipa::path(get, path = "/v1/machines/{id}/debug",
    operation_id = "debug_machine", params(("id" = String, Path), Debug),
    responses((status = 101, description = "The connection is a WebSocket from now on"), Refused))]
pub async fn debug(
    target: Target,
    Query(query): Query<Debug>,
    room: Option<Extension<Room>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    target.caller.needs(Scope::Write)?;
    let machine = find(&target, Kind::Machine)?;
    let upgrade = accept(upgrade, MAX_MESSAGE)?;
    // The spawner is asked for a descriptor.
    let exec = tokio::task::block_in_place(|| target.daemon.machines.debug(&machine, query.lost))?;
    Ok(upgrade.on_upgrade(async move |socket| {
        // The server does not need to know how a connection ends.
        let _ = serve(exec, false, socket).await;
        drop(room);
    }))
}
