//! A picture's body on its way through the transcoder, as the server's body hook would have it go:
//! in pieces of the size that plugins are shown, out in buffers of its own. Three builds, which
//! differ in nothing else.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use weir_plugin::limits::PIECE_BYTES_MAX;
use weir_plugin::{CallBody, Content, Generation, Stream};

use crate::error::{Error, Result};
use crate::local::{self, Local, WORKER};
use crate::pictures::{Picture, TYPE};
use crate::stats::median;

/// What is done to the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Nothing: it passes.
    None,
    /// The transcoder's code, compiled with the lab.
    Native,
    /// Its module, in the sandbox.
    Isolated,
}

impl Build {
    /// All of them.
    pub const ALL: [Build; 3] = [Build::None, Build::Native, Build::Isolated];

    /// How it is called in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Build::None => "none",
            Build::Native => "native",
            Build::Isolated => "isolated",
        }
    }
}

/// The transcoder, deployed in the lab's own process.
pub struct Bench {
    local: Local,
    generation: Arc<Generation>,
}

impl Bench {
    /// Deploys `module`.
    ///
    /// # Errors
    /// When it is refused.
    pub fn start(module: Vec<u8>) -> Result<Bench> {
        let local = Local::start()?;
        local.deploy("gray", module)?;
        let generation = local.generation("gray")?;
        Ok(Bench { local, generation })
    }

    /// Median nanoseconds of a picture, of `requests` without the first, which must be right to the
    /// last pixel.
    ///
    /// # Errors
    /// When what comes out is not what should.
    pub fn measure(&self, build: Build, picture: Picture, requests: usize) -> Result<f64> {
        let colour = Bytes::from(picture.colour());
        let expect = if build == Build::None { colour.to_vec() } else { picture.grey() };
        if self.pass(build, picture, &colour)?.concat() != expect {
            return Err(wrong(build, "other pixels came out"));
        }
        let mut times = Vec::with_capacity(requests);
        for _ in 1..requests {
            let began = Instant::now();
            let out = self.pass(build, picture, &colour)?;
            let size: usize = out.iter().map(Bytes::len).sum();
            drop(out);
            times.push(began.elapsed().as_nanos() as f64);
            if size != expect.len() {
                return Err(wrong(build, "another size came out"));
            }
        }
        median(&times).ok_or_else(|| wrong(build, "nothing was timed"))
    }

    /// One response.
    fn pass(&self, build: Build, picture: Picture, colour: &Bytes) -> Result<Vec<Bytes>> {
        let source = body(colour);
        self.local.runtime.block_on(async {
            match build {
                Build::None => collect(source, |piece| piece).await,
                Build::Native => {
                    let mut native = Native::new(picture);
                    collect(source, |piece| native.piece(&piece)).await
                }
                Build::Isolated => collect(self.isolated(source).await?, |piece| piece).await,
            }
        })
    }

    async fn isolated(&self, source: CallBody) -> Result<CallBody> {
        let failed = |failure: weir_plugin::Failure| wrong(Build::Isolated, &failure.to_string());
        let stream =
            Stream::open(&self.generation, WORKER, local::facts()).await.map_err(failed)?;
        let head = local::response_head(TYPE);
        let passed = stream.response(head, Content::Shown(source)).await;
        match (passed.failure, passed.body) {
            (Some(failure), _) => Err(failed(failure)),
            (None, Some(body)) if passed.is_seen => Ok(body),
            _ => Err(wrong(Build::Isolated, "the plugin does not want to see the body")),
        }
    }
}

/// What the plugin does piece by piece, without a sandbox.
struct Native {
    /// Bytes of the header that are to come.
    header_left: usize,
    header: Bytes,
    /// A pixel's first bytes, whose others are to come.
    kept: Vec<u8>,
}

impl Native {
    fn new(picture: Picture) -> Native {
        let header = Bytes::from(picture.header('5'));
        Native { header_left: picture.header_size(), header, kept: Vec::new() }
    }

    fn piece(&mut self, piece: &[u8]) -> Bytes {
        let header = self.header_left.min(piece.len());
        self.header_left -= header;
        let mut pixels = &piece[header..];
        let head = if header > 0 { std::mem::take(&mut self.header) } else { Bytes::new() };
        let mut out = vec![0; head.len() + (self.kept.len() + pixels.len()) / 3];
        out[..head.len()].copy_from_slice(&head);
        let mut done = head.len();
        if !self.kept.is_empty() {
            let missing = (3 - self.kept.len()).min(pixels.len());
            self.kept.extend_from_slice(&pixels[..missing]);
            pixels = &pixels[missing..];
            if self.kept.len() == 3 {
                gray_rust::gray::transcode(&self.kept, &mut out[done..=done]);
                self.kept.clear();
                done += 1;
            }
        }
        gray_rust::gray::transcode(pixels, &mut out[done..]);
        self.kept.extend_from_slice(&pixels[pixels.len() / 3 * 3..]);
        Bytes::from(out)
    }
}

/// The picture in pieces, none of them copied.
fn body(colour: &Bytes) -> CallBody {
    let pieces = (0..colour.len()).step_by(PIECE_BYTES_MAX).map(|from| {
        let to = (from + PIECE_BYTES_MAX).min(colour.len());
        Ok(Frame::data(colour.slice(from..to)))
    });
    let pieces: Vec<_> = pieces.collect();
    StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync()
}

/// What comes out of a body, each piece as `each` makes it.
async fn collect(mut body: CallBody, mut each: impl FnMut(Bytes) -> Bytes) -> Result<Vec<Bytes>> {
    let mut out = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::Answer(format!("a picture: {error}")))?;
        if let Ok(piece) = frame.into_data() {
            out.push(each(piece));
        }
    }
    Ok(out)
}

fn wrong(build: Build, reason: &str) -> Error {
    Error::Answer(format!("the transcoder, {}: {reason}", build.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules;
    use crate::pictures;

    #[test]
    fn all_builds_do_the_same_to_every_picture() {
        let bench = Bench::start(modules::transcoder().unwrap()).unwrap();
        for build in Build::ALL {
            // The largest comes in many pieces, which cut pixels apart.
            for picture in [pictures::ALL[0], pictures::ALL[3]] {
                assert!(bench.measure(build, picture, 2).unwrap() > 0.0);
            }
        }
    }

    #[test]
    fn pieces_of_any_size_make_the_same_picture() {
        let picture = pictures::ALL[0];
        let (colour, grey) = (picture.colour(), picture.grey());
        for size in [1, 2, 5, 13, 14, 100, 8_191] {
            let mut native = Native::new(picture);
            let out: Vec<u8> =
                colour.chunks(size).flat_map(|piece| native.piece(piece).to_vec()).collect();
            assert!(out == grey, "{size}");
        }
    }
}
