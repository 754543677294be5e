//! What a service is shown, as text (RFC 3507 §4.3, §4.4).

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Uri};
use weir_http::forward::strip_hop_by_hop;

/// A message that a service is shown, without its content.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Method of the request, which is also shown with a response.
    pub method: &'a Method,
    /// Its target: an absolute URI, so that the service knows the host without reading fields.
    pub uri: &'a Uri,
    /// Its fields.
    pub headers: &'a HeaderMap,
    /// Status and fields of the response, to be shown by RESPMOD.
    pub response: Option<(StatusCode, &'a HeaderMap)>,
    /// Fields of ICAP's own for the service, such as `X-Client-IP`.
    pub extra: &'a [(HeaderName, HeaderValue)],
}

/// How its content is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) has_content: bool,
    /// So many bytes come first.
    pub(crate) preview: Option<usize>,
    /// The service may say that the message stays as it is even after it was sent more.
    pub(crate) allows_unchanged: bool,
}

impl Shown<'_> {
    pub(crate) fn method(&self) -> &'static str {
        if self.response.is_some() { "RESPMOD" } else { "REQMOD" }
    }

    /// Its heads, the service's own before them.
    pub(crate) fn heads(&self, url: &str, authority: &str, announced: Announced) -> Vec<u8> {
        let mut request = format!("{} {} HTTP/1.1\r\n", self.method, self.uri).into_bytes();
        put(self.headers, &mut request);
        let mut response = Vec::new();
        if let Some((status, headers)) = self.response {
            let reason = status.canonical_reason().unwrap_or_default();
            response = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
            put(headers, &mut response);
        }
        let mut text = format!(
            "{} {url} ICAP/1.0\r\nHost: {authority}\r\nUser-Agent: Weir\r\n",
            self.method()
        )
        .into_bytes();
        if announced.allows_unchanged {
            text.extend_from_slice(b"Allow: 204\r\n");
        }
        if let Some(len) = announced.preview {
            text.extend_from_slice(format!("Preview: {len}\r\n").as_bytes());
        }
        for (name, value) in self.extra {
            field(name, value, &mut text);
        }
        let kind = match (announced.has_content, self.response) {
            (false, _) => "null-body",
            (true, None) => "req-body",
            (true, Some(_)) => "res-body",
        };
        let heads = match response.len() {
            0 => format!("req-hdr=0, {kind}={}", request.len()),
            len => {
                let end = request.len() + len;
                format!("req-hdr=0, res-hdr={}, {kind}={end}", request.len())
            }
        };
        text.extend_from_slice(format!("Encapsulated: {heads}\r\n\r\n").as_bytes());
        text.extend_from_slice(&request);
        text.extend_from_slice(&response);
        text
    }
}

/// Fields of an HTTP message, but for those of its hop (RFC 3507 §4.4.2), and the end of its head.
fn put(headers: &HeaderMap, text: &mut Vec<u8>) {
    let mut shown = headers.clone();
    strip_hop_by_hop(&mut shown);
    for (name, value) in &shown {
        field(name, value, text);
    }
    text.extend_from_slice(b"\r\n");
}

fn field(name: &HeaderName, value: &HeaderValue, text: &mut Vec<u8>) {
    text.extend_from_slice(name.as_str().as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value.as_bytes());
    text.extend_from_slice(b"\r\n");
}

/// Removes what a service must not say of a message: how it is framed is not its business, and how
/// long it is will be seen.
pub(crate) fn unframe(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRAILER);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_say_where_the_others_begin() {
        let uri = Uri::from_static("http://a.example/x");
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("a.example"));
        // Whatever it lists is for its hop, too.
        headers.insert("connection", HeaderValue::from_static("close, x-hop"));
        headers.insert("x-hop", HeaderValue::from_static("1"));
        headers.insert("proxy", HeaderValue::from_static("evil.example"));
        headers.insert("http2-settings", HeaderValue::from_static("AAMAAABk"));
        let mut answered = HeaderMap::new();
        answered.insert("etag", HeaderValue::from_static("\"1\""));
        let shown = Shown {
            method: &Method::GET,
            uri: &uri,
            headers: &headers,
            response: None,
            extra: &[(HeaderName::from_static("x-client-ip"), HeaderValue::from_static("::1"))],
        };
        let none = Announced { has_content: false, preview: None, allows_unchanged: true };
        let text = |shown: Shown<'_>, announced| {
            String::from_utf8(shown.heads("icap://i:1344/m", "i:1344", announced)).unwrap()
        };
        let request = "GET http://a.example/x HTTP/1.1\r\nhost: a.example\r\n\r\n";
        assert_eq!(
            text(shown, none),
            format!(
                "REQMOD icap://i:1344/m ICAP/1.0\r\nHost: i:1344\r\nUser-Agent: Weir\r\n\
                 Allow: 204\r\nx-client-ip: ::1\r\n\
                 Encapsulated: req-hdr=0, null-body={}\r\n\r\n{request}",
                request.len()
            )
        );
        let shown = Shown { response: Some((StatusCode::OK, &answered)), extra: &[], ..shown };
        let some = Announced { has_content: true, preview: Some(7), allows_unchanged: false };
        let response = "HTTP/1.1 200 OK\r\netag: \"1\"\r\n\r\n";
        assert_eq!(
            text(shown, some),
            format!(
                "RESPMOD icap://i:1344/m ICAP/1.0\r\nHost: i:1344\r\nUser-Agent: Weir\r\n\
                 Preview: 7\r\nEncapsulated: req-hdr=0, res-hdr={}, res-body={}\r\n\r\n\
                 {request}{response}",
                request.len(),
                request.len() + response.len()
            )
        );
    }
}
