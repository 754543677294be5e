//! An encoder that can be asked for what it has so far.

use std::io::{self, Write};

use crate::adapters::compress::{Coding, Compress};

/// What encoders look back, as a power of two: 256 KiB. Streams are many at a time, and pages
/// rarely larger.
const WINDOW_LOG: u32 = 18;
/// Brotli's encoder takes input by pieces of this size.
const BROTLI_BUFFER_BYTES: usize = 16 << 10;

/// A content coding under way. It holds at most some MB.
pub(super) struct Encoder(Kind);

enum Kind {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// The beginning of a stream. A level outside [`Coding::levels`] is taken for the nearest.
    ///
    /// # Errors
    /// Want of memory.
    pub(super) fn new(compress: &Compress) -> io::Result<Encoder> {
        let (least, most) = compress.coding.levels();
        let level = compress.level.clamp(least, most);
        Ok(Encoder(match compress.coding {
            Coding::Gzip => {
                let level = flate2::Compression::new(level);
                Kind::Gzip(flate2::write::GzEncoder::new(Vec::new(), level))
            }
            Coding::Brotli => {
                let parameters = brotli::enc::BrotliEncoderParams {
                    quality: level as i32,
                    lgwin: WINDOW_LOG as i32,
                    ..Default::default()
                };
                let encoder = brotli::CompressorWriter::with_params(
                    Vec::new(),
                    BROTLI_BUFFER_BYTES,
                    &parameters,
                );
                Kind::Brotli(Box::new(encoder))
            }
            Coding::Zstd => {
                let mut encoder = zstd::Encoder::new(Vec::new(), level as i32)?;
                encoder.window_log(WINDOW_LOG)?;
                Kind::Zstd(encoder)
            }
        }))
    }

    /// Codes a piece; returns what there is of the result.
    ///
    /// # Errors
    /// Want of memory.
    pub(super) fn code(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        match &mut self.0 {
            Kind::Gzip(encoder) => encoder.write_all(piece)?,
            Kind::Brotli(encoder) => encoder.write_all(piece)?,
            Kind::Zstd(encoder) => encoder.write_all(piece)?,
        }
        Ok(self.take())
    }

    /// Everything that was coded and not returned yet: whoever has it can decode all that went in.
    ///
    /// # Errors
    /// Want of memory.
    pub(super) fn flush(&mut self) -> io::Result<Vec<u8>> {
        match &mut self.0 {
            Kind::Gzip(encoder) => encoder.flush()?,
            Kind::Brotli(encoder) => encoder.flush()?,
            Kind::Zstd(encoder) => encoder.flush()?,
        }
        Ok(self.take())
    }

    /// The end.
    ///
    /// # Errors
    /// Want of memory.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self.0 {
            Kind::Gzip(encoder) => encoder.finish(),
            Kind::Brotli(encoder) => Ok(encoder.into_inner()),
            Kind::Zstd(encoder) => encoder.finish(),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(match &mut self.0 {
            Kind::Gzip(encoder) => encoder.get_mut(),
            Kind::Brotli(encoder) => encoder.get_mut(),
            Kind::Zstd(encoder) => encoder.get_mut(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    const ALL: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];

    /// Decodes as much as there is.
    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut decoder: Box<dyn Read + '_> = match coding {
            Coding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
            Coding::Brotli => Box::new(brotli::Decompressor::new(bytes, 4096)),
            Coding::Zstd => Box::new(zstd::Decoder::new(bytes).unwrap()),
        };
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        // What is there without its end ends in an error.
        while let Ok(len @ 1..) = decoder.read(&mut piece) {
            text.extend_from_slice(&piece[..len]);
        }
        text
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_was_flushed_can_be_decoded(
            pieces in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..3000), any::<bool>()), 0..8,
            ),
            which in 0..ALL.len(),
        ) {
            let coding = ALL[which];
            let mut encoder = Encoder::new(&Compress { coding, level: 4 }).unwrap();
            let (mut sent, mut said) = (Vec::new(), Vec::new());
            for (piece, flushes) in &pieces {
                said.extend_from_slice(piece);
                sent.extend(encoder.code(piece).unwrap());
                if *flushes {
                    sent.extend(encoder.flush().unwrap());
                    prop_assert!(decoded(coding, &sent) == said, "{coding:?}");
                }
            }
            sent.extend(encoder.finish().unwrap());
            prop_assert!(decoded(coding, &sent) == said, "{coding:?}");
        }
    }
}
