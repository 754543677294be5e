//! An encoder that can be asked for what it has so far.

use std::cell::RefCell;
use std::io::{self, Write};
use std::mem::swap;

use flate2::{FlushCompress, Status};
use zstd::stream::raw::{CParameter, InBuffer, Operation, OutBuffer};

use crate::adapters::compress::{Coding, Compress};

/// What encoders look back, as powers of two: 256 KiB, since streams are many at a time, and pages
/// rarely larger; less where all that will come is less. Tables go by it, and are cleared first.
const WINDOW_LOGS: [u32; 3] = [14, 16, 18];
/// As much as gzip can look back, as a power of two.
const GZIP_WINDOW_LOG: u8 = 15;
/// Brotli's encoder takes input by pieces of this size.
const BROTLI_BUFFER_BYTES: usize = 16 << 10;
/// Room for results is made by so much.
const ROOM_BYTES: usize = 8 << 10;
/// Encoders that a thread keeps for later streams: some MB.
const SPARES_MAX: usize = 4;

thread_local! {
    /// Encoders of streams that have ended, the last one last. A new one of zstd or gzip takes
    /// longer to make than a page of 8 KB to code: its memory comes from the system, page by page.
    static SPARES: RefCell<Vec<Encoder>> = const { RefCell::new(Vec::new()) };
}

/// A content coding under way. It holds at most some MB.
pub(super) struct Encoder {
    settings: Settings,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Settings {
    coding: Coding,
    level: u32,
    window_log: u32,
}

enum Kind {
    Gzip(flate2::Compress),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::raw::Encoder<'static>),
}

impl Encoder {
    /// The beginning of a stream, of so many bytes about, if that is known. A level outside
    /// [`Coding::levels`] is taken for the nearest.
    ///
    /// # Errors
    /// Want of memory.
    pub(super) fn new(compress: &Compress, expected: Option<usize>) -> io::Result<Encoder> {
        let Compress { coding, level } = *compress;
        let (least, most) = coding.levels();
        let window_log = window_log(expected.filter(|_| coding != Coding::Gzip));
        let settings = Settings { coding, level: level.clamp(least, most), window_log };
        match spare(settings) {
            Some(encoder) => Ok(encoder),
            None => Ok(Encoder { settings, kind: Kind::new(settings)? }),
        }
    }

    /// Codes a piece; appends what there is of the result.
    ///
    /// # Errors
    /// Want of memory.
    pub(super) fn code(&mut self, piece: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.kind {
            Kind::Gzip(encoder) => deflate(encoder, piece, FlushCompress::None, output),
            Kind::Brotli(encoder) => append(encoder, output, |encoder| encoder.write_all(piece)),
            Kind::Zstd(encoder) => {
                let mut input = InBuffer::around(piece);
                while input.pos() < piece.len() {
                    with_room(output, |room| encoder.run(&mut input, room))?;
                }
                Ok(())
            }
        }
    }

    /// Everything that was coded and not returned yet: whoever has it can decode all that went in.
    ///
    /// # Errors
    /// Want of memory.
    pub(super) fn flush(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.kind {
            Kind::Gzip(encoder) => deflate(encoder, &[], FlushCompress::Sync, output),
            Kind::Brotli(encoder) => append(encoder, output, |encoder| encoder.flush()),
            Kind::Zstd(encoder) => {
                while with_room(output, |room| encoder.flush(room))? > 0 {}
                Ok(())
            }
        }
    }

    /// The end.
    ///
    /// # Errors
    /// Want of memory.
    pub(super) fn finish(mut self, output: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.kind {
            Kind::Gzip(encoder) => {
                deflate(encoder, &[], FlushCompress::Finish, output)?;
                encoder.reset();
            }
            Kind::Brotli(_) => {}
            Kind::Zstd(encoder) => {
                while with_room(output, |room| encoder.finish(room, true))? > 0 {}
                encoder.reinit()?;
            }
        }
        match self.kind {
            // It begins no second stream.
            Kind::Brotli(encoder) => output.append(&mut encoder.into_inner()),
            _ => keep(self),
        }
        Ok(())
    }
}

impl Kind {
    fn new(Settings { coding, level, window_log }: Settings) -> io::Result<Kind> {
        Ok(match coding {
            Coding::Gzip => {
                let level = flate2::Compression::new(level);
                Kind::Gzip(flate2::Compress::new_gzip(level, GZIP_WINDOW_LOG))
            }
            Coding::Brotli => {
                let parameters = brotli::enc::BrotliEncoderParams {
                    quality: level as i32,
                    lgwin: window_log as i32,
                    ..Default::default()
                };
                let (to, buffer) = (Vec::new(), BROTLI_BUFFER_BYTES);
                let encoder = brotli::CompressorWriter::with_params(to, buffer, &parameters);
                Kind::Brotli(Box::new(encoder))
            }
            Coding::Zstd => {
                let mut encoder = zstd::stream::raw::Encoder::new(level as i32)?;
                encoder.set_parameter(CParameter::WindowLog(window_log))?;
                Kind::Zstd(encoder)
            }
        })
    }
}

/// The least that so many bytes fit in, or the largest.
fn window_log(expected: Option<usize>) -> u32 {
    let [.., largest] = WINDOW_LOGS;
    let fits = |log: &u32| expected.is_some_and(|bytes| bytes <= 1 << log);
    WINDOW_LOGS.into_iter().find(fits).unwrap_or(largest)
}

/// One that this thread has kept.
fn spare(settings: Settings) -> Option<Encoder> {
    SPARES.with_borrow_mut(|spares| {
        let at = spares.iter().rposition(|spare| spare.settings == settings)?;
        Some(spares.remove(at))
    })
}

fn keep(encoder: Encoder) {
    SPARES.with_borrow_mut(|spares| {
        if spares.len() == SPARES_MAX {
            spares.remove(0);
        }
        spares.push(encoder);
    });
}

/// Codes all of `input`.
fn deflate(
    encoder: &mut flate2::Compress,
    mut input: &[u8],
    flush: FlushCompress,
    output: &mut Vec<u8>,
) -> io::Result<()> {
    loop {
        output.reserve(ROOM_BYTES);
        let before = encoder.total_in();
        let status = encoder.compress_vec(input, output, flush)?;
        input = &input[(encoder.total_in() - before) as usize..];
        // What leaves room has nothing more to say.
        let has_room = output.len() < output.capacity();
        if status == Status::StreamEnd || input.is_empty() && has_room {
            return Ok(());
        }
    }
}

/// Lets brotli's encoder write behind what there is.
fn append(
    encoder: &mut brotli::CompressorWriter<Vec<u8>>,
    output: &mut Vec<u8>,
    write: impl FnOnce(&mut brotli::CompressorWriter<Vec<u8>>) -> io::Result<()>,
) -> io::Result<()> {
    swap(encoder.get_mut(), output);
    let written = write(encoder);
    swap(encoder.get_mut(), output);
    written
}

/// Lets zstd's encoder write behind what there is.
fn with_room(
    output: &mut Vec<u8>,
    write: impl FnOnce(&mut OutBuffer<'_, Vec<u8>>) -> io::Result<usize>,
) -> io::Result<usize> {
    output.reserve(ROOM_BYTES);
    let behind = output.len();
    write(&mut OutBuffer::around_pos(output, behind))
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
            // It need not be true.
            expected in prop::option::of(0_usize..100_000),
        ) {
            let coding = ALL[which];
            let mut encoder = Encoder::new(&Compress { coding, level: 4 }, expected).unwrap();
            let (mut sent, mut said) = (Vec::new(), Vec::new());
            for (piece, flushes) in &pieces {
                said.extend_from_slice(piece);
                encoder.code(piece, &mut sent).unwrap();
                if *flushes {
                    encoder.flush(&mut sent).unwrap();
                    prop_assert!(decoded(coding, &sent) == said, "{coding:?}");
                }
            }
            encoder.finish(&mut sent).unwrap();
            prop_assert!(decoded(coding, &sent) == said, "{coding:?}");
        }
    }

    #[test]
    fn an_encoder_is_used_again_and_knows_nothing_of_its_last_stream() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let compress = Compress { coding, level: 5 };
            let code = |text: &[u8]| {
                let mut encoder = Encoder::new(&compress, Some(text.len())).unwrap();
                let mut sent = Vec::new();
                encoder.code(text, &mut sent).unwrap();
                encoder.flush(&mut sent).unwrap();
                encoder.finish(&mut sent).unwrap();
                sent
            };
            let first = code(b"one and the same, one and the same");
            let kept = SPARES.with_borrow(Vec::len);
            code(&[7; 10_000]);
            assert_eq!(code(b"one and the same, one and the same"), first, "{coding:?}");
            assert_eq!(SPARES.with_borrow(Vec::len), kept, "{coding:?}");
        }
        // No more than a few of all kinds.
        let all: Vec<_> = (1..=9).map(|level| Compress { coding: Coding::Gzip, level }).collect();
        let encoders: Vec<_> = all.iter().map(|one| Encoder::new(one, None).unwrap()).collect();
        encoders.into_iter().for_each(|encoder| encoder.finish(&mut Vec::new()).unwrap());
        assert_eq!(SPARES.with_borrow(Vec::len), SPARES_MAX);
    }
}
