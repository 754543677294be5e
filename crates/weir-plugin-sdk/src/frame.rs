//! What a hook is shown. Everything is in the plugin's memory already; looking at it is looking at
//! memory.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::hook::Hook;

/// Bytes of a field in a table.
pub(crate) const FIELD_BYTES: usize = 16;

/// What a hook is shown.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// The buffer that the frame begins, and everything lies in that it refers to except a body.
    buffer: &'a [u8],
    /// The buffer's address.
    base: u32,
    body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the beginning of a buffer, and the body that it shows.
    pub(crate) fn new(buffer: &'a [u8], base: u32, body: &'a [u8]) -> Frame<'a> {
        Frame { buffer, base, body }
    }

    fn u32(&self, at: usize) -> u32 {
        match self.buffer.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => u32::from_le_bytes(*bytes),
            None => 0,
        }
    }

    fn u64(&self, at: usize) -> u64 {
        match self.buffer.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => 0,
        }
    }

    /// What the slice at `at` refers to.
    fn slice(&self, at: usize) -> &'a [u8] {
        // Address and length.
        let place = self.u64(at);
        let start = (place as u32).wrapping_sub(self.base) as usize;
        let len = (place >> 32) as usize;
        self.buffer.get(start..).and_then(|rest| rest.get(..len)).unwrap_or_default()
    }

    fn fields(&self, at: usize) -> Fields<'a> {
        // How many there are, and the table's address.
        let place = self.u64(at);
        let table = ((place >> 32) as u32).wrapping_sub(self.base) as usize;
        Fields { frame: *self, next: table, left: place as u32 as usize }
    }

    fn has(&self, flag: u32) -> bool {
        self.u32(4) & flag != 0
    }

    /// Which hook this is.
    pub fn hook(&self) -> Option<Hook> {
        Hook::new(self.u32(0))
    }

    /// The request's number: unique in the process. 0 if there is no request, in a tick.
    pub fn number(&self) -> u64 {
        self.u64(8)
    }

    /// The request's note, as the plugin last set it; 0 at first.
    pub fn note(&self) -> u64 {
        self.u64(16)
    }

    /// The client's address.
    pub fn client(&self) -> Option<SocketAddr> {
        let octets: [u8; 16] = *self.buffer.get(48..)?.first_chunk()?;
        let address = Ipv6Addr::from(octets);
        let port = (self.u32(64) & 0xffff) as u16;
        let ip = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
        (address != Ipv6Addr::UNSPECIFIED).then_some(SocketAddr::new(ip, port))
    }

    /// The request came over TLS.
    pub fn is_tls(&self) -> bool {
        self.has(1)
    }

    /// Nothing follows: the message has no content, or this is its last piece.
    pub fn is_end(&self) -> bool {
        self.has(2)
    }

    /// The request came over HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.has(4)
    }

    /// The response is seen as the source gave it, before it is stored.
    pub fn is_fill(&self) -> bool {
        self.has(8)
    }

    /// The call has failed; the body says why.
    pub fn is_failed(&self) -> bool {
        self.has(16)
    }

    /// The hook is called again after it held the request.
    pub fn is_again(&self) -> bool {
        self.has(32)
    }

    /// The request.
    pub fn request(&self) -> Request<'a> {
        Request(*self)
    }

    /// The response; in `on_call` the answer.
    pub fn response(&self) -> Response<'a> {
        Response(*self)
    }

    /// The trailer section, in the hooks of trailers and in `on_call`.
    pub fn trailers(&self) -> Fields<'a> {
        self.fields(88)
    }

    /// The body's piece, or an answer's body.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Bytes of the piece, even if the plugin does not want its content.
    pub fn body_len(&self) -> usize {
        self.u32(100) as usize
    }

    /// Bytes of the body before this piece.
    pub fn body_offset(&self) -> u64 {
        self.u64(104)
    }

    /// What is known of the stored response, in `on_hit` and `on_store`.
    pub fn stored(&self) -> Stored {
        Stored { ttl_ms: self.u64(112).cast_signed(), age_ms: self.u64(120) }
    }

    /// The call that is answered, in `on_call`.
    pub fn call(&self) -> u32 {
        self.u32(128)
    }
}

/// What is known of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Freshness lifetime left, in milliseconds; negative if it is stale.
    pub ttl_ms: i64,
    /// Age, in milliseconds.
    pub age_ms: u64,
}

/// A request.
#[derive(Clone, Copy)]
pub struct Request<'a>(Frame<'a>);

impl<'a> Request<'a> {
    /// GET, POST, …
    pub fn method(&self) -> &'a str {
        text(self.0.slice(24))
    }

    /// Host and port as the client wrote them.
    pub fn authority(&self) -> &'a str {
        text(self.0.slice(32))
    }

    /// Path and query.
    pub fn target(&self) -> &'a str {
        text(self.0.slice(40))
    }

    /// The target without its query.
    pub fn path(&self) -> &'a str {
        self.target().split('?').next().unwrap_or_default()
    }

    /// What follows the target's question mark.
    pub fn query(&self) -> Option<&'a str> {
        self.target().split_once('?').map(|(_, query)| query)
    }

    /// All fields.
    pub fn fields(&self) -> Fields<'a> {
        self.0.fields(72)
    }

    /// The first value of a field. `name` is in lower case.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields().value(name)
    }

    /// The first value of a field, if it is text. `name` is in lower case.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        core::str::from_utf8(self.field(name)?).ok()
    }
}

/// A response.
#[derive(Clone, Copy)]
pub struct Response<'a>(Frame<'a>);

impl<'a> Response<'a> {
    /// Status code; 0 while there is no response.
    pub fn status(&self) -> u16 {
        // Written by the host, from a status code.
        self.0.u32(68) as u16
    }

    /// All fields.
    pub fn fields(&self) -> Fields<'a> {
        self.0.fields(80)
    }

    /// The first value of a field. `name` is in lower case.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields().value(name)
    }

    /// The first value of a field, if it is text. `name` is in lower case.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        core::str::from_utf8(self.field(name)?).ok()
    }
}

/// The host writes text where it says text; anything else reads as nothing.
fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap_or_default()
}

/// Lines of names, in lower case, and values, in order.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    frame: Frame<'a>,
    next: usize,
    left: usize,
}

impl<'a> Fields<'a> {
    /// The first value of a name in lower case.
    pub fn value(self, name: &str) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// All values of a name in lower case.
    pub fn values(mut self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        // Names are compared as bytes: whether they are text need not be known.
        core::iter::from_fn(move || {
            loop {
                let at = self.step()?;
                if self.frame.slice(at) == name.as_bytes() {
                    return Some(self.frame.slice(at + 8));
                }
            }
        })
    }

    /// Where the next field is in the table.
    fn step(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.next;
        self.next += FIELD_BYTES;
        Some(at)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.step()?;
        Some((text(self.frame.slice(at)), self.frame.slice(at + 8)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}
