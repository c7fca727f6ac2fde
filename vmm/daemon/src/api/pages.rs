//! Pages of lists. An answer with a page has a `Link` header with the next one (RFC 8288), if there
//! is a next one.

use super::extract::{self, Caller};
use super::lookup::{Object, complete};
use crate::Daemon;
use crate::problem::Problem;
use crate::store::{Kind, Machine, MachineState, Scope, Store, StoreError};
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Most entries of a page.
const MAX_LIMIT: u32 = 1000;

/// The requested part of a list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Only entries after this id, or name.
    #[serde(default)]
    pub after: String,
    /// Most entries of the answer.
    #[serde(default = "default_limit")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: u32,
}

/// The requested machines or runs.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// Only entries after this id.
    #[serde(default)]
    after: String,
    /// Most entries of the answer.
    #[serde(default = "default_limit")]
    #[param(minimum = 1, maximum = 1000)]
    limit: u32,
    /// Only entries in this state.
    state: Option<MachineState>,
    /// Only entries with this label, as `name=value`.
    #[param(pattern = "^[^=]+=.*$")]
    label: Option<String>,
    /// Only entries of this program: its id, a unique begin of the id, or its name.
    program: Option<String>,
}

fn default_limit() -> u32 {
    100
}

/// Checks the length of a page. Result: one more, which shows whether there is a next page.
///
/// # Errors
/// [`Problem`] with the field's name.
pub fn one_more(limit: u32) -> Result<u32, Problem> {
    match (1..=MAX_LIMIT).contains(&limit) {
        true => Ok(limit + 1),
        false => {
            let rule = format!("must be from 1 to {MAX_LIMIT}");
            Err(Problem::field("limit", rule))
        }
    }
}

/// A request for a list of the caller's tenant. The caller may read.
#[derive(Debug)]
pub struct List<Q> {
    daemon: Arc<Daemon>,
    caller: Caller,
    uri: Uri,
    query: Q,
}

impl<Q: DeserializeOwned + Send> FromRequestParts<Arc<Daemon>> for List<Q> {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        daemon: &Arc<Daemon>,
    ) -> Result<Self, Self::Rejection> {
        let caller = Caller::from_request_parts(parts, daemon).await?;
        let extract::Query(query) = extract::Query::from_request_parts(parts, daemon).await?;
        caller.needs(Scope::Read)?;
        Ok(Self {
            daemon: Arc::clone(daemon),
            caller,
            uri: parts.uri.clone(),
            query,
        })
    }
}

impl List<Page> {
    /// The requested page of the list that `find` reads from the database: of a tenant, after an
    /// entry, and of a length. `key` is what the list is sorted by.
    ///
    /// # Errors
    /// A field is invalid, or the database failed.
    pub fn page<T>(
        self,
        find: impl FnOnce(&Store, &str, &str, u32) -> Result<Vec<T>, StoreError>,
        key: impl Fn(&T) -> &str,
    ) -> Result<Listed<T>, Problem> {
        let Page { after, limit } = self.query;
        let most = one_more(limit)?;
        let entries = find(&self.daemon.store, &self.caller.tenant, &after, most)?;
        Listed::new(&self.uri, entries, limit, key)
    }
}

impl List<Which> {
    /// The requested page of machines, or runs, each as `show` shows it, with its id.
    ///
    /// # Errors
    /// A field is invalid, or the database failed.
    pub fn page<T>(
        self,
        kind: Kind,
        show: impl Fn(&Daemon, Machine) -> T,
        id: impl Fn(&T) -> &str,
    ) -> Result<Listed<T>, Problem> {
        let limit = self.query.limit;
        let found = select(&self.daemon, &self.caller, kind, self.query)?;
        let entries = found.into_iter().map(|machine| show(&self.daemon, machine));
        Listed::new(&self.uri, entries.collect(), limit, id)
    }
}

/// The requested machines, or runs, of the caller's tenant: a page, and one more if there is one.
fn select(
    daemon: &Daemon,
    caller: &Caller,
    kind: Kind,
    which: Which,
) -> Result<Vec<Machine>, Problem> {
    let most = one_more(which.limit)?;
    let label = which.label.as_ref().map(|label| label.split_once('='));
    if label.is_some_and(|label| label.is_none()) {
        return Err(Problem::field("label", "needs the form name=value"));
    }
    let label = label.flatten();
    let program = which.program;
    let program = program.map(|id| complete(daemon, caller, Object::Program, id));
    let program = program.transpose()?;
    let is_wanted = |machine: &Machine| {
        let spec = &machine.spec;
        let has = |(name, value): (&str, &str)| spec.labels.get(name).is_some_and(|l| l == value);
        label.is_none_or(has) && program.as_ref().is_none_or(|id| spec.program == *id)
    };
    let (mut found, mut after) = (Vec::new(), which.after);
    // The database does not filter by label and program: this reads pages until there are enough.
    while found.len() < most as usize {
        let list = (caller.tenant.as_str(), kind);
        let page = daemon.store.machines(list, &after, which.state, most)?;
        let is_last = page.len() < most as usize;
        if let Some(last) = page.last() {
            after.clone_from(&last.id);
        }
        found.extend(page.into_iter().filter(is_wanted));
        if is_last {
            break;
        }
    }
    found.truncate(most as usize);
    Ok(found)
}

/// An answer with a page of a list.
#[derive(Debug)]
pub struct Listed<T> {
    entries: Vec<T>,
    next: Option<HeaderValue>,
}

impl<T> Listed<T> {
    /// The page of at most `limit` entries that a request for `uri` gets. Further entries show that
    /// there is a next page. `key` is what the list is sorted by.
    fn new(
        uri: &Uri,
        mut entries: Vec<T>,
        limit: u32,
        key: impl Fn(&T) -> &str,
    ) -> Result<Self, Problem> {
        let is_last = entries.len() <= limit as usize;
        entries.truncate(limit as usize);
        let next = match entries.last() {
            Some(last) if !is_last => Some(link(uri, key(last))?),
            _ => None,
        };
        Ok(Self { entries, next })
    }
}

impl<T: Serialize> IntoResponse for Listed<T> {
    fn into_response(self) -> Response {
        let mut response = axum::Json(self.entries).into_response();
        if let Some(next) = self.next {
            response.headers_mut().insert(header::LINK, next);
        }
        response
    }
}

/// The header with the page after an entry: the same request with another `after`.
fn link(uri: &Uri, after: &str) -> Result<HeaderValue, Problem> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)?;
    let mut query = String::new();
    for (name, value) in pairs.iter().filter(|(name, _)| name != "after") {
        query += &format!("{}={}&", escape(name), escape(value));
    }
    let link = format!(
        "<{}?{query}after={}>; rel=\"next\"",
        uri.path(),
        escape(after)
    );
    HeaderValue::try_from(link).map_err(Problem::internal)
}

/// Escapes a text for a query.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => escaped.push(byte.into()),
            false => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(uri: &'static str, entries: &[&'static str], limit: u32) -> Option<String> {
        let uri = Uri::from_static(uri);
        let listed = Listed::new(&uri, entries.to_vec(), limit, |entry| entry).unwrap();
        assert!(listed.entries.len() <= limit as usize);
        Some(listed.next?.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_page_has_the_address_of_the_next_one() {
        let link = next("/v1/machines?limit=2", &["a", "b", "c"], 2).unwrap();
        assert_eq!(link, r#"</v1/machines?limit=2&after=b>; rel="next""#);
        // The filters stay, and the old position goes.
        let uri = "/v1/runs?%61fter=0&label=a%3Db%26c+d&limit=1";
        let link = next(uri, &["x y", "z"], 1).unwrap();
        let expected = r#"</v1/runs?label=a%3Db%26c%20d&limit=1&after=x%20y>; rel="next""#;
        assert_eq!(link, expected);
        assert_eq!(
            next("/v1/runs", &["a", "b"], 2),
            None,
            "it is the last page"
        );
        assert_eq!(next("/v1/runs", &[], 2), None);
    }

    #[test]
    fn pages_have_a_limit() {
        assert_eq!(one_more(1000).unwrap(), 1001);
        assert!(one_more(0).is_err() && one_more(1001).is_err());
    }
}
