//! Content codings undone, so that what is in them can be adapted; within limits, since a few bytes
//! may stand for as many as somebody likes.

use std::io::{self, Read, Write};

use super::AdaptError;
use super::compress::Coding;
use crate::job::Limits;

/// Codings on top of each other. Nobody has a use for more than one.
pub const CODINGS_MAX: usize = 2;

/// Bytes that may come of one. Text becomes twenty times smaller, a page of nothing but one letter
/// a thousand times (all that gzip can do) or more.
const RATIO_MAX: u64 = 500;

/// So much may always come of it, since what is small may be coded well.
const FREE_BYTES: u64 = 1 << 20;

/// What is looked back to, as a power of two: 8 MiB, as browsers have it (RFC 9659 §3).
pub(crate) const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Output is made by pieces of this size.
const PIECE_BYTES: usize = 32 << 10;

/// Undoes codings, given in the order in which they were applied.
///
/// # Errors
/// [`AdaptError::Codec`] for what is none of that coding, is cut off, or goes on behind its end,
/// but for gzip, where that is padding to gzip(1) and browsers;
/// [`AdaptError::Bomb`] and [`AdaptError::TooLarge`] for more than may come of it.
pub fn decode(input: &[u8], codings: &[Coding], limits: &Limits) -> Result<Vec<u8>, AdaptError> {
    if codings.len() > CODINGS_MAX {
        let cause = format!("{} codings, of {CODINGS_MAX} at most", codings.len());
        return Err(AdaptError::Codec { what: "decode", cause });
    }
    let by_ratio = (input.len() as u64).saturating_mul(RATIO_MAX).max(FREE_BYTES);
    let mut decoded = Vec::new();
    for (index, coding) in codings.iter().rev().enumerate() {
        let from = if index == 0 { input } else { &decoded };
        decoded = undo(from, *coding, by_ratio, limits.output_bytes)?;
    }
    Ok(decoded)
}

/// Whether what begins like this may be of a coding, as far as that can be seen without decoding:
/// brotli has no mark of its own.
#[must_use]
pub fn may_be(coding: Coding, beginning: &[u8]) -> bool {
    let begins = |mark: &[u8]| beginning.iter().zip(mark).all(|(byte, mark)| byte == mark);
    match coding {
        // Deflate, and nothing else (RFC 1952 §2.3.1).
        Coding::Gzip => begins(b"\x1f\x8b\x08"),
        Coding::Brotli => true,
        // A frame, or one to be skipped, of which there are sixteen kinds (RFC 8878 §3.1).
        Coding::Zstd => {
            let is_skipped = beginning.first().is_none_or(|byte| byte & 0xf0 == 0x50);
            let rest = beginning.get(1..).unwrap_or_default();
            begins(b"\x28\xb5\x2f\xfd")
                || is_skipped && rest.iter().zip(b"\x2a\x4d\x18").all(|(byte, mark)| byte == mark)
        }
    }
}

/// Whether so many bytes may come of as many that were taken in.
///
/// # Errors
/// [`AdaptError::Bomb`].
pub(crate) fn judge_ratio(made: u64, taken: u64) -> Result<(), AdaptError> {
    match made > taken.saturating_mul(RATIO_MAX).max(FREE_BYTES) {
        true => Err(AdaptError::Bomb { ratio: RATIO_MAX }),
        false => Ok(()),
    }
}

fn undo(input: &[u8], coding: Coding, by_ratio: u64, limit: u64) -> Result<Vec<u8>, AdaptError> {
    let failed = |error: io::Error| AdaptError::Codec {
        what: coding.token(),
        cause: format!("not decoded: {error}"),
    };
    match coding {
        Coding::Gzip => bounded(Members::new(input), by_ratio, limit, failed),
        Coding::Brotli => brotli(input, by_ratio, limit, failed),
        Coding::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(input).map_err(failed)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(failed)?;
            bounded(decoder, by_ratio, limit, failed)
        }
    }
}

/// Members of gzip, which are one text (RFC 1952 §2.2), and padding behind them.
struct Members<'i>(flate2::bufread::GzDecoder<&'i [u8]>);

impl<'i> Members<'i> {
    fn new(input: &'i [u8]) -> Members<'i> {
        Members(flate2::bufread::GzDecoder::new(input))
    }
}

impl Read for Members<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(room)?;
            let rest = *self.0.get_ref();
            if read > 0 || room.is_empty() || rest.is_empty() || !may_be(Coding::Gzip, rest) {
                return Ok(read);
            }
            self.0 = flate2::bufread::GzDecoder::new(rest);
        }
    }
}

fn bounded(
    mut decoder: impl Read,
    by_ratio: u64,
    limit_bytes: u64,
    failed: impl Fn(io::Error) -> AdaptError,
) -> Result<Vec<u8>, AdaptError> {
    let mut room = Room { bytes: Vec::new(), by_ratio, limit_bytes, exceeded: None };
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = match decoder.read(&mut piece) {
            Ok(0) => return Ok(room.bytes),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        };
        room.take(&piece[..read])?;
    }
}

/// Written to the decoder, since one that is read says nothing of what comes behind the end.
fn brotli(
    input: &[u8],
    by_ratio: u64,
    limit_bytes: u64,
    failed: impl Fn(io::Error) -> AdaptError,
) -> Result<Vec<u8>, AdaptError> {
    let room = Room { bytes: Vec::new(), by_ratio, limit_bytes, exceeded: None };
    let mut decoder = brotli::DecompressorWriter::new(room, PIECE_BYTES);
    let written = decoder.write(input);
    let (room, is_whole) = match decoder.into_inner() {
        Ok(room) => (room, true),
        Err(room) => (room, false),
    };
    let invalid = |what: &str| failed(io::Error::new(io::ErrorKind::InvalidData, what));
    match (room.exceeded, written) {
        (Some(exceeded), _) => Err(exceeded),
        (None, Err(error)) => Err(failed(error)),
        (None, Ok(written)) if written < input.len() => Err(invalid("more behind its end")),
        (None, Ok(_)) if !is_whole => Err(invalid("cut off")),
        (None, Ok(_)) => Ok(room.bytes),
    }
}

/// Decoded bytes, as many as there may be.
struct Room {
    bytes: Vec<u8>,
    by_ratio: u64,
    limit_bytes: u64,
    /// Why there was no room for more, where that cannot be told at once.
    exceeded: Option<AdaptError>,
}

impl Room {
    fn take(&mut self, piece: &[u8]) -> Result<(), AdaptError> {
        let len = (self.bytes.len() + piece.len()) as u64;
        if len > self.by_ratio {
            return Err(AdaptError::Bomb { ratio: RATIO_MAX });
        }
        if len > self.limit_bytes {
            return Err(AdaptError::TooLarge { limit_bytes: self.limit_bytes });
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

impl Write for Room {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match self.take(piece) {
            Ok(()) => Ok(piece.len()),
            Err(exceeded) => {
                self.exceeded = Some(exceeded);
                Err(io::ErrorKind::FileTooLarge.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::Adapted;
    use super::super::compress::{Compress, compress_anyway};
    use super::*;

    const ALL: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];
    const LIMITS: Limits = Limits { output_bytes: 8 << 20, time: Duration::from_secs(60) };
    const MOST: Limits = Limits { output_bytes: u64::MAX, time: Duration::from_secs(60) };

    fn coded(input: &[u8], coding: Coding) -> Vec<u8> {
        let level = coding.levels().1.min(6);
        match compress_anyway(input, &Compress { coding, level }, &MOST).unwrap() {
            Adapted::Made(bytes, _) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_coded_begins_so() {
        for coding in ALL {
            let coded = coded(b"Weir", coding);
            for len in 0..=coded.len() {
                assert!(may_be(coding, &coded[..len]), "{coding:?}, {len} bytes");
            }
            assert_eq!(may_be(coding, b"<html>"), coding == Coding::Brotli);
        }
        assert!(may_be(Coding::Zstd, b"\x5a\x2a\x4d\x18 and more"));
        assert!(!may_be(Coding::Zstd, b"\x6a\x2a\x4d\x18"));
        assert!(!may_be(Coding::Gzip, b"\x1f\x8b\x07"));
    }

    #[test]
    fn what_was_coded_comes_back() {
        let text = "Weir serves what is asked for. ".repeat(3000).into_bytes();
        for first in ALL {
            assert_eq!(decode(&coded(&text, first), &[first], &LIMITS).unwrap(), text);
        }
        let mut seed = 1_u32;
        let mut rare = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"abcdefgh"[(seed >> 29) as usize]
        };
        let noise: Vec<u8> = (0..20_000).map(|_| rare()).collect();
        let twice = [vec![0_u8; 4000], coded(&noise, Coding::Gzip)].concat();
        for second in ALL {
            let codings = [second, Coding::Gzip];
            let inner = coded(&noise, second);
            let outer = {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
                io::Write::write_all(&mut encoder, &inner).unwrap();
                encoder.finish().unwrap()
            };
            assert_eq!(decode(&outer, &codings, &LIMITS).unwrap(), noise, "{second:?}");
        }
        assert!(decode(&twice, &[Coding::Gzip], &LIMITS).is_err());
    }

    #[test]
    fn bombs_do_not_go_off() {
        let zeroes = vec![0_u8; 24 << 20];
        for coding in ALL {
            let small = coded(&zeroes, coding);
            assert!(small.len() < 100_000, "{coding:?}: {}", small.len());
            let error = decode(&small, &[coding], &LIMITS).unwrap_err();
            let is_known = matches!(error, AdaptError::Bomb { .. } | AdaptError::TooLarge { .. });
            assert!(is_known, "{coding:?}: {error}");
            // The same in a second coat, which hides how much is in it.
            for outer in ALL {
                let nested = coded(&small, outer);
                let error = decode(&nested, &[coding, outer], &MOST).unwrap_err();
                assert!(
                    matches!(error, AdaptError::Bomb { .. }),
                    "{coding:?} in {outer:?}: {error}"
                );
            }
        }
        let three = [Coding::Gzip; 3];
        assert!(matches!(decode(b"", &three, &LIMITS), Err(AdaptError::Codec { .. })));
    }

    /// Browsers refuse windows beyond 8 MiB, and each takes as much memory.
    #[test]
    fn large_windows_are_refused() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        io::Write::write_all(&mut encoder, &[b'x'; 1000]).unwrap();
        let bytes = encoder.finish().unwrap();
        let error = decode(&bytes, &[Coding::Zstd], &LIMITS).unwrap_err();
        assert!(matches!(error, AdaptError::Codec { what: "zstd", .. }), "{error}");
    }

    #[test]
    fn what_is_cut_off_is_no_page() {
        let text = "Weir serves what is asked for. ".repeat(3000).into_bytes();
        for coding in ALL {
            let whole = coded(&text, coding);
            for len in [1, whole.len() / 2, whole.len() - 1] {
                assert!(decode(&whole[..len], &[coding], &LIMITS).is_err(), "{coding:?} {len}");
            }
        }
    }

    #[test]
    fn what_goes_on_behind_its_end_is_no_page() {
        let text = "Weir serves what is asked for. ".repeat(3000).into_bytes();
        for coding in ALL {
            for more in [&b"x"[..], &[0; 40_000]] {
                let longer = [&coded(&text, coding), more].concat();
                match decode(&longer, &[coding], &LIMITS) {
                    Ok(padded) => assert!(coding == Coding::Gzip && padded == text, "{coding:?}"),
                    Err(AdaptError::Codec { .. }) => assert_ne!(coding, Coding::Gzip),
                    Err(error) => panic!("{coding:?}: {error}"),
                }
            }
        }
        let twice = [coded(b"one ", Coding::Gzip), coded(b"two", Coding::Gzip)].concat();
        assert_eq!(decode(&twice, &[Coding::Gzip], &LIMITS).unwrap(), b"one two");
        let torn = &twice[..twice.len() - 1];
        assert!(decode(torn, &[Coding::Gzip], &LIMITS).is_err());
        assert!(decode(b"", &[Coding::Brotli], &LIMITS).is_err());
    }

    proptest! {
        #[test]
        fn nonsense_ends_in_an_error_or_text(
            input in proptest::collection::vec(any::<u8>(), 0..2000),
            head in 0_usize..3,
        ) {
            let heads: [&[u8]; 3] = [b"\x1f\x8b\x08\0\0\0\0\0\0\0", b"\x28\xb5\x2f\xfd", b""];
            let input = [heads[head], &input].concat();
            for coding in ALL {
                drop(decode(&input, &[coding], &LIMITS));
            }
        }
    }
}
