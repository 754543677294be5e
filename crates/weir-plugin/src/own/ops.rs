//! The edits of the interface: one table of their numbers, their shapes and the hooks that may use
//! them. The decoder, the specification, the C header and the SDK are held against it.

use super::hook::Hook::{
    Connection, Hit, Lookup, Miss, Request, RequestBody, RequestTrailers, Response, ResponseBody,
    ResponseTrailers, Store,
};
use super::hook::HookSet;
use crate::limits::PAUSE_MAX;

/// An edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Set = 1,
    Add = 2,
    Remove = 3,
    Method = 4,
    Target = 5,
    Authority = 6,
    Status = 7,
    Answer = 8,
    Body = 9,
    Want = 10,
    Note = 11,
    Hold = 12,
    Key = 13,
    Cache = 14,
    Ttl = 15,
    Upstream = 16,
    Trailer = 17,
    Close = 18,
    Route = 19,
    NoStore = 20,
    Resume = 21,
    Keep = 22,
    Piece = 23,
    Verdict = 24,
}

/// What a record's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Nothing,
    Bytes,
    /// 4 bytes, little endian.
    U32,
    /// 8 bytes, little endian.
    U64,
    /// Two of 4 bytes.
    Span,
}

/// A row of the table.
pub(crate) struct Spec {
    pub(crate) op: Op,
    pub(crate) name: &'static str,
    /// The record has a name.
    pub(crate) named: bool,
    pub(crate) value: Shape,
    /// The largest number that is allowed, for numbers.
    pub(crate) max: u64,
    pub(crate) hooks: HookSet,
    /// It may follow ANSWER; fields, trailers and body are the answer's then.
    pub(crate) in_answer: bool,
    /// For the specification.
    #[cfg_attr(not(test), expect(dead_code, reason = "the specification is checked by a test"))]
    pub(crate) meaning: &'static str,
}

/// Every hook that is about a request and comes before its end.
const ANYWHERE: HookSet = HookSet::of(&[
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
]);
const FIELDS: HookSet =
    HookSet::of(&[Request, RequestTrailers, Lookup, Miss, Store, Response, ResponseTrailers]);
const LINE: HookSet = HookSet::of(&[Request, Miss]);
const BODIES: HookSet = HookSet::of(&[RequestBody, ResponseBody]);
const TRAILERS: HookSet =
    HookSet::of(&[RequestBody, RequestTrailers, ResponseBody, ResponseTrailers]);

#[rustfmt::skip] // A table.
pub(crate) const OPS: &[Spec] = &[
    row(Op::Set, "SET", true, Shape::Bytes, FIELDS).answer()
        .means("the field `name` has this value and no other"),
    row(Op::Add, "ADD", true, Shape::Bytes, FIELDS).answer()
        .means("one more line of the field `name`"),
    row(Op::Remove, "REMOVE", true, Shape::Nothing, FIELDS)
        .means("the field `name` goes, all its lines"),
    row(Op::Method, "METHOD", false, Shape::Bytes, LINE)
        .means("the request's method; not CONNECT"),
    row(Op::Target, "TARGET", false, Shape::Bytes, LINE)
        .means("path and query, beginning with `/`, or `*`"),
    row(Op::Authority, "AUTHORITY", false, Shape::Bytes, LINE)
        .means("host and port, as in Host"),
    row(Op::Status, "STATUS", false, Shape::U32, HookSet::of(&[Store, Response])).max(599)
        .means("the response's status, 200 to 599"),
    row(Op::Answer, "ANSWER", false, Shape::U32, ANYWHERE).max(599)
        .means("answer so instead, status 200 to 599; SET, ADD, BODY and TRAILER after it are the answer's"),
    row(Op::Body, "BODY", false, Shape::Bytes, BODIES).answer()
        .means("the piece becomes this; several in a row are joined"),
    row(Op::Want, "WANT", false, Shape::U32, HookSet::of(&[Request, RequestBody, Response, ResponseBody])).max(2)
        .means("how the message's body is shown: 0 not, 1 in pieces, 2 as a whole; in a body's hook only 0: no more"),
    row(Op::Note, "NOTE", false, Shape::U64, ANYWHERE).answer()
        .means("the request's note becomes this"),
    row(Op::Hold, "HOLD", false, Shape::U32, ANYWHERE).max(HOLD_MS_MAX)
        .means("wait: call this hook again, after a call's answer or after so many milliseconds (0: 5,000)"),
    row(Op::Key, "KEY", false, Shape::Bytes, HookSet::of(&[Lookup]))
        .means("becomes part of the cache key; at most 1,024 bytes"),
    row(Op::Cache, "CACHE", false, Shape::U32, HookSet::of(&[Lookup, Hit])).max(2)
        .means("0 as usual, 1 neither look up nor store, 2 ask the source whether it is still good"),
    row(Op::Ttl, "TTL", false, Shape::U64, HookSet::of(&[Store])).max(TTL_MS_MAX)
        .means("freshness lifetime in milliseconds"),
    row(Op::Upstream, "UPSTREAM", false, Shape::Bytes, LINE)
        .means("send the request to the upstream of this name"),
    row(Op::Trailer, "TRAILER", true, Shape::Bytes, TRAILERS).answer()
        .means("one more line of the trailer section"),
    row(Op::Close, "CLOSE", false, Shape::Nothing, ANYWHERE)
        .means("end the connection (HTTP/2: the stream) without an answer"),
    row(Op::Route, "ROUTE", false, Shape::Nothing, HookSet::of(&[Request]))
        .means("find the route anew, by the changed target and authority"),
    row(Op::NoStore, "NO_STORE", false, Shape::Nothing, HookSet::of(&[Store]))
        .means("do not store the response"),
    row(Op::Resume, "RESUME", false, Shape::Nothing, HookSet::of(&[]))
        .means("only in weir_on_call: the held request goes on, its hook is not called again"),
    row(Op::Keep, "KEEP", false, Shape::U32, BODIES).max(KEEP_BYTES_MAX)
        .means("the piece's last bytes, so many, are shown again in front of the next piece; not with the last"),
    row(Op::Piece, "PIECE", false, Shape::Span, BODIES)
        .means("like BODY, with bytes of the piece as it came: offset and length; not copied"),
    row(Op::Verdict, "VERDICT", false, Shape::Bytes, HookSet::of(&[Request]))
        .means("what rules of overload control know the request by from here on; at most 256 bytes"),
];

/// Longest hold: a pause's.
pub(crate) const HOLD_MS_MAX: u64 = PAUSE_MAX.as_secs() * 1000;

/// A year: what HTTP's own delta-seconds are held to be enough for.
pub(crate) const TTL_MS_MAX: u64 = 365 * 24 * 3600 * 1000;

/// What a body hook may leave for the next piece. A plugin that needs more at once wants the whole.
pub(crate) const KEEP_BYTES_MAX: u64 = 64 << 10;

const fn row(op: Op, name: &'static str, named: bool, value: Shape, hooks: HookSet) -> Spec {
    Spec { op, name, named, value, max: u64::MAX, hooks, in_answer: false, meaning: "" }
}

impl Spec {
    const fn answer(self) -> Spec {
        Spec { in_answer: true, ..self }
    }

    const fn max(self, max: u64) -> Spec {
        Spec { max, ..self }
    }

    const fn means(self, meaning: &'static str) -> Spec {
        Spec { meaning, ..self }
    }
}

impl Op {
    /// The table's row for a number.
    pub(crate) fn spec(number: u8) -> Option<&'static Spec> {
        OPS.get(usize::from(number).checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_numbers() {
        for (index, spec) in OPS.iter().enumerate() {
            assert_eq!(spec.op as usize, index + 1, "{}", spec.name);
            assert!(!spec.meaning.is_empty());
        }
    }
}
