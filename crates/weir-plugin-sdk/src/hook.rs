//! Hooks by number, and the parts of frames.

/// A hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hook {
    /// A connection's first request has come.
    Connection = 1,
    /// The request's head is there.
    Request = 2,
    /// A piece of the request's body.
    RequestBody = 3,
    /// The request's trailer section.
    RequestTrailers = 4,
    /// The cache is about to be looked into.
    Lookup = 5,
    /// There is a stored response.
    Hit = 6,
    /// There is none.
    Miss = 7,
    /// A response is about to be stored.
    Store = 8,
    /// The response's head is there.
    Response = 9,
    /// A piece of the response's body.
    ResponseBody = 10,
    /// The response's trailer section.
    ResponseTrailers = 11,
    /// The request is over.
    Log = 12,
    /// The plugin's timer.
    Tick = 13,
    /// The answer to a call.
    Call = 14,
}

impl Hook {
    /// By number.
    pub fn new(number: u32) -> Option<Hook> {
        use Hook::{
            Call, Connection, Hit, Log, Lookup, Miss, Request, RequestBody, RequestTrailers,
            Response, ResponseBody, ResponseTrailers, Store, Tick,
        };
        let all = [
            Connection,
            Request,
            RequestBody,
            RequestTrailers,
            Lookup,
            Hit,
            Miss,
            Store,
            Response,
            ResponseBody,
            ResponseTrailers,
            Log,
            Tick,
            Call,
        ];
        all.into_iter().find(|hook| *hook as u32 == number)
    }
}

/// Parts of a frame that the host need not lay out if a plugin does not look at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts(u32);

impl Parts {
    /// Only what is always there: the note, the flags, the client's address, the trailer section.
    pub const NONE: Parts = Parts(0);
    /// The request's method, authority and target, and the flags for TLS and HTTP/2.
    pub const LINE: Parts = Parts(1);
    /// The request's fields.
    pub const REQUEST: Parts = Parts(2);
    /// The response's status.
    pub const STATUS: Parts = Parts(4);
    /// The response's fields.
    pub const RESPONSE: Parts = Parts(8);
    /// The content of pieces of bodies.
    pub const BODY: Parts = Parts(16);
    /// Everything.
    pub const ALL: Parts = Parts(u32::MAX);

    /// As the host reads it.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl core::ops::BitOr for Parts {
    type Output = Parts;

    fn bitor(self, other: Parts) -> Parts {
        Parts(self.0 | other.0)
    }
}
