//! Entry point for the fuzz target `protocol` (`fuzz/`): reads requests without a daemon, the bodies
//! and queries of clients, by the extractors of the handlers, with the checks that need no database.
//! Not an API: no documentation, no stability. It is built always, so that clippy and the compiler
//! check it with the code that it calls.

use super::browser::Offered;
use super::extract::{Json, Query};
use super::pages::{self, one_more};
use super::spec::check_spec;
use super::{attach, files, logs, machines, programs, runs, system, tenants, volumes};
use crate::problem::Problem;
use crate::store::{Quota, Spec};
use axum::body::Body;
use axum::extract::{FromRequestParts, Request};
use axum::http::header::{self, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::IntoResponse;
use futures_util::FutureExt;
use serde::de::DeserializeOwned;

/// Kinds of requests of [`read_request`].
pub const REQUESTS: u8 = 18;

/// Reads a body or a query string of the request `kind`. Result: the spec in it, if it has one, or
/// the status of a refused request; `None` if the server refuses the request earlier.
#[must_use]
pub fn read_request(kind: u8, text: &[u8]) -> Option<Result<Option<Spec>, StatusCode>> {
    let read = match kind {
        0 => body::<runs::RunRequest>(text)?.and_then(|request| checked(request.spec)),
        1 => body::<machines::MachineRequest>(text)?.and_then(|request| checked(request.spec)),
        2 => body::<volumes::VolumeRequest>(text)?.map(|_| None),
        3 => body::<machines::NetworkLimits>(text)?.map(|_| None),
        4 => body::<tenants::KeyRequest>(text)?.map(|_| None),
        5 => body::<Quota>(text)?.map(|_| None),
        6 => query::<pages::Page>(text)?.and_then(|page| one_more(page.limit).map(|_| None)),
        7 => query::<pages::Which>(text)?.map(|_| None),
        8 => query::<machines::Wait>(text)?.map(|_| None),
        9 => query::<runs::Wait>(text)?.map(|_| None),
        10 => query::<programs::Upload>(text)?.map(|_| None),
        11 => query::<logs::Log>(text)?.and_then(|log| log.start().map(|_| None)),
        12 => query::<attach::Attach>(text)?.map(|_| None),
        13 => body::<Spec>(text)?.and_then(checked),
        14 => query::<files::Source>(text)?.and_then(|source| source.check().map(|()| None)),
        15 => query::<files::Destination>(text)?.and_then(|to| to.check().map(|()| None)),
        16 => query::<system::Since>(text)?.map(|_| None),
        17 => upgrade(text)?.map(|_| None),
        _ => return None,
    };
    Some(read.map_err(|problem| problem.into_response().status()))
}

fn checked(spec: Spec) -> Result<Option<Spec>, Problem> {
    check_spec(&spec).map(|()| Some(spec))
}

/// Reads the headers of a request for a WebSocket: a line each for subprotocols, origin and host.
fn upgrade(text: &[u8]) -> Option<Result<Offered, Problem>> {
    let mut headers = HeaderMap::new();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    let names = [header::SEC_WEBSOCKET_PROTOCOL, header::ORIGIN, header::HOST];
    for (name, line) in names.into_iter().zip(text.split(|&byte| byte == b'\n')) {
        headers.insert(name, HeaderValue::from_bytes(line).ok()?);
    }
    Some(Offered::read(&headers))
}

fn body<T: DeserializeOwned>(text: &[u8]) -> Option<Result<T, Problem>> {
    let request = Request::builder().header(CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(text.to_vec())).ok()?;
    // The whole body is there, so nothing has to be awaited.
    let read = Json::<T>::read(request).now_or_never()?;
    Some(read.map(|Json(value)| value))
}

fn query<T: DeserializeOwned + Send>(text: &[u8]) -> Option<Result<T, Problem>> {
    let uri = [b"/?", text].concat();
    let request = Request::builder().uri(uri.as_slice()).body(()).ok()?;
    let (mut parts, ()) = request.into_parts();
    let read = Query::<T>::from_request_parts(&mut parts, &()).now_or_never()?;
    Some(read.map(|Query(value)| value))
}
