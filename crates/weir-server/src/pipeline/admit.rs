//! Stage 2: may the request run? For now the size of its body decides.

use http::Method;
use weir_http::request::Framing;

use super::refuse::Refusal;
use crate::live::Route;

/// Admits a request or refuses it.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn admit(route: &Route, method: &Method, framing: Framing) -> Result<(), Refusal> {
    if let Framing::Length(length) = framing
        && length > route.body_size_max
    {
        return Err(Refusal::BodyTooLarge);
    }
    if *method == Method::TRACE {
        // RFC 9110 §9.3.8: echoing a request's fields tells scripts what they must not know.
        return Err(Refusal::MethodNotAllowed("GET, HEAD, OPTIONS, POST, PUT, DELETE, PATCH"));
    }
    Ok(())
}
