//! Requests by route and status.

use super::Metrics;
use crate::Daemon;
use axum::extract::{MatchedPath, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use prometheus_client::encoding::EncodeLabelSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The labels of a request. Clients choose none of them: their number is limited.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Request {
    method: &'static str,
    route: String,
    status: u16,
}

/// The name of a method that the API has.
fn name(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

/// Counts a request, and measures the time to the head of its answer.
pub async fn measure(
    State(daemon): State<Arc<Daemon>>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let start = Instant::now();
    let method = name(request.method());
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("other", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    daemon
        .metrics
        .note_request(method, route, status, start.elapsed());
    response
}

impl Metrics {
    fn note_request(&self, method: &'static str, route: String, status: u16, time: Duration) {
        let request = Request {
            method,
            route,
            status,
        };
        let times = self.requests.get_or_create(&request);
        times.observe(time.as_secs_f64());
    }
}
