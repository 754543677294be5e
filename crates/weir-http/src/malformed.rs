//! The crate's error: why a request is refused. Each variant's text is short enough for a log
//! line and safe for the body of the refusal: it never repeats the client's bytes.

use http::StatusCode;

/// Why a request must not be served or forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Neither HTTP/1.0, HTTP/1.1 nor HTTP/2.
    #[error("HTTP version is not 1.0, 1.1 or 2")]
    Version,
    /// CONNECT where there is no forward proxy.
    #[error("CONNECT is not supported")]
    Connect,
    /// CONNECT with content, which has no meaning (RFC 9110 §9.3.6).
    #[error("CONNECT has no content")]
    ConnectContent,
    /// The request target's form does not fit the method (RFC 9112 §3.2).
    #[error("request target form does not fit the method")]
    Target,
    /// An absolute-form target with a scheme other than http or https.
    #[error("target scheme is not http or https")]
    Scheme,
    /// No Host where one is required (RFC 9112 §3.2, RFC 9113 §8.3.1).
    #[error("Host is missing")]
    HostMissing,
    /// More than one Host field line.
    #[error("more than one Host")]
    HostRepeated,
    /// Host or target authority is not `name[:port]` (RFC 3986 §3.2, without user information).
    #[error("Host is not a valid name and port")]
    Host,
    /// HTTP/2 `:authority` and Host differ (RFC 9113 §8.3.1).
    #[error("Host differs from :authority")]
    HostDiffers,
    /// A Content-Length that is not a plain decimal number (RFC 9112 §6.3).
    #[error("Content-Length is not a decimal number")]
    ContentLength,
    /// More than one Content-Length field line.
    #[error("more than one Content-Length")]
    ContentLengthRepeated,
    /// Both Content-Length and Transfer-Encoding (RFC 9112 §6.3).
    #[error("both Content-Length and Transfer-Encoding")]
    BothLengths,
    /// Transfer-Encoding whose last coding is not chunked, applied once.
    #[error("Transfer-Encoding is not chunked")]
    TransferEncoding,
    /// Codings besides chunked, which Weir does not decode (RFC 9112 §6.1: 501).
    #[error("Transfer-Encoding other than chunked is not supported")]
    TransferCoding,
    /// Transfer-Encoding in HTTP/1.0 or HTTP/2, where it has no meaning.
    #[error("Transfer-Encoding is not allowed in this HTTP version")]
    TransferEncodingVersion,
    /// A field name that another server may take for Content-Length, Transfer-Encoding or Host.
    #[error("a field name imitates Content-Length, Transfer-Encoding or Host")]
    SuspiciousName,
    /// The path does not start with a slash.
    #[error("path does not start with /")]
    PathStart,
    /// `%` without two hexadecimal digits in the path.
    #[error("path has an invalid percent-encoding")]
    PathEncoding,
    /// NUL in the path, raw or encoded.
    #[error("path contains NUL")]
    PathNul,
    /// A control character in the path, unencoded.
    #[error("path contains a control character")]
    PathControl,
    /// `..` that climbs above the root.
    #[error("path climbs above the root")]
    PathClimbs,
    /// An encoded slash, a backslash or an encoded dot segment where a file name is needed.
    #[error("path does not name a file")]
    PathFile,
}

impl Malformed {
    /// The status of the refusal. The connection is to be closed after any of them.
    pub fn status(self) -> StatusCode {
        match self {
            Malformed::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Malformed::Connect | Malformed::TransferCoding => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}
