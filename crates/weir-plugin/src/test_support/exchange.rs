//! The request of these tests: its facts, its heads, and fields for others.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, Method, StatusCode, Version};

use crate::exchange::{About, Facts, Lent, RequestHead, ResponseHead};
use crate::properties::{Properties, Value};

/// What a connection and a route know.
struct Known(&'static [(&'static str, &'static str)]);

impl Properties for Known {
    fn property(&self, path: &[&str]) -> Option<Value> {
        let path = path.join(".");
        self.0.iter().find(|(known, _)| *known == path).map(|(_, value)| (*value).into())
    }
}

/// The facts of every request of these tests.
pub(crate) fn facts() -> Facts {
    let about = About {
        client: Some("192.0.2.7:4711".parse().unwrap()),
        connection: Arc::new(Known(&[
            ("destination.address", "192.0.2.1:443"),
            ("connection.tls_version", "TLSv1.3"),
        ])),
        route: Arc::new(Known(&[("route_name", "shop /cart"), ("cluster_name", "up")])),
        fills: false,
    };
    Facts { about: Arc::new(about), started: Instant::now(), bag: None }
}

/// Fields by name and value.
pub(crate) fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (name.parse().unwrap(), http::HeaderValue::from_static(value))
    };
    let mut map = HeaderMap::new();
    pairs.iter().map(pair).for_each(|(name, value): (http::HeaderName, _)| {
        map.append(name, value);
    });
    map
}

/// `GET https://shop.example/cart?id=7` with three fields.
pub(crate) fn request_head() -> Lent<RequestHead> {
    Lent::Own(RequestHead {
        method: Method::GET,
        secure: true,
        authority: "shop.example".to_owned(),
        target: "/cart?id=7".to_owned(),
        version: Version::HTTP_11,
        headers: fields(&[("accept", "text/html"), ("x-a", "1"), ("x-a", "2")]),
    })
}

/// `200` with two fields.
pub(crate) fn response_head() -> Lent<ResponseHead> {
    let headers = fields(&[("content-type", "text/html"), ("x-b", "3")]);
    Lent::Own(ResponseHead { status: StatusCode::OK, headers })
}
