//! Redirects and fixed answers.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};

use super::refuse::Refusal;
use super::reply::Answer;
use super::whole::Whole;
use super::{Ask, Target};
use crate::body::ReplyBody;
use crate::live::Source;
use crate::metrics::CacheResult;
use bytes::Bytes;

/// Answers without asking anybody.
pub(super) fn answer(ask: Ask) -> Response<ReplyBody> {
    let mut headers = HeaderMap::new();
    let (status, body) = match &ask.route.source {
        Source::Redirect { status, location } => {
            let location =
                fill_in(location, &ask.target, ask.target.source_head(&ask.head).uri.query());
            match HeaderValue::from_str(&location) {
                Ok(value) => headers.insert(header::LOCATION, value),
                Err(_) => return ask.refuse(Refusal::NotFound, CacheResult::None),
            };
            (*status, Bytes::new())
        }
        Source::Respond { status, body, content_type } => {
            if !body.is_empty() {
                headers.insert(header::CONTENT_TYPE, content_type.clone());
            }
            (*status, body.clone())
        }
        // The pipeline calls this for the two above.
        Source::Files(_) | Source::Proxy(_) => {
            return ask.refuse(Refusal::NotFound, CacheResult::None);
        }
    };
    if ask.head.method == Method::OPTIONS && status == StatusCode::OK {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
    }
    ask.finish(Answer {
        status,
        headers,
        whole: Whole::Bytes(body),
        cache: CacheResult::None,
        cache_status: None,
    })
}

/// Puts the request's parts into a redirect's target. They are in URI form already.
fn fill_in(template: &str, target: &Target, query: Option<&str>) -> String {
    let path = target.forward.split('?').next().unwrap_or_default();
    template
        .replace("{uri}", &target.forward)
        .replace("{path}", path)
        .replace("{query}", query.unwrap_or_default())
        .replace("{host}", &target.host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_filled_in() {
        let target = Target {
            authority: "Shop.example:80".to_owned(),
            host: "shop.example".to_owned(),
            path: "/a%20b".to_owned(),
            forward: "/a%20b?x=1".to_owned(),
            undefined_content: false,
            variant: 0,
            upstream: None,
            origin: None,
            instead: None,
        };
        let check = |template: &str, expected: &str| {
            assert_eq!(fill_in(template, &target, Some("x=1")), expected);
        };
        check("https://{host}{uri}", "https://shop.example/a%20b?x=1");
        check("/new{path}", "/new/a%20b");
        check("/find?{query}", "/find?x=1");
        check("/fixed", "/fixed");
    }
}
