//! What a hook wants changed. One list, built in a buffer that is used again by the next hook.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::time::Duration;

/// Values of more bytes than this are referred to, not put into the list.
const INLINE_BYTES_MAX: usize = 4096;

/// The records, by the numbers of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
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

/// How a body is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Not, or no more.
    Nothing = 0,
    /// Piece by piece, as it comes.
    Pieces = 1,
    /// At once, when it is complete.
    Whole = 2,
}

/// How the cache is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    /// As without the plugin.
    Usual = 0,
    /// Neither looked into nor stored to.
    Pass = 1,
    /// The source is asked whether a stored response is still good.
    Validate = 2,
}

/// A list of edits. Which of them a hook may use is a table in the interface's specification; one
/// that is out of its place is a failure of the plugin, and nothing of the list is done then.
#[derive(Default)]
pub struct Edits {
    list: Vec<u8>,
    /// What is too long for the list.
    scratch: Vec<u8>,
    scratch_used: usize,
    /// Where in the list the address of a part of the scratch belongs, and which part it is.
    references: Vec<(usize, usize)>,
}

impl Edits {
    /// None.
    pub fn new() -> Edits {
        Edits::default()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets them, but not their memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.references.clear();
        self.scratch_used = 0;
    }

    /// The list, with the addresses of what it refers to.
    pub(crate) fn finish(&mut self) -> &[u8] {
        for &(at, offset) in &self.references {
            // Addresses of a plugin have 32 bits; elsewhere nobody follows them.
            let address = (self.scratch.as_ptr() as usize + offset) as u32;
            if let Some(place) = self.list.get_mut(at..at + 4) {
                place.copy_from_slice(&address.to_le_bytes());
            }
        }
        &self.list
    }

    // This and the next are compiled once, not once for each kind of edit that a plugin makes.
    #[inline(never)]
    fn put(&mut self, bytes: &[u8]) {
        self.list.extend_from_slice(bytes);
    }

    fn head(&mut self, op: Op, flags: u8, name: &str, value_len: usize) {
        // Names and values that are longer are refused by the host.
        let [n0, n1] = (name.len() as u16).to_le_bytes();
        let [v0, v1, v2, v3] = (value_len as u32).to_le_bytes();
        self.put(&[op as u8, flags, n0, n1, v0, v1, v2, v3]);
        self.put(name.as_bytes());
    }

    #[inline(never)]
    fn record(&mut self, op: Op, name: &str, value: &[u8]) {
        if value.len() > INLINE_BYTES_MAX {
            let part = self.scratch_part(value.len());
            self.scratch[part.clone()].copy_from_slice(value);
            return self.reference(op, name, part);
        }
        self.head(op, 0, name, value.len());
        self.put(value);
    }

    fn reference(&mut self, op: Op, name: &str, part: Range<usize>) {
        self.head(op, 1, name, 8);
        self.references.push((self.list.len(), part.start));
        self.put(&((part.len() as u64) << 32).to_le_bytes());
    }

    /// A part of the scratch buffer. What is in it, is from before.
    fn scratch_part(&mut self, len: usize) -> Range<usize> {
        let part = self.scratch_used..self.scratch_used + len;
        if self.scratch.len() < part.end {
            self.scratch.resize(part.end, 0);
        }
        self.scratch_used = part.end;
        part
    }

    /// The field has this value and no other.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> &mut Edits {
        self.record(Op::Set, name, value.as_ref());
        self
    }

    /// One more line of the field.
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) -> &mut Edits {
        self.record(Op::Add, name, value.as_ref());
        self
    }

    /// The field goes, all its lines.
    pub fn remove(&mut self, name: &str) -> &mut Edits {
        self.record(Op::Remove, name, &[]);
        self
    }

    /// The request's method.
    pub fn method(&mut self, method: &str) -> &mut Edits {
        self.record(Op::Method, "", method.as_bytes());
        self
    }

    /// The request's path and query.
    pub fn target(&mut self, target: &str) -> &mut Edits {
        self.record(Op::Target, "", target.as_bytes());
        self
    }

    /// The request's host and port.
    pub fn authority(&mut self, authority: &str) -> &mut Edits {
        self.record(Op::Authority, "", authority.as_bytes());
        self
    }

    /// The response's status.
    pub fn status(&mut self, status: u16) -> &mut Edits {
        self.record(Op::Status, "", &u32::from(status).to_le_bytes());
        self
    }

    /// Answers instead. What else is said of the answer follows on what this returns.
    pub fn answer(&mut self, status: u16) -> Answer<'_> {
        self.record(Op::Answer, "", &u32::from(status).to_le_bytes());
        Answer(self)
    }

    /// The piece of the body becomes this. Several in a row are joined.
    pub fn body(&mut self, content: impl AsRef<[u8]>) -> &mut Edits {
        self.record(Op::Body, "", content.as_ref());
        self
    }

    /// The piece of the body becomes what `write` puts into a buffer of `len` bytes; it returns how
    /// many of them count. What is in the buffer before is arbitrary. Nothing is copied but by the
    /// host.
    pub fn body_with(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> usize) -> &mut Edits {
        let part = self.scratch_part(len);
        let written = write(&mut self.scratch[part.clone()]).min(len);
        self.reference(Op::Body, "", part.start..part.start + written);
        self
    }

    /// Like [`Edits::body`], with bytes of the piece as it came, which are not copied.
    pub fn piece(&mut self, range: Range<usize>) -> &mut Edits {
        // Offset, length: two words of 32 bits.
        let place = (range.len() as u64) << 32 | u64::from(range.start as u32);
        self.record(Op::Piece, "", &place.to_le_bytes());
        self
    }

    /// The piece's last `len` bytes are shown again in front of the next piece.
    pub fn keep(&mut self, len: usize) -> &mut Edits {
        self.record(Op::Keep, "", &(len as u32).to_le_bytes());
        self
    }

    /// How the message's body is to be shown.
    pub fn want(&mut self, want: Want) -> &mut Edits {
        self.record(Op::Want, "", &(want as u32).to_le_bytes());
        self
    }

    /// The request's note becomes this.
    pub fn note(&mut self, note: u64) -> &mut Edits {
        self.record(Op::Note, "", &note.to_le_bytes());
        self
    }

    /// Holds the request: the hook is called again after a call's answer, or after this time (5
    /// seconds if it is zero).
    pub fn hold(&mut self, at_most: Duration) -> &mut Edits {
        let ms = u32::try_from(at_most.as_millis()).unwrap_or(u32::MAX);
        self.record(Op::Hold, "", &ms.to_le_bytes());
        self
    }

    /// In `on_call`: the held request goes on, and its hook is not called again.
    pub fn resume(&mut self) -> &mut Edits {
        self.record(Op::Resume, "", &[]);
        self
    }

    /// Becomes part of the cache key.
    pub fn key(&mut self, part: impl AsRef<[u8]>) -> &mut Edits {
        self.record(Op::Key, "", part.as_ref());
        self
    }

    /// How the cache is used for this request.
    pub fn cache(&mut self, mode: CacheMode) -> &mut Edits {
        self.record(Op::Cache, "", &(mode as u32).to_le_bytes());
        self
    }

    /// Freshness lifetime of the response that is stored.
    pub fn ttl(&mut self, ttl: Duration) -> &mut Edits {
        let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.record(Op::Ttl, "", &ms.to_le_bytes());
        self
    }

    /// The response is not stored.
    pub fn no_store(&mut self) -> &mut Edits {
        self.record(Op::NoStore, "", &[]);
        self
    }

    /// The request goes to the upstream of this name.
    pub fn upstream(&mut self, name: &str) -> &mut Edits {
        self.record(Op::Upstream, "", name.as_bytes());
        self
    }

    /// What rules of overload control know the request by from here on.
    pub fn verdict(&mut self, verdict: &str) -> &mut Edits {
        self.record(Op::Verdict, "", verdict.as_bytes());
        self
    }

    /// One more line of the trailer section.
    pub fn trailer(&mut self, name: &str, value: impl AsRef<[u8]>) -> &mut Edits {
        self.record(Op::Trailer, name, value.as_ref());
        self
    }

    /// The connection, or the stream in HTTP/2, ends without an answer.
    pub fn close(&mut self) -> &mut Edits {
        self.record(Op::Close, "", &[]);
        self
    }

    /// The route is found anew, by the changed target and authority.
    pub fn route(&mut self) -> &mut Edits {
        self.record(Op::Route, "", &[]);
        self
    }
}

/// A number in decimal digits, as a value or a part of a body: less code than `format!`, which a
/// small plugin otherwise does not have.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    /// The last ones are the number's.
    digits: [u8; 20],
    from: u8,
}

impl Decimal {
    /// Of this number.
    // Numbers are seldom alone.
    #[inline(never)]
    pub fn new(mut number: u64) -> Decimal {
        let mut decimal = Decimal { digits: [b'0'; 20], from: 20 };
        for digit in decimal.digits.iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
            decimal.from -= 1;
            if number == 0 {
                break;
            }
        }
        decimal
    }
}

impl AsRef<[u8]> for Decimal {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.digits.get(usize::from(self.from)..).unwrap_or_default()
    }
}

/// What follows on [`Edits::answer`].
pub struct Answer<'a>(&'a mut Edits);

impl Answer<'_> {
    /// One more line of a field.
    pub fn field(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.0.add(name, value);
        self
    }

    /// The answer's body; several in a row are joined.
    pub fn body(self, content: impl AsRef<[u8]>) -> Self {
        self.0.body(content);
        self
    }

    /// One more line of the answer's trailer section.
    pub fn trailer(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.0.trailer(name, value);
        self
    }
}

impl fmt::Display for Edits {
    /// For tests: the edits in words, such as `SET server: x; WANT 1; BODY 3 bytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &self.list[..];
        let mut separator = "";
        while let Some(([op, flags, n0, n1, v0, v1, v2, v3], behind)) = rest.split_first_chunk() {
            let name_len = usize::from(u16::from_le_bytes([*n0, *n1]));
            let value_len = u32::from_le_bytes([*v0, *v1, *v2, *v3]) as usize;
            let Some((content, behind)) = behind.split_at_checked(name_len + value_len) else {
                return f.write_str("…");
            };
            rest = behind;
            let (name, value) = content.split_at(name_len);
            f.write_str(separator)?;
            separator = "; ";
            show(f, *op, *flags, name, value)?;
        }
        Ok(())
    }
}

/// Names by number, and whether the value is a number.
const NAMES: [(&str, bool); 23] = [
    ("SET", false),
    ("ADD", false),
    ("REMOVE", false),
    ("METHOD", false),
    ("TARGET", false),
    ("AUTHORITY", false),
    ("STATUS", true),
    ("ANSWER", true),
    ("BODY", false),
    ("WANT", true),
    ("NOTE", true),
    ("HOLD", true),
    ("KEY", false),
    ("CACHE", true),
    ("TTL", true),
    ("UPSTREAM", false),
    ("TRAILER", false),
    ("CLOSE", false),
    ("ROUTE", false),
    ("NO_STORE", false),
    ("RESUME", false),
    ("KEEP", true),
    ("PIECE", false),
];

fn show(f: &mut fmt::Formatter<'_>, op: u8, flags: u8, name: &[u8], value: &[u8]) -> fmt::Result {
    let (title, is_number) = NAMES[usize::from(op - 1)];
    f.write_str(title)?;
    if !name.is_empty() {
        write!(f, " {}", name.escape_ascii())?;
    }
    let words = |bytes: &[u8]| {
        bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    match title {
        _ if is_number => write!(f, " {}", words(value)),
        "PIECE" => {
            let (offset, len) = value.split_at(4);
            write!(f, " {} bytes from {} on", words(len), words(offset))
        }
        "BODY" if flags & 1 != 0 => write!(f, " {} bytes", words(&value[4..])),
        "BODY" => write!(f, " {} bytes", value.len()),
        _ if value.is_empty() => Ok(()),
        _ if name.is_empty() => write!(f, " {}", value.escape_ascii()),
        _ => write!(f, ": {}", value.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    #[test]
    fn a_list_is_what_the_interface_says() {
        let mut edits = Edits::new();
        edits.set("a", "bc").want(Want::Pieces).remove("d");
        let expected = [
            &[1, 0, 1, 0, 2, 0, 0, 0, b'a', b'b', b'c'][..],
            &[10, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0],
            &[3, 0, 1, 0, 0, 0, 0, 0, b'd'],
        ];
        assert_eq!(edits.finish(), expected.concat());
        assert_eq!(edits.to_string(), "SET a: bc; WANT 1; REMOVE d");
        edits.clear();
        assert!(edits.is_empty());
    }

    #[test]
    fn long_bodies_are_referred_to() {
        let mut edits = Edits::new();
        edits.body(vec![7; 5000]).body_with(6000, |buffer| {
            buffer.fill(8);
            5999
        });
        edits.finish();
        assert_eq!(edits.to_string(), "BODY 5000 bytes; BODY 5999 bytes");
        assert_eq!(edits.references, [(8, 0), (24, 5000)]);
        assert_eq!(edits.scratch[..5000], [7; 5000]);
        let address =
            u32::from_le_bytes([edits.list[24], edits.list[25], edits.list[26], edits.list[27]]);
        assert_eq!(address, (edits.scratch.as_ptr() as usize + 5000) as u32);
    }

    #[test]
    fn numbers_are_written() {
        for number in [0, 7, 10, 4_294_967_295, 4_294_967_296, u64::MAX - 1, u64::MAX] {
            assert_eq!(Decimal::new(number).as_ref(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn every_operation_has_its_name() {
        assert_eq!(NAMES[Op::Piece as usize - 1].0, "PIECE");
        assert_eq!(NAMES[Op::Close as usize - 1].0, "CLOSE");
    }
}
