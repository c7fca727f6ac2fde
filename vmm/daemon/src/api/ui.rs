//! The page at `/ui/`. Its files are part of the program and have no data, so they need no key: the page
//! reads all data from the API, with the key that its user enters.

use crate::Daemon;
use crate::auth::hex;
use crate::problem::Problem;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};
use std::sync::{Arc, LazyLock};

/// A file of the page.
struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

/// A file of the folder `ui`.
macro_rules! own {
    ($name:literal, $kind:ident) => {
        File {
            name: $name,
            kind: $kind,
            bytes: include_bytes!(concat!("../../ui/", $name)),
        }
    };
}

/// A file of xterm.js, whose path the build script has put into a variable.
macro_rules! xterm {
    ($name:literal, $kind:ident, $variable:literal) => {
        File {
            name: $name,
            kind: $kind,
            bytes: include_bytes!(env!($variable)),
        }
    };
}

const FILES: &[File] = &[
    own!("index.html", HTML),
    own!("style.css", CSS),
    own!("icon.svg", SVG),
    own!("actions.js", JAVASCRIPT),
    own!("api.js", JAVASCRIPT),
    own!("chart.js", JAVASCRIPT),
    own!("dialog.js", JAVASCRIPT),
    own!("dom.js", JAVASCRIPT),
    own!("exits.js", JAVASCRIPT),
    own!("format.js", JAVASCRIPT),
    own!("log.js", JAVASCRIPT),
    own!("machine.js", JAVASCRIPT),
    own!("machines.js", JAVASCRIPT),
    own!("main.js", JAVASCRIPT),
    own!("overview.js", JAVASCRIPT),
    own!("programs.js", JAVASCRIPT),
    own!("run.js", JAVASCRIPT),
    own!("runs.js", JAVASCRIPT),
    own!("session.js", JAVASCRIPT),
    own!("table.js", JAVASCRIPT),
    own!("tenants.js", JAVASCRIPT),
    own!("terminal.js", JAVASCRIPT),
    xterm!("xterm/xterm.js", JAVASCRIPT, "HARTLINE_XTERM_JS"),
    xterm!("xterm/xterm.css", CSS, "HARTLINE_XTERM_CSS"),
    xterm!("xterm/canvas.js", JAVASCRIPT, "HARTLINE_XTERM_CANVAS"),
    xterm!("xterm/fit.js", JAVASCRIPT, "HARTLINE_XTERM_FIT"),
    xterm!("xterm/copyright.txt", TEXT, "HARTLINE_XTERM_COPYRIGHT"),
];

/// The name of the page itself.
const INDEX: &str = "index.html";

/// What the page may do: load its own files, and talk to its own server. xterm.js would need inline
/// styles for its DOM renderer; the page uses its canvas renderer. Text cannot become markup or a
/// script even by mistake (`require-trusted-types-for`).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// The headers of all files.
const HEADERS: [(&str, &str); 4] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    // Kept, but used again only if the server says that it has not changed.
    ("cache-control", "no-cache"),
];

/// The entity tags of all files: hashes of their contents.
static TAGS: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    let tag = |file: &File| {
        let hash = hex(&Sha256::digest(file.bytes)[..16]);
        let tag = HeaderValue::from_str(&format!("\"{hash}\""));
        // Hexadecimal digits are always valid.
        tag.unwrap_or(HeaderValue::from_static("\"\""))
    };
    FILES.iter().map(tag).collect()
});

/// The routes of the page.
pub fn routes() -> Router<Arc<Daemon>> {
    // Relative, so that it holds behind a proxy with another path.
    let redirect = async |State(daemon): State<Arc<Daemon>>| match daemon.config().ui {
        true => Redirect::permanent("ui/").into_response(),
        false => Problem::not_found("path").into_response(),
    };
    let index = async |State(daemon): State<Arc<Daemon>>, headers: HeaderMap| {
        serve(&daemon, INDEX, &headers)
    };
    let file = async |State(daemon): State<Arc<Daemon>>,
                      Path(name): Path<String>,
                      headers: HeaderMap| serve(&daemon, &name, &headers);
    Router::new()
        .route("/ui", get(redirect))
        .route("/ui/", get(index))
        .route("/ui/{*name}", get(file))
}

/// The answer with a file, or that the client's copy is still right.
fn serve(daemon: &Daemon, name: &str, headers: &HeaderMap) -> Response {
    let found = FILES.iter().zip(&*TAGS).find(|(file, _)| file.name == name);
    let Some((file, tag)) = found.filter(|_| daemon.config().ui) else {
        return Problem::not_found("path").into_response();
    };
    let mut response = match has(headers, tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, file.kind)], file.bytes).into_response(),
    };
    response.headers_mut().insert(header::ETAG, tag.clone());
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Whether a client has a copy with this tag (RFC 9110, section 13.1.2).
fn has(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).iter();
    let lists = lists.filter_map(|list| list.to_str().ok());
    let mut tags = lists.flat_map(|list| list.split(',')).map(str::trim);
    tags.any(|given| given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
        let there: BTreeSet<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let own = FILES.iter().filter(|file| !file.name.contains('/'));
        let served: BTreeSet<String> = own.map(|file| file.name.to_owned()).collect();
        assert_eq!(there, served);
    }

    #[test]
    fn copies_are_recognised() {
        let tag = HeaderValue::from_static("\"1a\"");
        let has = |value: &'static str| {
            let headers = [(header::IF_NONE_MATCH, HeaderValue::from_static(value))];
            super::has(&headers.into_iter().collect(), &tag)
        };
        assert!(has("\"1a\"") && has("W/\"1a\"") && has("\"0\", \"1a\"") && has("*"));
        assert!(!has("\"1b\"") && !has("1a") && !super::has(&HeaderMap::new(), &tag));
    }
}
