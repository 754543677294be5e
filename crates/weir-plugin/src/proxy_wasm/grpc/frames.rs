//! gRPC over HTTP/2: messages in a body, each after five bytes that tell its size; and what Envoy's
//! plugins name an upstream with.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::limits::GRPC_MESSAGE_BYTES_MAX;

const PREFIX_BYTES: usize = 5;

/// A message as it is sent.
pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    // Not compressed.
    framed.put_u8(0);
    // Guests have less than 4 GiB.
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// Finds messages in a body that comes in pieces.
#[derive(Default)]
pub(super) struct Decoder(BytesMut);

impl Decoder {
    /// Adds a piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
    }

    /// The next message that is complete.
    ///
    /// # Errors
    /// gRPC's status and message: compressed (nobody said that we could read it), or too large.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, (u32, &'static str)> {
        let Some(&[compressed, a, b, c, d]) = self.0.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        if compressed != 0 {
            return Err((12, "the message is compressed"));
        }
        let size = u32::from_be_bytes([a, b, c, d]) as usize;
        if size > GRPC_MESSAGE_BYTES_MAX {
            return Err((8, "the message is too large"));
        }
        if self.0.len() < PREFIX_BYTES + size {
            return Ok(None);
        }
        self.0.advance(PREFIX_BYTES);
        Ok(Some(self.0.split_to(size).freeze()))
    }

    /// Whether a message has begun and not ended.
    pub(super) fn is_inside(&self) -> bool {
        !self.0.is_empty()
    }
}

/// The upstream's name: plain, or in the message `GrpcService { envoy_grpc { cluster_name } }` that
/// plugins made for Envoy pass instead.
pub(super) fn upstream(given: &[u8]) -> String {
    let cluster = field(given, 1).and_then(|envoy_grpc| field(envoy_grpc, 1));
    String::from_utf8_lossy(cluster.unwrap_or(given)).into_owned()
}

/// The first field of a protocol buffer, if it is the one with this number, of a length that fits.
fn field(message: &[u8], number: u8) -> Option<&[u8]> {
    let (&tag, rest) = message.split_first()?;
    let (&len, rest) = rest.split_first()?;
    // Wire type 2, and a length of one byte: names of upstreams are shorter than 128 bytes.
    (tag == number << 3 | 2 && len < 0x80).then(|| rest.get(..usize::from(len))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_messages_wherever_pieces_end() {
        let body = [&framed(b"one")[..], &framed(b""), &framed(b"three")].concat();
        for piece in 1..=body.len() {
            let (mut decoder, mut found) = (Decoder::default(), Vec::new());
            for piece in body.chunks(piece) {
                decoder.push(piece);
                while let Some(message) = decoder.next().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, [&b"one"[..], b"", b"three"]);
            assert!(!decoder.is_inside());
        }
    }

    #[test]
    fn refuses_what_cannot_be_read() {
        for (body, code) in [(&b"\x01\0\0\0\0"[..], 12), (b"\0\xff\xff\xff\xff", 8)] {
            let mut decoder = Decoder::default();
            decoder.push(body);
            assert_eq!(decoder.next().unwrap_err().0, code);
        }
    }

    #[test]
    fn upstreams_are_named_plainly_or_in_envoys_message() {
        assert_eq!(upstream(b"auth"), "auth");
        assert_eq!(upstream(b"\x0a\x06\x0a\x04auth"), "auth");
        assert_eq!(upstream(b"\x0a\x0a\x0a\x04auth\x12\x02xy"), "auth");
        assert_eq!(upstream(b"\x0a\x7fshort"), "\n\x7fshort");
    }
}
