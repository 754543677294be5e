//! What a client makes of the bytes that a service answers, without a connection: for those who try
//! what it withstands.

use bytes::{Bytes, BytesMut};

use crate::chunked::{Decoded, Decoder};
use crate::error::IcapError;
use crate::head;

/// An answer that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The service's own status.
    pub status: u16,
    /// Of the response that it put in a message's place, if it did.
    pub response_status: Option<u16>,
    /// Of the request, likewise.
    pub request_method: Option<String>,
    /// The content that has come.
    pub content: Vec<u8>,
    /// That was all of it.
    pub is_whole: bool,
}

/// Reads an answer that comes in these pieces, as far as it is there; `None` if the heads are not.
///
/// # Errors
/// What is wrong with it.
pub fn read_answer<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Option<Answer>, IcapError> {
    let mut pieces = pieces.into_iter();
    let mut buffer = BytesMut::new();
    let icap = loop {
        if let Some(icap) = head::take_icap(&mut buffer)? {
            break icap;
        }
        let Some(piece) = pieces.next() else { return Ok(None) };
        buffer.extend_from_slice(piece);
    };
    let encapsulated = icap.encapsulated()?;
    while buffer.len() < encapsulated.heads_len {
        let Some(piece) = pieces.next() else { return Ok(None) };
        buffer.extend_from_slice(piece);
    }
    let heads: Bytes = buffer.split_to(encapsulated.heads_len).freeze();
    let slice = |(begin, end): (usize, usize)| heads.slice(begin..end);
    let mut answer = Answer { status: icap.status, ..Answer::default() };
    if let Some(request) = encapsulated.request {
        answer.request_method = Some(head::request(&slice(request))?.method.to_string());
    }
    if let Some(response) = encapsulated.response {
        answer.response_status = Some(head::response(&slice(response))?.status.as_u16());
    }
    if !encapsulated.has_content {
        answer.is_whole = true;
        return Ok(Some(answer));
    }
    let mut decoder = Decoder::default();
    loop {
        match decoder.decode(&mut buffer)? {
            Decoded::Data(piece) => answer.content.extend_from_slice(&piece),
            Decoded::End => {
                answer.is_whole = true;
                return Ok(Some(answer));
            }
            Decoded::Partial => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None => return Ok(Some(answer)),
            },
        }
    }
}
