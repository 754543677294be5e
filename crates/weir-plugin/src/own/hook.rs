//! The hooks of the interface by number and name, and what parts of a frame each shows.

use crate::exchange::Phase;

/// A hook, by the number that its frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Connection = 1,
    Request = 2,
    RequestBody = 3,
    RequestTrailers = 4,
    Lookup = 5,
    Hit = 6,
    Miss = 7,
    Store = 8,
    Response = 9,
    ResponseBody = 10,
    ResponseTrailers = 11,
    Log = 12,
    Tick = 13,
    Call = 14,
}

/// Length of a table by a hook's number.
pub(crate) const HOOK_SLOTS: usize = 15;

impl Hook {
    pub(crate) const ALL: [Hook; 14] = [
        Hook::Connection,
        Hook::Request,
        Hook::RequestBody,
        Hook::RequestTrailers,
        Hook::Lookup,
        Hook::Hit,
        Hook::Miss,
        Hook::Store,
        Hook::Response,
        Hook::ResponseBody,
        Hook::ResponseTrailers,
        Hook::Log,
        Hook::Tick,
        Hook::Call,
    ];

    /// The hook that serves a phase; none for those of bare connections, which only proxy-wasm has.
    #[inline]
    pub(crate) fn of(phase: Phase) -> Option<Hook> {
        Some(match phase {
            Phase::Connection => Hook::Connection,
            Phase::RequestHead => Hook::Request,
            Phase::RequestBody => Hook::RequestBody,
            Phase::RequestTrailers => Hook::RequestTrailers,
            Phase::Lookup => Hook::Lookup,
            Phase::Hit => Hook::Hit,
            Phase::Miss => Hook::Miss,
            Phase::Store => Hook::Store,
            Phase::ResponseHead => Hook::Response,
            Phase::ResponseBody => Hook::ResponseBody,
            Phase::ResponseTrailers => Hook::ResponseTrailers,
            Phase::Log => Hook::Log,
            _ => return None,
        })
    }

    /// The function that a module exports for it.
    pub(crate) fn export(self) -> &'static str {
        match self {
            Hook::Connection => "weir_on_connection",
            Hook::Request => "weir_on_request",
            Hook::RequestBody => "weir_on_request_body",
            Hook::RequestTrailers => "weir_on_request_trailers",
            Hook::Lookup => "weir_on_lookup",
            Hook::Hit => "weir_on_hit",
            Hook::Miss => "weir_on_miss",
            Hook::Store => "weir_on_store",
            Hook::Response => "weir_on_response",
            Hook::ResponseBody => "weir_on_response_body",
            Hook::ResponseTrailers => "weir_on_response_trailers",
            Hook::Log => "weir_on_log",
            Hook::Tick => "weir_on_tick",
            Hook::Call => "weir_on_call",
        }
    }

    /// It is about the response, or the request: whose fields its edits change.
    pub(crate) fn side(self) -> Side {
        match self {
            Hook::Store | Hook::Response | Hook::ResponseBody | Hook::ResponseTrailers => {
                Side::Response
            }
            _ => Side::Request,
        }
    }

    /// It shows pieces of a body.
    pub(crate) fn shows_body(self) -> bool {
        matches!(self, Hook::RequestBody | Hook::ResponseBody)
    }

    /// It shows, and its edits change, a trailer section.
    pub(crate) fn shows_trailers(self) -> bool {
        matches!(self, Hook::RequestTrailers | Hook::ResponseTrailers)
    }
}

/// One of an exchange's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Request,
    Response,
}

/// Hooks, as a bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HookSet(u32);

impl HookSet {
    pub(crate) const fn of(hooks: &[Hook]) -> HookSet {
        let (mut bits, mut index) = (0, 0);
        while index < hooks.len() {
            bits |= 1 << hooks[index] as u32;
            index += 1;
        }
        HookSet(bits)
    }

    pub(crate) fn has(self, hook: Hook) -> bool {
        self.0 & 1 << hook as u32 != 0
    }
}
