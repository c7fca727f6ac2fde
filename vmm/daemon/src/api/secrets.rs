//! Secrets of a tenant. Their contents cannot be read over the API.

use super::Refused;
use super::extract::{Caller, Target};
use super::pages::{List, Listed, Page};
use crate::Daemon;
use crate::problem::Problem;
use crate::secrets::MAX_SECRET;
use crate::store::{Spec, Store, StoredSecret};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use hartline_abi::secret::MAX_NAME;
use std::collections::BTreeSet;

/// Most secrets of a tenant.
const MAX_SECRETS: u32 = 256;
/// Most secrets of a machine or run.
const MAX_USES: usize = 32;
/// The rule for names of secrets, and of their files.
pub(super) const NAME: &str = "a secret's name has 1 to 63 letters, digits, underscores, dots and hyphens, and \
    begins with a letter, a digit or an underscore";

/// Checks everything of a spec's secrets that needs no database.
///
/// # Errors
/// [`Problem`] with the fault.
pub(super) fn check_uses(spec: &Spec) -> Result<(), Problem> {
    if spec.secrets.len() > MAX_USES {
        let rule = format!("may be {MAX_USES} at most");
        return Err(Problem::field("secrets", rule));
    }
    let mut seen = BTreeSet::new();
    for used in &spec.secrets {
        if ![Some(&used.secret), used.file.as_ref()]
            .into_iter()
            .flatten()
            .all(|name| is_name(name))
        {
            return Err(Problem::field("secrets", NAME));
        }
        let variable = used.env.as_ref();
        if variable.is_some_and(|name| name.is_empty() || name.contains(['=', '\0'])) {
            let rule = "env: names must not be empty or contain = or NUL";
            return Err(Problem::field("secrets", rule));
        }
        let file = used.file_name().map(|name| (false, name));
        let variable = variable.map(|name| (true, name.as_str()));
        if [file, variable]
            .into_iter()
            .flatten()
            .any(|name| !seen.insert(name))
        {
            let detail = "each file and each environment variable may be there once";
            return Err(Problem::conflict("secret-twice", detail));
        }
    }
    let hides = |path: &str| path == "/run" || path == "/run/secrets";
    let has_files = spec.secrets.iter().any(|used| used.file_name().is_some());
    if has_files && spec.volumes.iter().any(|mount| hides(&mount.path)) {
        let detail = "a volume at /run or /run/secrets would hide the files of secrets";
        return Err(Problem::conflict("secrets-hidden", detail));
    }
    Ok(())
}

/// Refuses secrets that the caller does not have, for the program and for the webhook.
///
/// # Errors
/// [`Problem`] with the fault.
pub(super) fn find_uses(daemon: &Daemon, caller: &Caller, spec: &Spec) -> Result<(), Problem> {
    let uses = spec.secrets.iter().map(|used| &used.secret);
    let webhook = spec.webhook.iter().map(|webhook| &webhook.secret);
    for name in uses.chain(webhook) {
        let found = daemon.store.sealed_secret(&caller.tenant, name)?;
        found.ok_or_else(|| Problem::not_found("secret"))?;
    }
    Ok(())
}

/// Whether a secret may have this name.
pub(super) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.len() <= MAX_NAME
        && bytes.next().is_some_and(is_word)
        && bytes.all(|byte| is_word(byte) || b".-".contains(&byte))
}

/// List the tenant's secrets, by name
#[utoipa::path(get, path = "/v1/secrets", operation_id = "list_secrets", params(Page),
    responses((status = 200, description = "The secrets without their contents, by name",
        body = [StoredSecret],
        headers(("Link" = String, description = "The next page, if there is one (rel=next)"))),
    Refused))]
pub async fn list(list: List<Page>) -> Result<Listed<StoredSecret>, Problem> {
    list.page(Store::secrets, |secret| &secret.name)
}

/// Create or change a secret
///
/// The body is its contents, 1 to 65,536 bytes of any kind. They are stored encrypted, and cannot be
/// read again. Machines and runs that start later get the new contents.
#[utoipa::path(put, path = "/v1/secrets/{name}",
    operation_id = "put_secret",
    params(("name" = String, Path, pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, description = "The secret is new"),
    (status = 204, description = "The secret has changed"), Refused))]
pub async fn put(
    target: Target,
    contents: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, Problem> {
    let contents = contents?;
    if !is_name(&target.id) {
        return Err(Problem::field("name", NAME));
    }
    if !(1..=MAX_SECRET).contains(&contents.len()) {
        let rule = format!("must have 1 to {MAX_SECRET} bytes");
        return Err(Problem::field("body", rule));
    }
    let key = (target.caller.tenant.as_str(), target.id.as_str());
    let daemon = &target.daemon;
    let sealed = daemon.secrets.seal(key, &contents)?;
    // The transaction waits for the disk.
    let put = || daemon.store.put_secret(key, &sealed, MAX_SECRETS);
    match tokio::task::block_in_place(put)? {
        Some(true) => Ok(StatusCode::CREATED),
        Some(false) => Ok(StatusCode::NO_CONTENT),
        None => {
            let detail = format!("a tenant has at most {MAX_SECRETS} secrets");
            Err(Problem::conflict("too-many-secrets", detail))
        }
    }
}

/// Delete a secret that no machine uses
#[utoipa::path(delete, path = "/v1/secrets/{name}",
    operation_id = "delete_secret", params(("name" = String, Path)),
    responses((status = 204, description = "The secret is deleted"), Refused))]
pub async fn delete(target: Target) -> Result<StatusCode, Problem> {
    let (store, tenant) = (&target.daemon.store, &target.caller.tenant);
    if store.sealed_secret(tenant, &target.id)?.is_none() {
        return Err(Problem::not_found("secret"));
    }
    let delete = || store.delete_secret(tenant, &target.id);
    match tokio::task::block_in_place(delete)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => {
            let detail = "machines or waiting webhooks have this secret: delete the machines first";
            Err(Problem::conflict("secret-in-use", detail))
        }
    }
}
