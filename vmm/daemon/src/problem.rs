//! Errors in the API's format: RFC 9457 problem details with a stable code.

use super::auth::AuthError;
use super::connections::NoSlot;
use super::execute::NotRunnable;
use super::library::LibraryError;
use super::machines::MachineError;
use super::network::NetworkError;
use super::ports::PortError;
use super::processors::NotEnough;
use super::scheduler::Refused;
use super::secrets::SecretError;
use super::snapshots::SnapshotError;
use super::store::StoreError;
use super::volumes::VolumeError;
use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::io;
use std::time::Duration;

/// Code of failures because the host's disk is full.
pub(super) const STORAGE_FULL: &str = "storage-full";
/// Code of failures because the tenant's storage quota is used up.
pub(super) const STORAGE_QUOTA: &str = "storage-quota";
/// Code of missing translations because the tenant has used up its processor time for them.
pub(super) const TRANSLATION_BUDGET: &str = "translation-budget";
/// Code of failures because the worker was killed again and again.
pub(super) const WORKER_KILLED: &str = "worker-killed";

/// A problem.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(example = json!({"type": "urn:hartline:problem:not-found",
    "title": "Not found", "status": 404, "detail": "there is no such machine", "code": "not-found"}))]
pub struct Problem {
    /// Names the kind of problem: `urn:hartline:problem:` and the code.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: Box<str>,
    /// The kind of problem, in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// Description of this occurrence of the problem.
    #[schema(value_type = String)]
    detail: Box<str>,
    /// The stable code.
    code: &'static str,
    /// The field of the request that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(skip)]
    retry_after: Option<Duration>,
}

impl Problem {
    fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl ToString,
    ) -> Self {
        Self {
            kind: format!("urn:hartline:problem:{code}").into(),
            title,
            status: status.as_u16(),
            detail: detail.to_string().into(),
            code,
            field: None,
            retry_after: None,
        }
    }

    /// The description of this occurrence.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The description for a client that reads one text: with the wrong field, if there is one.
    #[must_use]
    pub fn told(&self) -> String {
        match &self.field {
            Some(field) => format!("{field}: {}", self.detail),
            None => self.detail.to_string(),
        }
    }

    /// The caller has nothing of this name.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        let detail = format!("there is no such {what}");
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
    }

    /// A field has a value that is not allowed.
    #[must_use]
    pub fn field(field: &str, detail: impl ToString) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let mut problem = Self::new(status, "invalid-field", "A field is invalid", detail);
        problem.field = Some(field.to_owned());
        problem
    }

    /// Valid JSON with a value that is not allowed. serde's message names the field: as the path
    /// before the colon, or in backticks if the field is missing or unknown.
    fn wrong_json(text: &str) -> Self {
        let text = text
            .split_once("target type: ")
            .map_or(text, |(_, rest)| rest);
        let quoted = text.split('`').nth(1).filter(|_| text.contains(" field `"));
        let path = text.split_once(": ").map(|(path, _)| path);
        let path = path.filter(|path| !path.contains(' '));
        let field = quoted.or(path).unwrap_or("(body)");
        Self::field(field, text)
    }

    /// The request has no key, or an invalid one.
    #[must_use]
    pub fn unauthorized() -> Self {
        let detail = "send a valid API key as: Authorization: Bearer KEY";
        let status = StatusCode::UNAUTHORIZED;
        Self::new(status, "unauthorized", "A valid API key is needed", detail)
    }

    /// The key's scope is not sufficient.
    #[must_use]
    pub fn forbidden(needed: &str) -> Self {
        let detail = format!("this needs a key with the scope {needed}");
        let status = StatusCode::FORBIDDEN;
        Self::new(status, "forbidden", "The API key may not do this", detail)
    }

    /// A page of another site opens a WebSocket.
    #[must_use]
    pub fn foreign_origin() -> Self {
        let detail = "the header Origin names another host than the header Host";
        let status = StatusCode::FORBIDDEN;
        let title = "Only pages of this server may do this";
        Self::new(status, "foreign-origin", title, detail)
    }

    /// The key is used too often.
    #[must_use]
    pub fn rate_limited(wait: Duration) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let detail = "this API key has exceeded its request rate";
        let mut problem = Self::new(status, "rate-limited", "Too many requests", detail);
        problem.retry_after = Some(wait);
        problem
    }

    /// The tenant has used too many idempotency keys, of which `most` are kept.
    #[must_use]
    pub fn too_many_keys(most: u64) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let detail = format!(
            "the tenant has used {most} idempotency keys: delete old runs and machines; \
            their keys are free a day later"
        );
        let title = "There are too many idempotency keys";
        Self::new(status, "too-many-keys", title, detail)
    }

    /// The request is not allowed in the current state.
    #[must_use]
    pub fn conflict(code: &'static str, detail: impl ToString) -> Self {
        let title = "The state does not allow this";
        Self::new(StatusCode::CONFLICT, code, title, detail)
    }

    /// A request has a snapshot and a field that the snapshot has, or cannot have.
    #[must_use]
    pub fn not_with_snapshot(field: &str) -> Self {
        let detail = format!("{field} cannot be given together with snapshot");
        let mut problem = Self::conflict("not-with-snapshot", detail);
        problem.field = Some(field.to_owned());
        problem
    }

    /// The body is too long.
    #[must_use]
    pub fn too_large(most: u64) -> Self {
        let detail = format!("the body must have at most {most} bytes");
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        Self::new(status, "too-large", "The body is too large", detail)
    }

    /// A copy of files has too much of something, which a setting of the daemon limits.
    #[must_use]
    pub fn copy_limit(what: &str) -> Self {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        let detail = format!("a copy has a limited number of {what}");
        Self::new(status, "copy-limit", "The copy is too large", detail)
    }

    /// The request is malformed.
    #[must_use]
    pub fn bad_request(detail: impl ToString) -> Self {
        let title = "The request is malformed";
        Self::new(StatusCode::BAD_REQUEST, "bad-request", title, detail)
    }

    /// The path exists, the method does not.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let detail = "this path does not support this method";
        Self::new(status, "method-not-allowed", "Method not allowed", detail)
    }

    /// The path needs an upgrade to a WebSocket.
    #[must_use]
    pub fn upgrade_required(detail: impl ToString) -> Self {
        let status = StatusCode::UPGRADE_REQUIRED;
        Self::new(status, "upgrade-required", "This is a WebSocket", detail)
    }

    /// The host's disk is full, which is logged too.
    fn storage_full(error: &dyn std::fmt::Display) -> Self {
        tracing::error!("{error}");
        let detail = "the host's disk has no room for this";
        let status = StatusCode::INSUFFICIENT_STORAGE;
        Self::new(status, STORAGE_FULL, "The disk is full", detail)
    }

    /// An operation of the host failed. The error is logged, and not shown to the caller.
    #[must_use]
    pub fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!("{error}");
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        let detail = "the daemon's log has the reason";
        Self::new(status, "internal", "The daemon failed", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Quota { .. } => Self::conflict(STORAGE_QUOTA, error),
            error if error.is_full() => Self::storage_full(&error),
            error => Self::internal(error),
        }
    }
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Self {
        Self::internal(error)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::storage_full(&error),
            _ => Self::internal(error),
        }
    }
}

impl From<LibraryError> for Problem {
    fn from(error: LibraryError) -> Self {
        match error {
            LibraryError::Host { source, .. } => source.into(),
            LibraryError::Store(error) => error.into(),
            LibraryError::Full { .. } => Self::storage_full(&error),
            LibraryError::Quota { .. } => Self::conflict(STORAGE_QUOTA, error),
            error => Self::internal(error),
        }
    }
}

impl From<MachineError> for Problem {
    fn from(error: MachineError) -> Self {
        match error {
            MachineError::State(_) => Self::conflict("wrong-state", error),
            MachineError::NoTerminal => Self::conflict("no-terminal", error),
            MachineError::NoInput => Self::conflict("not-interactive", error),
            MachineError::NoNetwork => Self::conflict("no-network", error),
            MachineError::Processors(error) => error.into(),
            MachineError::Ports(error) => error.into(),
            MachineError::Refused(refused) => refused.into(),
            MachineError::Volume(error) => error.into(),
            MachineError::Secret(error) => error.into(),
            MachineError::Snapshot(error) => error.into(),
            MachineError::Host(error) => error.into(),
            MachineError::Store(error) => error.into(),
        }
    }
}

impl From<SnapshotError> for Problem {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::State(_) => Self::conflict("no-snapshot", error),
            SnapshotError::Busy => Self::conflict("snapshot-running", error),
            SnapshotError::NameInUse => Self::conflict("name-in-use", error),
            SnapshotError::NoProgram => Self::not_found("program"),
            SnapshotError::Timeout(_) | SnapshotError::Stalled => {
                Self::conflict("snapshot-timeout", error)
            }
            SnapshotError::Gone | SnapshotError::Refused(_) => {
                Self::conflict("snapshot-refused", error)
            }
            SnapshotError::Host(error) => error.into(),
            SnapshotError::Store(error) => error.into(),
            SnapshotError::Invalid | SnapshotError::Random(_) => Self::internal(error),
        }
    }
}

impl From<VolumeError> for Problem {
    fn from(error: VolumeError) -> Self {
        match error {
            VolumeError::Exists => Self::conflict("volume-exists", error),
            VolumeError::InUse(_) => Self::conflict("volume-in-use", error),
            VolumeError::Missing(_) => Self::not_found("volume"),
            VolumeError::Host(error) => error.into(),
            VolumeError::Store(error) => error.into(),
            VolumeError::Random(_) | VolumeError::Worker { .. } => Self::internal(error),
        }
    }
}

impl From<SecretError> for Problem {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Missing(_) => Self::not_found("secret"),
            SecretError::NoText(_) | SecretError::TooLong | SecretError::Undecipherable(_) => {
                Self::conflict("unusable-secret", error)
            }
            SecretError::Store(error) => error.into(),
            SecretError::Key(_) | SecretError::Random(_) | SecretError::Cipher => {
                Self::internal(error)
            }
        }
    }
}

impl From<NotEnough> for Problem {
    fn from(error: NotEnough) -> Self {
        Self::conflict("no-dedicated-cpus", error)
    }
}

impl From<PortError> for Problem {
    fn from(error: PortError) -> Self {
        match error {
            PortError::Unavailable => Self::conflict("ports-unavailable", error),
            PortError::Port(..) | PortError::Address(_) => {
                Self::conflict("port-not-allowed", error)
            }
            PortError::InUse(_) => Self::conflict("port-in-use", error),
            PortError::TooMany(_) => Self::conflict("too-many-ports", error),
            PortError::Host(..) => Self::internal(error),
        }
    }
}

impl From<NetworkError> for Problem {
    fn from(error: NetworkError) -> Self {
        match error {
            NetworkError::Unavailable(_) => Self::conflict("network-unavailable", error),
            NetworkError::NoNetwork | NetworkError::NoAddress => {
                Self::conflict("network-full", error)
            }
            NetworkError::Host(error) => error.into(),
            NetworkError::Store(error) => error.into(),
        }
    }
}

impl From<NotRunnable> for Problem {
    fn from(error: NotRunnable) -> Self {
        match error {
            NotRunnable::NotYet => {
                let mut problem = Self::conflict("program-not-ready", error);
                problem.retry_after = Some(Duration::from_secs(1));
                problem
            }
            NotRunnable::Failed(_) => Self::conflict("program-failed", error),
            NotRunnable::NoPath | NotRunnable::Path => Self::field("path", error),
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let status = match refused {
            Refused::QueueFull(_) => StatusCode::TOO_MANY_REQUESTS,
            Refused::Draining => StatusCode::SERVICE_UNAVAILABLE,
            Refused::Host(_) | Refused::Quota(_) => StatusCode::FORBIDDEN,
        };
        let code = match refused {
            Refused::QueueFull(_) => "queue-full",
            Refused::Draining => "draining",
            Refused::Host(_) => "host-too-small",
            Refused::Quota(_) => "quota",
        };
        let mut problem = Self::new(status, code, "There is no room for this", refused);
        if matches!(refused, Refused::QueueFull(_) | Refused::Draining) {
            problem.retry_after = Some(Duration::from_secs(1));
        }
        problem
    }
}

impl From<NoSlot> for Problem {
    fn from(none: NoSlot) -> Self {
        let status = match none {
            NoSlot::Full => StatusCode::SERVICE_UNAVAILABLE,
            NoSlot::Tenant(_) => StatusCode::TOO_MANY_REQUESTS,
        };
        let title = "There are too many connections";
        let mut problem = Self::new(status, "too-many-connections", title, none);
        problem.retry_after = Some(Duration::from_secs(1));
        problem
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        let status = rejection.status();
        let detail = rejection.body_text();
        match status {
            StatusCode::PAYLOAD_TOO_LARGE => Self::too_large(super::api::MAX_JSON as u64),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                let title = "The body must be JSON";
                Self::new(status, "unsupported-media-type", title, detail)
            }
            StatusCode::UNPROCESSABLE_ENTITY => Self::wrong_json(&detail),
            _ => Self::bad_request(detail),
        }
    }
}

impl From<BytesRejection> for Problem {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::too_large(super::api::MAX_JSON as u64),
            _ => Self::bad_request(rejection.body_text()),
        }
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_json_names_the_field() {
        for (text, field) in [
            ("Failed … target type: cpus: invalid type: string", "cpus"),
            ("target type: env.A: invalid type: integer `1`", "env.A"),
            ("missing field `program` at line 1", "program"),
            ("unknown field `x`, expected one of `program`", "x"),
            ("invalid type: sequence, expected a map", "(body)"),
        ] {
            let problem = Problem::wrong_json(text);
            assert_eq!(problem.field.as_deref(), Some(field), "{text}");
        }
    }
}
