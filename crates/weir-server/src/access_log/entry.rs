//! One access record's facts.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, Method, Uri, Version, header};
use weir_http::head::PlainGet;

/// What is logged of one request.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) at: SystemTime,
    pub(crate) client: Option<IpAddr>,
    pub(crate) site: &'a str,
    pub(crate) route: &'a str,
    /// Method, target and version; `None` if the head could not be read.
    pub(crate) line: Option<(&'a Method, &'a Uri, Version)>,
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) referer: Option<&'a [u8]>,
    pub(crate) user_agent: Option<&'a [u8]>,
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) cache: &'static str,
    pub(crate) took: Duration,
    /// The body was handed over to its end.
    pub(crate) complete: bool,
    /// The class that rules have given the request, where there are rules.
    pub(crate) class: Option<&'a str>,
    /// Why overload control has refused it.
    pub(crate) refused: Option<&'static str>,
    /// The rule that did.
    pub(crate) rule: Option<&'a str>,
    /// The rule that would have, were it not only tried.
    pub(crate) dry_run: Option<&'a str>,
}

/// The part of a request that its record needs when the request itself is gone.
#[derive(Debug)]
pub(crate) struct Remembered {
    pub(crate) at: SystemTime,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) host: Option<http::HeaderValue>,
    pub(crate) referer: Option<http::HeaderValue>,
    pub(crate) user_agent: Option<http::HeaderValue>,
}

impl Remembered {
    pub(crate) fn of(method: &Method, uri: &Uri, version: Version, headers: &HeaderMap) -> Self {
        Remembered {
            at: SystemTime::now(),
            method: method.clone(),
            uri: as_written(uri, version),
            version,
            host: headers.get(header::HOST).cloned().or_else(|| authority(uri)),
            referer: headers.get(header::REFERER).cloned(),
            user_agent: headers.get(header::USER_AGENT).cloned(),
        }
    }

    pub(crate) fn of_plain(request: &PlainGet<'_>) -> Self {
        // What was parsed as a target and a value is one; if not, the line does without.
        let value = |bytes: Option<&[u8]>| HeaderValue::from_bytes(bytes?).ok();
        Remembered {
            at: SystemTime::now(),
            method: Method::GET,
            uri: request.target.parse().unwrap_or_default(),
            version: Version::HTTP_11,
            host: value(Some(request.authority)),
            referer: value(request.referer),
            user_agent: value(request.user_agent),
        }
    }
}

/// The target as a request line has it. HTTP/2's pseudo-fields (RFC 9113 §8.3.1) come as one URI
/// with scheme and host, which only a client of a forward proxy writes into a request line.
fn as_written(uri: &Uri, version: Version) -> Uri {
    let path = uri.path_and_query().filter(|_| version == Version::HTTP_2);
    path.map_or_else(|| uri.clone(), |path| Uri::from(path.clone()))
}

fn authority(uri: &Uri) -> Option<HeaderValue> {
    HeaderValue::from_str(uri.authority()?.as_str()).ok()
}
