//! `/guard`: overload control at this moment, what rules would make of a request, and other rules
//! until the next reload.

mod explain;
mod question;
mod rules;
mod status;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use weir_config::is_plugin_name;
use weir_config::limits::FILE_SIZE_MAX;

pub use explain::{Explanation, explain};
pub use question::{OneOrMore, Question};
pub(super) use status::{GuardStatus, status};

use super::handle::{BODY_BYTES_MAX, JSON, Reply, check_page, error, has_type, json};
use crate::Server;

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
enum Resource<'a> {
    Status,
    Test,
    Rules,
    Rule(&'a str),
    Nothing,
}

impl Resource<'_> {
    fn of(path: &str) -> Resource<'_> {
        match path {
            "/guard" => Resource::Status,
            "/guard/test" => Resource::Test,
            "/guard/rules" => Resource::Rules,
            // Names of rules are of the same kind.
            _ => match path.strip_prefix("/guard/rules/").filter(|name| is_plugin_name(name)) {
                Some(name) => Resource::Rule(name),
                None => Resource::Nothing,
            },
        }
    }
}

/// Whether a path is one of these.
pub(super) fn is_ours(path: &str) -> bool {
    path == "/guard" || path.starts_with("/guard/")
}

/// Answers a request for one of these.
pub(super) async fn handle(server: &Server, request: Request<Incoming>) -> Reply {
    if let Err(why) = check_page(request.headers()) {
        return error(StatusCode::FORBIDDEN, why);
    }
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    match (request.method().clone(), Resource::of(&path)) {
        (Method::GET, Resource::Status) => json(StatusCode::OK, &status(server)),
        (Method::POST, Resource::Test) => {
            if !has_type(request.headers(), &[JSON]) {
                return error(StatusCode::FORBIDDEN, "POST needs Content-Type: application/json");
            }
            match receive(request, BODY_BYTES_MAX).await {
                Ok(body) => explain::reply(server, &query, &body),
                Err((status, why)) => error(status, &why),
            }
        }
        (Method::GET, Resource::Rules) => rules::show(server),
        (Method::GET, Resource::Rule(name)) => rules::show_one(server, name),
        (Method::PUT, Resource::Rules) => match receive(request, FILE_SIZE_MAX).await {
            Ok(text) => rules::set_all(server, &query, &text),
            Err((status, why)) => error(status, &why),
        },
        (Method::PUT, Resource::Rule(name)) => match receive(request, FILE_SIZE_MAX).await {
            Ok(text) => rules::set_one(server, name, &query, &text),
            Err((status, why)) => error(status, &why),
        },
        (Method::DELETE, Resource::Rule(name)) => rules::remove(server, name),
        (_, Resource::Nothing) => error(
            StatusCode::NOT_FOUND,
            "there are /guard, /guard/test, /guard/rules and /guard/rules/NAME; a name has 1 to 64 \
             letters, digits, \"-\", \"_\" and \".\"",
        ),
        _ => error(
            StatusCode::METHOD_NOT_ALLOWED,
            "GET /guard and /guard/rules to read; POST /guard/test to ask; PUT /guard/rules with \
             `rule` blocks, PUT and DELETE /guard/rules/NAME to change",
        ),
    }
}

/// The whole body.
async fn receive(
    request: Request<Incoming>,
    bytes_max: usize,
) -> Result<Bytes, (StatusCode, String)> {
    let too_large = || {
        let why = format!("the body has more than {bytes_max} bytes");
        Err((StatusCode::PAYLOAD_TOO_LARGE, why))
    };
    // What is announced to be too large need not be received first.
    if request.body().size_hint().lower() > bytes_max as u64 {
        return too_large();
    }
    match Limited::new(request.into_body(), bytes_max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(cause) if cause.is::<http_body_util::LengthLimitError>() => too_large(),
        Err(cause) => Err((StatusCode::BAD_REQUEST, format!("the body did not arrive: {cause}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_resources() {
        for (path, resource) in [
            ("/guard", Resource::Status),
            ("/guard/test", Resource::Test),
            ("/guard/rules", Resource::Rules),
            ("/guard/rules/search", Resource::Rule("search")),
            ("/guard/rules/", Resource::Nothing),
            ("/guard/rules/a/b", Resource::Nothing),
            ("/guard/", Resource::Nothing),
            ("/guard/tests", Resource::Nothing),
        ] {
            assert_eq!(Resource::of(path), resource, "{path}");
        }
    }
}
