//! Content codings: gzip (RFC 1952), brotli (RFC 7932), zstd (RFC 8878).

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::{AdaptError, Adapted};
use crate::job::Limits;
use crate::wire::Why;

/// The largest window of zstd that browsers take, as a power of two: 8 MiB (RFC 9659 §3).
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// What brotli looks back, as a power of two: 4 MiB; decoders need as much memory.
const BROTLI_WINDOW_LOG: i32 = 22;

/// Brotli's encoder takes input by pieces of this size.
const BROTLI_BUFFER_BYTES: usize = 64 << 10;

/// A content coding that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// Its name in Content-Encoding.
    pub const fn token(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }

    /// Its levels, from the quickest to the strongest.
    pub const fn levels(self) -> (u32, u32) {
        match self {
            Coding::Gzip => (1, 9),
            Coding::Brotli => (0, 11),
            Coding::Zstd => (1, 22),
        }
    }

    /// The level for what somebody waits for: 50 to 270 MB/s.
    pub const fn quick_level(self) -> u32 {
        match self {
            Coding::Gzip | Coding::Brotli => 4,
            Coding::Zstd => 3,
        }
    }
}

/// A coding at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Compress {
    /// Which.
    pub coding: Coding,
    /// Within [`Coding::levels`]; what lies outside is taken for the nearest.
    pub level: u32,
}

/// Codes `input`. What would not become smaller stays as it is.
///
/// # Errors
/// [`AdaptError::Codec`], which encoders have no reason for but want of memory.
pub fn compress(input: &[u8], compress: &Compress, limits: &Limits) -> Result<Adapted, AdaptError> {
    let smaller = input.len().saturating_sub(1) as u64;
    code(input, compress, smaller.min(limits.output_bytes))
}

/// Codes `input`, whatever becomes of it.
///
/// # Errors
/// As [`compress`]; [`AdaptError::TooLarge`].
pub fn compress_anyway(
    input: &[u8],
    compress: &Compress,
    limits: &Limits,
) -> Result<Adapted, AdaptError> {
    match code(input, compress, limits.output_bytes)? {
        Adapted::Original(_) => Err(AdaptError::TooLarge { limit_bytes: limits.output_bytes }),
        made => Ok(made),
    }
}

fn code(input: &[u8], compress: &Compress, most: u64) -> Result<Adapted, AdaptError> {
    let mut output = Bounded::new(most);
    let (least, most) = compress.coding.levels();
    let level = compress.level.clamp(least, most);
    let coded = match compress.coding {
        Coding::Gzip => gzip(input, level, &mut output),
        Coding::Brotli => brotli(input, level, &mut output),
        Coding::Zstd => zstd(input, level, &mut output),
    };
    match coded {
        _ if output.is_over => Ok(Adapted::Original(Why::NotSmaller)),
        Err(error) => {
            Err(AdaptError::Codec { what: compress.coding.token(), cause: error.to_string() })
        }
        Ok(()) => {
            let detail = format!("{};q={level}", compress.coding.token());
            Ok(Adapted::Made(output.bytes, detail))
        }
    }
}

/// At once: whoever streams takes a coder that is slower.
fn gzip(input: &[u8], level: u32, output: &mut Bounded) -> io::Result<()> {
    let level = libdeflater::CompressionLvl::new(level as i32)
        .map_err(|error| io::Error::other(format!("{error:?}")))?;
    let mut encoder = libdeflater::Compressor::new(level);
    let bound = encoder.gzip_compress_bound(input.len());
    let mut bytes = vec![0; bound.min(usize::try_from(output.left).unwrap_or(usize::MAX))];
    match encoder.gzip_compress(input, &mut bytes) {
        Ok(len) => {
            bytes.truncate(len);
            bytes.shrink_to_fit();
            output.bytes = bytes;
            Ok(())
        }
        Err(libdeflater::CompressionError::InsufficientSpace) => {
            output.is_over = true;
            Ok(())
        }
    }
}

fn brotli(input: &[u8], level: u32, output: &mut Bounded) -> io::Result<()> {
    let parameters = brotli::enc::BrotliEncoderParams {
        quality: level as i32,
        lgwin: BROTLI_WINDOW_LOG,
        size_hint: input.len(),
        ..Default::default()
    };
    let mut encoder =
        brotli::CompressorWriter::with_params(output, BROTLI_BUFFER_BYTES, &parameters);
    encoder.write_all(input)?;
    // Dropping it writes the end, and would swallow an error.
    encoder.flush()
}

fn zstd(input: &[u8], level: u32, output: &mut Bounded) -> io::Result<()> {
    let mut encoder = zstd::Encoder::new(output, level as i32)?;
    encoder.set_pledged_src_size(Some(input.len() as u64))?;
    encoder.include_contentsize(true)?;
    let window_log =
        (u64::BITS - (input.len() as u64).leading_zeros()).clamp(10, ZSTD_WINDOW_LOG_MAX);
    encoder.window_log(window_log)?;
    encoder.write_all(input)?;
    encoder.finish().map(drop)
}

/// Bytes, up to a limit.
struct Bounded {
    bytes: Vec<u8>,
    left: u64,
    is_over: bool,
}

impl Bounded {
    fn new(limit_bytes: u64) -> Bounded {
        Bounded { bytes: Vec::new(), left: limit_bytes, is_over: false }
    }
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.len() as u64 > self.left {
            self.is_over = true;
            return Err(io::Error::other("larger than allowed"));
        }
        self.left -= data.len() as u64;
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const ALL: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];
    const LIMITS: Limits = Limits { output_bytes: 64 << 20, time: Duration::from_secs(60) };

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut text).unwrap(),
            Coding::Brotli => {
                brotli::Decompressor::new(bytes, 4096).read_to_end(&mut text).unwrap()
            }
            Coding::Zstd => zstd::Decoder::new(bytes).unwrap().read_to_end(&mut text).unwrap(),
        };
        text
    }

    #[test]
    fn text_becomes_smaller_and_comes_back() {
        let text = "Weir serves what is asked for. ".repeat(3000).into_bytes();
        for coding in ALL {
            let (least, most) = coding.levels();
            for level in [least, (least + most) / 2, most] {
                let made = compress(&text, &Compress { coding, level }, &LIMITS).unwrap();
                let Adapted::Made(bytes, detail) = made else { panic!("{coding:?}: {made:?}") };
                assert!(bytes.len() < text.len() / 20, "{coding:?} {level}: {}", bytes.len());
                assert_eq!(decoded(coding, &bytes), text, "{coding:?} {level}");
                assert_eq!(detail, format!("{};q={level}", coding.token()));
            }
        }
    }

    #[test]
    fn noise_and_nothing_stay_as_they_are() {
        let mut seed = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .take(20_000)
        .collect();
        for coding in ALL {
            for input in [&noise[..], b"", b"x"] {
                let made = compress(input, &Compress { coding, level: 5 }, &LIMITS).unwrap();
                assert!(matches!(made, Adapted::Original(Why::NotSmaller)), "{coding:?}: {made:?}");
            }
        }
    }

    /// Browsers refuse more than 8 MiB (RFC 9659).
    #[test]
    fn windows_of_zstd_are_what_browsers_take() {
        let text: Vec<u8> = (0..12_u32 << 20).map(|at| (at / 1000 % 251) as u8).collect();
        let wish = Compress { coding: Coding::Zstd, level: 22 };
        let Adapted::Made(bytes, _) = compress(&text, &wish, &LIMITS).unwrap() else { panic!() };
        let mut decoder = zstd::Decoder::new(&bytes[..]).unwrap();
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).unwrap();
        let mut back = Vec::new();
        decoder.read_to_end(&mut back).unwrap();
        assert!(back == text);
    }

    proptest! {
        #[test]
        fn whatever_is_coded_comes_back(
            input in proptest::collection::vec(prop_oneof![Just(b'a'), any::<u8>()], 0..20_000),
            level in 0_u32..30,
        ) {
            for coding in ALL {
                let made = compress(&input, &Compress { coding, level }, &LIMITS).unwrap();
                if let Adapted::Made(bytes, _) = made {
                    prop_assert!(bytes.len() < input.len());
                    prop_assert_eq!(decoded(coding, &bytes), &input[..]);
                }
            }
        }
    }
}
