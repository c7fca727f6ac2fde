//! Extractors of handlers: the caller, and checked parts of requests.

use super::browser::Offered;
use super::lookup::{Object, complete};
use crate::Daemon;
use crate::connections::Room;
use crate::patience::within;
use crate::problem::Problem;
use crate::server::Peer;
use crate::store::{DEFAULT_TENANT, Scope, Spec};
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Header with the tenant that an administrator acts for.
const TENANT: &str = "hartline-tenant";

/// A JSON body, or a problem that describes its fault. A body that stops coming is a fault too.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: serde::de::DeserializeOwned> FromRequest<Arc<Daemon>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, daemon: &Arc<Daemon>) -> Result<Self, Self::Rejection> {
        let patience = Duration::from_secs(daemon.config().idle_timeout_s);
        let request = request.map(|body| Body::from_stream(patient(body, patience)));
        Self::read(request).await
    }
}

impl<T: serde::de::DeserializeOwned> Json<T> {
    /// Reads the body of a request, however long that takes.
    ///
    /// # Errors
    /// The fault of the body.
    pub async fn read(request: Request) -> Result<Self, Problem> {
        let axum::Json(value) = axum::Json::from_request(request, &()).await?;
        Ok(Self(value))
    }
}

/// The pieces of a body. If none comes for `patience`, the last item is an error.
fn patient(body: Body, patience: Duration) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    let pieces = body.into_data_stream();
    stream::try_unfold(pieces, move |mut pieces| async move {
        let piece = within(patience, pieces.next()).await;
        let late = |_| axum::Error::new(format!("no byte came for {} s", patience.as_secs()));
        let piece = piece.map_err(late)?.transpose()?;
        Ok(piece.map(|piece| (piece, pieces)))
    })
}

impl<T: serde::Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// Reads a structure from a JSON object; the error names the wrong field.
///
/// # Errors
/// The path of the field, and its fault.
pub fn from_object<T: serde::de::DeserializeOwned>(
    object: serde_json::Map<String, serde_json::Value>,
) -> Result<T, String> {
    serde_path_to_error::deserialize(serde_json::Value::Object(object))
        .map_err(|error| error.to_string())
}

/// The fields of a request that a snapshot has, or cannot have: they describe the program.
const OF_SNAPSHOT: [&str; 15] = [
    "program",
    "path",
    "args",
    "env",
    "cpus",
    "memory",
    "volumes",
    "network",
    "user",
    "workdir",
    "hostname",
    "read_only",
    "terminal",
    "secrets",
    "core_limit",
];

/// The name of a field that a request with a snapshot has, and must not have.
#[derive(Debug, Clone, Copy)]
pub struct Excess(pub &'static str);

/// The specification in a request for a machine or run.
#[derive(Debug)]
pub struct Asked {
    /// The specification. With a snapshot it has no program of its own.
    pub spec: Spec,
    /// The first field that the request has besides a snapshot, and must not have.
    pub excess: Option<Excess>,
}

impl Asked {
    /// Reads a specification from a JSON object.
    ///
    /// # Errors
    /// The path of the field, and its fault.
    pub fn new(mut object: serde_json::Map<String, serde_json::Value>) -> Result<Self, String> {
        let mut excess = None;
        let snapshot = object.get("snapshot");
        if snapshot.is_some_and(|snapshot| !snapshot.is_null()) {
            let found = OF_SNAPSHOT.into_iter();
            excess = { found }
                .find(|name| object.contains_key(*name))
                .map(Excess);
            object.entry("program").or_insert_with(|| "".into());
        }
        let spec = from_object(object)?;
        Ok(Self { spec, excess })
    }
}

/// Query parameters, or a problem.
#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Problem))]
pub struct Query<T>(pub T);

/// Parts of the path, or a problem.
#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Problem))]
pub struct Path<T>(pub T);

/// The caller of a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The caller's tenant.
    pub tenant: String,
    /// The caller's rights.
    pub scope: Scope,
}

impl Caller {
    /// Refuses callers whose scope is too small.
    ///
    /// # Errors
    /// The problem to answer with.
    pub fn needs(&self, scope: Scope) -> Result<(), Problem> {
        match self.scope >= scope {
            true => Ok(()),
            false => Err(Problem::forbidden(scope.name())),
        }
    }
}

impl FromRequestParts<Arc<Daemon>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        daemon: &Arc<Daemon>,
    ) -> Result<Self, Self::Rejection> {
        let text = |name| match parts.headers.get(name) {
            None => Ok(None),
            Some(value) => value.to_str().map(Some).map_err(Problem::bad_request),
        };
        let offered = Offered::read(&parts.headers)?;
        let bearer = |value: &str| value.strip_prefix("Bearer ").unwrap_or_default().to_owned();
        let shown = text(AUTHORIZATION.as_str())?.map(bearer).or(offered.key);
        let (own, scope) = match shown {
            Some(shown) => {
                let key = daemon.keys.check(&daemon.store, shown.trim())?;
                let key = key.ok_or_else(Problem::unauthorized)?;
                let counted = daemon.keys.count(&key.id, Instant::now());
                counted.map_err(Problem::rate_limited)?;
                if let Some(room) = parts.extensions.get::<Room>() {
                    room.identify(&key.tenant)?;
                }
                (key.tenant, key.scope)
            }
            None => match parts.extensions.get::<Peer>() {
                Some(Peer::Local { trusted: true }) => (DEFAULT_TENANT.to_owned(), Scope::Admin),
                _ => return Err(Problem::unauthorized()),
            },
        };
        let tenant = match text(TENANT)?.or(offered.tenant.as_deref()) {
            None => own,
            Some(name) if name == own => own,
            Some(name) if scope == Scope::Admin && daemon.store.tenant(name)?.is_some() => {
                name.to_owned()
            }
            Some(_) => return Err(Problem::not_found("tenant")),
        };
        daemon.metrics.history().count_request(&tenant);
        Ok(Self { tenant, scope })
    }
}

/// An object of the caller's tenant, which the path names. Requests that change nothing need the
/// scope `read`, others `write`.
#[derive(Debug, Clone)]
pub struct Target {
    /// The daemon.
    pub daemon: Arc<Daemon>,
    /// The caller.
    pub caller: Caller,
    /// The part of the path that names the object. In the request an id may be a unique begin of
    /// one, or a name; here it is whole.
    pub id: String,
}

impl FromRequestParts<Arc<Daemon>> for Target {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        daemon: &Arc<Daemon>,
    ) -> Result<Self, Self::Rejection> {
        let caller = Caller::from_request_parts(parts, daemon).await?;
        let Path(id) = Path::from_request_parts(parts, daemon).await?;
        caller.needs(match parts.method.is_safe() {
            true => Scope::Read,
            false => Scope::Write,
        })?;
        let id = match Object::of_path(parts.uri.path()) {
            Some(object) => complete(daemon, &caller, object, id)?,
            None => id,
        };
        Ok(Self {
            daemon: Arc::clone(daemon),
            caller,
            id,
        })
    }
}
