//! The REST API, version 1.

mod attach;
mod attached_runs;
mod browser;
mod core;
mod debug;
mod exec;
mod extract;
mod files;
// Fuzz targets are other crates: they reach the extractors by this module only.
#[doc(hidden)]
pub mod fuzzing;
mod logs;
mod lookup;
mod machines;
mod outputs;
mod pages;
mod programs;
mod runs;
mod secrets;
mod snapshots;
mod spec;
mod started;
mod stats;
mod stopped;
mod stream;
mod system;
mod tenants;
mod ui;
mod volumes;
mod webhooks;
mod websocket;

use super::Daemon;
use super::metrics::requests;
use super::problem::Problem;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Longest JSON body, bytes.
pub const MAX_JSON: usize = 256 << 10;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Hartline",
        description = "Runs Linux/riscv64 programs, each in its own virtual machine."
    ),
    components(schemas(Problem, exec::ExecMessage, stream::Line)),
    security(("key" = []))
)]
struct Description;

/// The answer to a refused request.
#[derive(Debug, utoipa::IntoResponses)]
#[response(
    status = "4XX",
    description = "The request is refused",
    content_type = "application/problem+json"
)]
pub struct Refused(pub Problem);

/// All routes, and their description.
pub fn router(daemon: Arc<Daemon>) -> Router {
    let (router, description) = routes();
    let description = Arc::new(description);
    let describe = move || {
        let description = Arc::clone(&description);
        async move { axum::Json((*description).clone()) }
    };
    router
        .route("/openapi.json", axum::routing::get(describe))
        .merge(ui::routes())
        .fallback(async || Problem::not_found("path"))
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .layer(DefaultBodyLimit::max(MAX_JSON))
        .layer(from_fn_with_state(Arc::clone(&daemon), requests::measure))
        .with_state(daemon)
}

/// The routes that are described, and their description.
fn routes() -> (Router<Arc<Daemon>>, utoipa::openapi::OpenApi) {
    let (router, mut description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(system::health))
        .routes(routes!(system::ready))
        .routes(routes!(system::metrics))
        .routes(routes!(system::version))
        .routes(routes!(system::identity))
        .routes(routes!(system::history))
        .routes(routes!(system::events))
        .routes(routes!(runs::list, runs::create))
        .routes(routes!(attached_runs::open))
        .routes(routes!(runs::get, runs::delete))
        .routes(routes!(logs::of_run))
        .routes(routes!(programs::list, programs::upload))
        .routes(routes!(programs::get, programs::delete))
        .routes(routes!(volumes::list, volumes::create))
        .routes(routes!(volumes::get, volumes::delete))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::put, secrets::delete))
        .routes(routes!(webhooks::list))
        .routes(routes!(snapshots::list))
        .routes(routes!(snapshots::get, snapshots::delete))
        .routes(routes!(machines::list, machines::create))
        .routes(routes!(machines::get, machines::delete))
        .routes(routes!(machines::start))
        .routes(routes!(machines::stop))
        .routes(routes!(machines::kill))
        .routes(routes!(machines::pause))
        .routes(routes!(machines::resume))
        .routes(routes!(machines::suspend))
        .routes(routes!(machines::wait))
        .routes(routes!(machines::limit_network))
        .routes(routes!(snapshots::create))
        .routes(routes!(logs::logs))
        .routes(routes!(attach::attach))
        .routes(routes!(exec::run, exec::open))
        .routes(routes!(core::core))
        .routes(routes!(debug::debug))
        .routes(routes!(files::stat, files::read, files::write))
        .routes(routes!(stats::stats))
        .routes(routes!(tenants::list))
        .routes(routes!(tenants::get, tenants::put, tenants::delete))
        .routes(routes!(tenants::usage))
        .routes(routes!(tenants::keys, tenants::create_key))
        .routes(routes!(tenants::delete_key))
        .split_for_parts();
    let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = description.components.get_or_insert_default();
    components.add_security_scheme("key", scheme);
    (router, description)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// Generators of clients need a name for each operation, and people a description of each answer
    /// and an example of each request.
    #[test]
    fn operations_have_names_descriptions_and_examples() {
        let description = serde_json::to_value(super::routes().1).unwrap();
        let pointer = |reference: &Value| {
            let path = reference.as_str().unwrap().strip_prefix('#').unwrap();
            description.pointer(path).unwrap()
        };
        let mut names = BTreeSet::new();
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let paths = description["paths"].as_object().unwrap();
        for (path, operations) in paths {
            for (method, operation) in operations.as_object().unwrap() {
                let place = format!("{method} {path}");
                let name = operation["operationId"].as_str().unwrap();
                assert!(
                    names.insert(name.to_owned()),
                    "{place}: {name} is there twice"
                );
                assert!(is_text(&operation["summary"]), "{place}: no summary");
                for (status, response) in operation["responses"].as_object().unwrap() {
                    let text = &response["description"];
                    assert!(is_text(text), "{place}: {status} has no description");
                }
                let body = &operation["requestBody"]["content"]["application/json"];
                if let Some(reference) = body["schema"].get("$ref") {
                    let example = &pointer(reference)["example"];
                    assert!(example.is_object(), "{place}: the request has no example");
                }
            }
        }
        assert!(names.len() > 30, "{names:?}");
    }
}
