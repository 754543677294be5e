//! `/plugins`: what is deployed, deploying, going back, removing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyDataStream, BodyExt, Limited};
use hyper::body::{Body, Incoming};
use serde::Serialize;
use tokio::sync::Semaphore;
use weir_config::is_plugin_name;
use weir_plugin::limits::MODULE_BYTES_MAX;
use weir_plugin::{PluginError, Plugins, Summary};

use super::handle::{JSON, Reply, check_page, error, has_type, json};
use super::wanted::Wanted;
use crate::Server;

/// Bytes of a request: a module, and the parts of a form beside it.
const BODY_BYTES_MAX: usize = MODULE_BYTES_MAX + (4 << 20);

/// A request that has not arrived by then will not.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Modules that are received at once; each may take [`BODY_BYTES_MAX`] of memory.
static RECEIVING: Semaphore = Semaphore::const_new(2);

/// Media types of a module. None that a form of a web page can send without a script.
const MODULE_TYPES: [&str; 3] = ["application/wasm", "application/octet-stream", "text/wat"];

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
enum Resource<'a> {
    All,
    One(&'a str),
    Rollback(&'a str),
    Nothing,
}

impl Resource<'_> {
    fn of(path: &str) -> Resource<'_> {
        let Some(rest) = path.strip_prefix("/plugins") else { return Resource::Nothing };
        match rest.strip_prefix('/') {
            None if rest.is_empty() => Resource::All,
            None => Resource::Nothing,
            Some(name) if is_plugin_name(name) => Resource::One(name),
            Some(rest) => match rest.strip_suffix("/rollback") {
                Some(name) if is_plugin_name(name) => Resource::Rollback(name),
                _ => Resource::Nothing,
            },
        }
    }
}

/// Whether a path is one of these.
pub(super) fn is_ours(path: &str) -> bool {
    path == "/plugins" || path.starts_with("/plugins/")
}

#[derive(Serialize)]
struct All {
    plugins: Vec<Summary>,
}

#[derive(Serialize)]
struct Removed<'a> {
    removed: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// Answers a request for one of these.
pub(super) async fn handle(server: &Server, request: Request<Incoming>) -> Reply {
    if let Err(why) = check_page(request.headers()) {
        return error(StatusCode::FORBIDDEN, why);
    }
    let plugins = server.shared().plugins.clone();
    let path = request.uri().path().to_owned();
    match (request.method(), Resource::of(&path)) {
        (&Method::GET, Resource::All) => json(StatusCode::OK, &All { plugins: plugins.list() }),
        (&Method::GET, Resource::One(name)) => reply(plugins.show(name)),
        (&Method::POST, Resource::One(name)) => deploy(plugins, name.to_owned(), request).await,
        (&Method::POST, Resource::Rollback(name)) => {
            if !has_type(request.headers(), &[JSON]) {
                return error(StatusCode::FORBIDDEN, "POST needs Content-Type: application/json");
            }
            let name = name.to_owned();
            reply(change(move || plugins.rollback(&name)).await)
        }
        (&Method::DELETE, Resource::One(name)) => {
            let gone = name.to_owned();
            let removed = change(move || plugins.remove(&gone)).await;
            reply(removed.map(|warning| Removed { removed: name, warning }))
        }
        (_, Resource::Nothing) => error(
            StatusCode::NOT_FOUND,
            "there are /plugins, /plugins/NAME and /plugins/NAME/rollback; a name has 1 to 64 \
             letters, digits, \"-\", \"_\" and \".\"",
        ),
        _ => error(
            StatusCode::METHOD_NOT_ALLOWED,
            "GET /plugins and /plugins/NAME to read; POST /plugins/NAME with a module to deploy, \
             POST /plugins/NAME/rollback to go back, DELETE /plugins/NAME to remove",
        ),
    }
}

async fn deploy(plugins: Plugins, name: String, request: Request<Incoming>) -> Reply {
    let read = async {
        // The semaphore is never closed.
        let _place = RECEIVING.acquire().await;
        tokio::time::timeout(BODY_TIMEOUT, read(&name, request)).await
    };
    // Held by this request: with its client, the wish for the deployment goes.
    let asker = Arc::new(());
    let deployment = match read.await {
        Ok(Ok(deployment)) => {
            weir_plugin::Deployment { asker: Some(Arc::downgrade(&asker)), ..deployment }
        }
        Ok(Err((status, why))) => return error(status, &why),
        Err(_) => {
            let why = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
            return error(StatusCode::REQUEST_TIMEOUT, &why);
        }
    };
    let deployed = change(move || plugins.deploy(deployment)).await;
    drop(asker);
    reply(deployed)
}

type Wrong = (StatusCode, String);

async fn read(name: &str, request: Request<Incoming>) -> Result<weir_plugin::Deployment, Wrong> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let mut wanted = Wanted::from_query(request.uri().query().unwrap_or_default()).map_err(bad)?;
    let (parts, body) = request.into_parts();
    // What is announced to be too large need not be received first.
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let body = Limited::new(body, BODY_BYTES_MAX);
    let mut raw = None;
    if has_type(&parts.headers, &["multipart/form-data"]) {
        let content_type = parts.headers.get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let boundary = multer::parse_boundary(content_type).map_err(|e| bad(e.to_string()))?;
        form(&mut wanted, multer::Multipart::new(BodyDataStream::new(body), boundary)).await?;
    } else if has_type(&parts.headers, &MODULE_TYPES) {
        raw = Some(body.collect().await.map_err(|cause| broken(&cause.to_string()))?.to_bytes());
    } else {
        return Err((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body is a module (Content-Type: application/wasm; text/wat for its text form), or \
             multipart/form-data with a part \"module\""
                .to_owned(),
        ));
    }
    wanted.deployment(name, raw).map_err(bad)
}

async fn form(wanted: &mut Wanted, mut parts: multer::Multipart<'_>) -> Result<(), Wrong> {
    while let Some(part) = parts.next_field().await.map_err(|cause| form_error(&cause))? {
        let name = part.name().unwrap_or_default().to_owned();
        let content: Bytes = part.bytes().await.map_err(|cause| form_error(&cause))?;
        wanted.set(&name, content).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
    }
    Ok(())
}

fn form_error(cause: &multer::Error) -> Wrong {
    match cause {
        multer::Error::StreamReadFailed(cause) => broken(&cause.to_string()),
        other => (StatusCode::BAD_REQUEST, format!("the form cannot be read: {other}")),
    }
}

/// The body ended early, or has no end in sight.
fn broken(cause: &str) -> Wrong {
    // What `Limited` says; its type is lost on the way through the form's parser.
    match cause.contains("length limit exceeded") {
        true => too_large(),
        false => (StatusCode::BAD_REQUEST, format!("the body did not arrive: {cause}")),
    }
}

fn too_large() -> Wrong {
    let why = format!("a module has at most {MODULE_BYTES_MAX} bytes");
    (StatusCode::PAYLOAD_TOO_LARGE, why)
}

/// Changes wait for a thread of their own.
async fn change<R: Send + 'static>(
    change: impl FnOnce() -> Result<R, PluginError> + Send + 'static,
) -> Result<R, PluginError> {
    tokio::task::spawn_blocking(change).await.unwrap_or_else(|cause| {
        tracing::error!(%cause, "a change of the plugins ended without an answer");
        std::panic::resume_unwind(cause.into_panic())
    })
}

fn reply(result: Result<impl Serialize, PluginError>) -> Reply {
    match result {
        Ok(answer) => json(StatusCode::OK, &answer),
        Err(why) => error(status(&why), &why.to_string()),
    }
}

fn status(error: &PluginError) -> StatusCode {
    match error {
        PluginError::Name { .. }
        | PluginError::Value { .. }
        | PluginError::NoRoute { .. }
        | PluginError::NoUpstream { .. } => StatusCode::BAD_REQUEST,
        PluginError::Unknown { .. } => StatusCode::NOT_FOUND,
        PluginError::NothingBefore { .. }
        | PluginError::Configured { .. }
        | PluginError::Overtaken { .. }
        | PluginError::TooMany { .. } => StatusCode::CONFLICT,
        PluginError::Busy { .. } => StatusCode::SERVICE_UNAVAILABLE,
        PluginError::Module { .. } | PluginError::Start { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_resources() {
        for (path, resource) in [
            ("/plugins", Resource::All),
            ("/plugins/gray", Resource::One("gray")),
            ("/plugins/rollback", Resource::One("rollback")),
            ("/plugins/gray/rollback", Resource::Rollback("gray")),
            ("/plugins/", Resource::Nothing),
            ("/plugins//rollback", Resource::Nothing),
            ("/plugins/a/b", Resource::Nothing),
            ("/plugins/../status", Resource::Nothing),
            ("/pluginsx", Resource::Nothing),
        ] {
            assert_eq!(Resource::of(path), resource, "{path}");
        }
    }
}
