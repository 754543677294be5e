//! A content coding undone piece by piece: what there is comes out at once, and never more than
//! there is room for.

use brotli::{BrotliDecompressStream, BrotliResult, BrotliState, HeapAlloc, HuffmanCode};
use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{self, DParameter, InBuffer, Operation, OutBuffer};

use crate::adapters::AdaptError;
use crate::adapters::compress::Coding;
use crate::adapters::decode::{self, ZSTD_WINDOW_LOG_MAX};

/// As a power of two: the largest there is (RFC 1951 §2).
const GZIP_WINDOW_LOG: u8 = 15;

/// A coding that is being undone.
pub(super) struct Decoder {
    coding: Coding,
    /// Without one it is at a beginning, or behind an end.
    member: Option<Member>,
    members: u64,
    /// Its text has ended, and what comes is none.
    is_padded: bool,
    /// What was put in and not taken yet.
    input: Bytes,
    /// Bytes that have come out.
    pub(super) made: u64,
}

/// One of the texts that a coding may put behind each other.
enum Member {
    Gzip(Box<Decompress>),
    Brotli(Box<Brotli>),
    Zstd(raw::Decoder<'static>),
}

type Brotli = BrotliState<HeapAlloc<u8>, HeapAlloc<u32>, HeapAlloc<HuffmanCode>>;

/// What one call has come to.
struct Turn {
    taken: usize,
    made: usize,
    is_over: bool,
}

impl Decoder {
    pub(super) fn new(coding: Coding) -> Decoder {
        Decoder { coding, member: None, members: 0, is_padded: false, input: Bytes::new(), made: 0 }
    }

    /// Puts more in. All that was put in before must have been taken.
    pub(super) fn put(&mut self, input: Bytes) {
        self.input = input;
    }

    /// Fills `room` with as much as there is; nothing if it needs more first.
    ///
    /// # Errors
    /// [`AdaptError::Codec`] for what is none of that coding.
    pub(super) fn take(&mut self, room: &mut [u8]) -> Result<usize, AdaptError> {
        // Each turn but the last takes input.
        loop {
            self.is_padded |= self.is_padding();
            if self.is_padded {
                self.input.clear();
            }
            if self.member.is_none() && self.input.is_empty() {
                return Ok(0);
            }
            let turn = self.turn(room).map_err(|cause| self.failed(&cause))?;
            let _ = self.input.split_to(turn.taken);
            if turn.is_over {
                self.member = None;
            }
            if turn.made > 0 {
                self.made += turn.made as u64;
                return Ok(turn.made);
            }
            if turn.taken == 0 && !turn.is_over {
                return match self.input.is_empty() {
                    true => Ok(0),
                    false => Err(self.failed("it does not go on")),
                };
            }
        }
    }

    /// Nothing follows.
    ///
    /// # Errors
    /// [`AdaptError::Codec`] for what is cut off.
    pub(super) fn end(&self) -> Result<(), AdaptError> {
        match self.member {
            None => Ok(()),
            Some(_) => Err(self.failed("cut off")),
        }
    }

    /// Whether what comes next is none of the text, but stands behind it: so gzip(1) and browsers
    /// have it.
    fn is_padding(&self) -> bool {
        let is_behind = self.coding == Coding::Gzip && self.member.is_none() && self.members > 0;
        is_behind && !decode::may_be(self.coding, &self.input)
    }

    fn turn(&mut self, room: &mut [u8]) -> Result<Turn, String> {
        let member = match &mut self.member {
            Some(member) => member,
            // The others may go on with another text (RFC 1952 §2.2, RFC 8878 §3.1).
            None if self.members > 0 && self.coding == Coding::Brotli => {
                return Err("more behind its end".to_owned());
            }
            None => {
                self.members += 1;
                self.member.insert(Member::new(self.coding)?)
            }
        };
        member.turn(&self.input, room)
    }

    fn failed(&self, cause: &str) -> AdaptError {
        let cause = format!("not decoded: {cause}");
        AdaptError::Codec { what: self.coding.token(), cause }
    }
}

impl Member {
    fn new(coding: Coding) -> Result<Member, String> {
        Ok(match coding {
            Coding::Gzip => Member::Gzip(Box::new(Decompress::new_gzip(GZIP_WINDOW_LOG))),
            Coding::Brotli => {
                let (bytes, words) = (HeapAlloc::new(0), HeapAlloc::new(0));
                let codes = HeapAlloc::new(HuffmanCode::default());
                // Without windows of more than 16 MiB, which Content-Encoding does not have.
                Member::Brotli(Box::new(BrotliState::new_strict(bytes, words, codes)))
            }
            Coding::Zstd => {
                let decoder = raw::Decoder::new().and_then(|mut decoder| {
                    decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
                    Ok(decoder)
                });
                Member::Zstd(decoder.map_err(|error| error.to_string())?)
            }
        })
    }

    fn turn(&mut self, input: &[u8], room: &mut [u8]) -> Result<Turn, String> {
        match self {
            Member::Gzip(gzip) => {
                let before = (gzip.total_in(), gzip.total_out());
                let status = gzip.decompress(input, room, FlushDecompress::None);
                let status = status.map_err(|error| error.to_string())?;
                Ok(Turn {
                    taken: (gzip.total_in() - before.0) as usize,
                    made: (gzip.total_out() - before.1) as usize,
                    is_over: status == Status::StreamEnd,
                })
            }
            Member::Brotli(brotli) => {
                let (mut input_left, mut taken) = (input.len(), 0);
                let (mut room_left, mut made, mut total) = (room.len(), 0, 0);
                let result = BrotliDecompressStream(
                    &mut input_left,
                    &mut taken,
                    input,
                    &mut room_left,
                    &mut made,
                    room,
                    &mut total,
                    brotli,
                );
                match result {
                    BrotliResult::ResultFailure => Err("not brotli".to_owned()),
                    result => {
                        let is_over = matches!(result, BrotliResult::ResultSuccess);
                        Ok(Turn { taken, made, is_over })
                    }
                }
            }
            Member::Zstd(zstd) => {
                let mut from = InBuffer::around(input);
                let mut to = OutBuffer::around(room);
                let left = zstd.run(&mut from, &mut to).map_err(|error| error.to_string())?;
                Ok(Turn { taken: from.pos(), made: to.pos(), is_over: left == 0 })
            }
        }
    }
}
