//! What is made of a source's response once, before it is stored, by those who say of themselves
//! that they work there (`Stage::Fill`): an ICAP service, then plugins.

use http::Response;
use http::request::Parts;
use weir_origin::upstream::ResponseBody;

use super::icap;
use super::plugins::Passage;
use crate::connection::Connection;
use crate::live::Route;

/// What the source answered, as those who work at the fill have made it so far.
pub(super) struct Filled {
    pub(super) response: Response<ResponseBody>,
    /// Who does not let it be stored: that one has failed over it, or forbids it.
    pub(super) marred_by: Option<&'static str>,
    /// Freshness lifetime, if somebody has one of its own.
    pub(super) ttl_ms: Option<u64>,
}

/// Whoever makes something else of responses at the fill.
pub(super) trait AtFill {
    /// What it makes of one that those before it have made.
    fn fill(&self, filled: Filled) -> impl Future<Output = Filled> + Send;
}

impl Filled {
    /// Nobody has made anything of it.
    pub(super) fn as_it_is(response: Response<ResponseBody>) -> Filled {
        Filled { response, marred_by: None, ttl_ms: None }
    }
}

/// The request that is answered, as those who work at the fill are told of it.
pub(super) struct Answered<'a> {
    pub(super) connection: &'a Connection,
    pub(super) route: &'a Route,
    pub(super) head: &'a Parts,
    pub(super) authority: &'a str,
    /// Its way through plugins, if it has some.
    pub(super) passage: Option<&'a Passage>,
    /// The source was asked with HEAD.
    pub(super) is_head: bool,
}

/// Has it made.
pub(super) async fn fill(asked: &Answered<'_>, response: Response<ResponseBody>) -> Filled {
    let mut filled = Filled::as_it_is(response);
    if let Some(service) = icap::at_fill(asked) {
        filled = service.fill(filled).await;
    }
    for plugin in asked.passage.iter().flat_map(|passage| passage.at_fill(asked.is_head)) {
        filled = plugin.fill(filled).await;
    }
    filled
}
