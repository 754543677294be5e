//! Lists of ads as they are tried out: what they would do with one request, and hide on one page.

use http::Uri;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use weir_adapt::ads::{Ads, Explained, Kind};

use super::ads::{Wish, field, question};

/// A request that lists are asked about.
#[derive(Debug)]
pub struct AdsRequest {
    is_secure: bool,
    host: String,
    target: String,
    fields: HeaderMap,
}

/// What lists would do with a request.
#[derive(Debug)]
pub struct AdsAnswer {
    /// What it is taken to be for.
    pub kind: Kind,
    /// What they say, and by which rule.
    pub explained: Explained,
}

impl AdsRequest {
    /// A request for a whole URL, with header fields as `NAME: VALUE`.
    ///
    /// # Errors
    /// What of them is none, in words.
    pub fn new(url: &str, fields: &[String]) -> Result<AdsRequest, String> {
        let wrong = || format!("{url:?} is no whole URL; expected one such as https://a.example/");
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        let host = weir_http::host::parse(authority.as_str().as_bytes()).map_err(|_| wrong())?;
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut headers = HeaderMap::new();
        for line in fields {
            let wrong =
                || format!("{line:?} is no header field; expected one such as \"Accept: */*\"");
            let (name, value) = line.split_once(':').ok_or_else(wrong)?;
            let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
            headers.append(name, HeaderValue::from_str(value.trim()).map_err(|_| wrong())?);
        }
        Ok(AdsRequest {
            is_secure,
            host: host.name.into_owned(),
            target: target.to_owned(),
            fields: headers,
        })
    }

    /// The host that is asked, in lower case and without its port.
    pub fn host(&self) -> &str {
        &self.host
    }
}

/// What lists would do with a request, if a route had them.
pub fn judge(ads: &Ads, request: &AdsRequest) -> AdsAnswer {
    let AdsRequest { is_secure, host, target, fields } = request;
    let path = target.split('?').next().unwrap_or_default();
    let wish = Wish { is_secure: *is_secure, host, target, path };
    let question = question(&wish, |name| field(fields, name));
    AdsAnswer { kind: question.kind, explained: ads.explain(&question) }
}
