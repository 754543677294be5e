//! Frames: what a hook is shown, laid out in the guest's memory in one pass. The offsets are the
//! interface's, and so are the parts that a plugin may do without.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

use crate::exchange::RequestHead;

/// Bytes of the fixed part. Later versions may be longer, never differ in what is here.
pub(crate) const FRAME_BYTES: usize = 136;

/// Bytes of a field in a table: two slices.
const FIELD_BYTES: usize = 16;

/// The fixed part is made of words.
const WORD_BYTES: usize = 8;

/// The flags.
pub(crate) const FLAG_TLS: u32 = 1;
pub(crate) const FLAG_END: u32 = 2;
pub(crate) const FLAG_HTTP2: u32 = 4;
pub(crate) const FLAG_FILL: u32 = 8;
pub(crate) const FLAG_FAILED: u32 = 16;
pub(crate) const FLAG_AGAIN: u32 = 32;

/// Parts of a frame that a hook may do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts(u32);

impl Parts {
    pub(crate) const LINE: Parts = Parts(1);
    pub(crate) const REQUEST: Parts = Parts(2);
    pub(crate) const STATUS: Parts = Parts(4);
    pub(crate) const RESPONSE: Parts = Parts(8);
    pub(crate) const BODY: Parts = Parts(16);
    pub(crate) const ALL: Parts = Parts(u32::MAX);

    pub(crate) fn new(bits: u32) -> Parts {
        Parts(bits)
    }

    #[inline]
    pub(crate) fn has(self, part: Parts) -> bool {
        self.0 & part.0 != 0
    }

    /// Whether any of both is wanted.
    #[inline]
    pub(crate) fn has_any(self, one: Parts, other: Parts) -> bool {
        self.0 & (one.0 | other.0) != 0
    }
}

/// What a frame shows.
#[derive(Default)]
pub(crate) struct Content<'a> {
    pub(crate) hook: u32,
    pub(crate) number: u64,
    pub(crate) note: u64,
    pub(crate) flags: u32,
    pub(crate) status: u32,
    pub(crate) line: Option<&'a RequestHead>,
    pub(crate) client: Option<SocketAddr>,
    pub(crate) call: u32,
    pub(crate) request: Option<&'a HeaderMap>,
    pub(crate) response: Option<&'a HeaderMap>,
    pub(crate) trailers: Option<&'a HeaderMap>,
    pub(crate) body: Slice,
    pub(crate) body_offset: u64,
    pub(crate) ttl_ms: i64,
    pub(crate) age_ms: u64,
}

impl Content<'_> {
    /// Whether anything is behind the fixed part.
    #[inline]
    fn has_strings(&self) -> bool {
        self.line.is_some()
            || self.request.is_some()
            || self.response.is_some()
            || self.trailers.is_some()
    }
}

/// An address in the guest's memory, and a length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) ptr: u32,
    pub(crate) len: u32,
}

impl Slice {
    #[inline]
    fn word(self) -> u64 {
        pair(self.ptr, self.len)
    }
}

/// The buffer is too small; how large it must be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooSmall(pub(crate) usize);

/// Lays a frame out in `buffer`, which the guest sees at `base`.
///
/// # Errors
/// If it does not fit; part of the buffer may have been written then.
#[inline]
pub(crate) fn lay_out(buffer: &mut [u8], base: u32, content: &Content<'_>) -> Result<(), TooSmall> {
    lay_out_within(buffer, base, content).ok_or_else(|| TooSmall(bytes_needed(content)))
}

#[inline]
fn lay_out_within(buffer: &mut [u8], base: u32, content: &Content<'_>) -> Option<()> {
    let (fixed, rest) = buffer.split_first_chunk_mut::<FRAME_BYTES>()?;
    let mut words = fixed_words(content);
    if content.has_strings() {
        lay_out_strings(&mut words, rest, base + FRAME_BYTES as u32, content)?;
    }
    let (slots, _) = fixed.as_chunks_mut::<WORD_BYTES>();
    for (slot, word) in slots.iter_mut().zip(words) {
        *slot = word.to_le_bytes();
    }
    Some(())
}

/// Tables of fields, and behind them the strings that they and the fixed part refer to.
fn lay_out_strings(
    words: &mut Words,
    rest: &mut [u8],
    base: u32,
    content: &Content<'_>,
) -> Option<()> {
    let tables = [(content.request, 72), (content.response, 80), (content.trailers, 88)];
    let lines: usize = tables.iter().map(|(fields, _)| fields.map_or(0, HeaderMap::len)).sum();
    let (rows, strings) = rest.split_at_mut_checked(lines * FIELD_BYTES)?;
    // A buffer is within 4 GiB, and so is what is in it.
    let mut writer = Writer { buffer: strings, base: base + rows.len() as u32, at: 0 };
    if let Some(line) = content.line {
        words[24 / WORD_BYTES] = writer.put(line.method.as_str().as_bytes())?;
        words[32 / WORD_BYTES] = writer.put(line.authority.as_bytes())?;
        words[40 / WORD_BYTES] = writer.put(line.target.as_bytes())?;
    }
    let (mut rows, _) = rows.as_chunks_mut::<FIELD_BYTES>();
    let mut at = base;
    for (fields, offset) in tables {
        let Some(fields) = fields else { continue };
        let (table, others) = rows.split_at_mut(fields.len());
        words[offset / WORD_BYTES] = pair(fields.len() as u32, at);
        for (row, (name, value)) in table.iter_mut().zip(fields) {
            let name = writer.put(name.as_str().as_bytes())?;
            let value = writer.put(value.as_bytes())?;
            *row = (u128::from(value) << 64 | u128::from(name)).to_le_bytes();
        }
        at += (table.len() * FIELD_BYTES) as u32;
        rows = others;
    }
    Some(())
}

/// The fixed part, in words.
type Words = [u64; FRAME_BYTES / WORD_BYTES];

/// What has no length of its own. The slices that nothing is put into are 0.
#[inline]
fn fixed_words(content: &Content<'_>) -> Words {
    let mut flags = content.flags;
    if let Some(line) = content.line {
        flags |= if line.secure { FLAG_TLS } else { 0 };
        flags |= if line.version == http::Version::HTTP_2 { FLAG_HTTP2 } else { 0 };
    }
    let (address, port) = match content.client {
        None => (0, 0),
        Some(client) => {
            let address = match client.ip() {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            (u128::from_le_bytes(address.octets()), client.port())
        }
    };
    [
        pair(content.hook, flags),
        content.number,
        content.note,
        0,
        0,
        0,
        address as u64,
        (address >> 64) as u64,
        pair(u32::from(port) | (FRAME_BYTES as u32) << 16, content.status),
        0,
        0,
        0,
        content.body.word(),
        content.body_offset,
        content.ttl_ms.cast_unsigned(),
        content.age_ms,
        u64::from(content.call),
    ]
}

#[inline]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Puts strings one after the other.
struct Writer<'a> {
    buffer: &'a mut [u8],
    base: u32,
    at: usize,
}

impl Writer<'_> {
    /// The string's slice; nothing if there is no room.
    #[inline]
    fn put(&mut self, string: &[u8]) -> Option<u64> {
        let end = self.at + string.len();
        copy_short(self.buffer.get_mut(self.at..end)?, string);
        let slice = Slice { ptr: self.base + self.at as u32, len: string.len() as u32 };
        self.at = end;
        Some(slice.word())
    }
}

/// Copies between slices of the same length. Names and values are short: two moves that may overlap
/// cost less than a call of memcpy, which was two thirds of a frame's time.
#[inline]
fn copy_short(to: &mut [u8], from: &[u8]) {
    #[inline]
    fn ends<const N: usize>(to: &mut [u8], from: &[u8]) {
        let last = from.len() - N;
        to[..N].copy_from_slice(&from[..N]);
        to[last..].copy_from_slice(&from[last..]);
    }
    match from.len() {
        0 => {}
        1 => to[0] = from[0],
        2..4 => ends::<2>(to, from),
        4..8 => ends::<4>(to, from),
        8..16 => ends::<8>(to, from),
        16..=32 => ends::<16>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Bytes that a frame takes.
#[cold]
fn bytes_needed(content: &Content<'_>) -> usize {
    let line = content
        .line
        .map_or(0, |line| line.method.as_str().len() + line.authority.len() + line.target.len());
    let fields = [content.request, content.response, content.trailers]
        .into_iter()
        .flatten()
        .flatten()
        .map(|(name, value)| FIELD_BYTES + name.as_str().len() + value.len());
    FRAME_BYTES + line + fields.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, Method, Version};
    use proptest::prelude::*;

    use super::*;

    const BASE: u32 = 0x4000;

    fn text(buffer: &[u8], at: usize) -> &[u8] {
        let word = |at: usize| u32::from_le_bytes(buffer[at..at + 4].try_into().unwrap()) as usize;
        let start = word(at) - BASE as usize;
        &buffer[start..start + word(at + 4)]
    }

    proptest! {
        #[test]
        fn a_frame_fits_exactly_and_shows_everything(
            lines in prop::collection::vec(("[a-z][a-z0-9-]{0,40}", "[ -~]{0,70}"), 0..30),
            target in "/[a-z]{0,60}",
        ) {
            let headers: HeaderMap = lines
                .iter()
                .map(|(name, value)| {
                    let name = HeaderName::try_from(name.as_str()).unwrap();
                    (name, HeaderValue::try_from(value.as_str()).unwrap())
                })
                .collect();
            let head = RequestHead {
                method: Method::GET,
                secure: false,
                authority: "a".to_owned(),
                target: target.clone(),
                version: Version::HTTP_11,
                headers: HeaderMap::new(),
            };
            let content = Content {
                line: Some(&head),
                request: Some(&headers),
                trailers: Some(&headers),
                ..Content::default()
            };
            let needed = bytes_needed(&content);
            let mut buffer = vec![0; needed];
            let short = lay_out(&mut buffer[..needed - 1], BASE, &content);
            prop_assert_eq!(short, Err(TooSmall(needed)));
            prop_assert_eq!(lay_out(&mut buffer, BASE, &content), Ok(()));
            prop_assert_eq!(text(&buffer, 40), target.as_bytes());
            let mut at = FRAME_BYTES;
            for _ in 0..2 {
                for (name, value) in &headers {
                    prop_assert_eq!(text(&buffer, at), name.as_str().as_bytes());
                    prop_assert_eq!(text(&buffer, at + 8), value.as_bytes());
                    at += FIELD_BYTES;
                }
            }
        }
    }
}
