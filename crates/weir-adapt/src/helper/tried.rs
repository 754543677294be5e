//! What a helper makes of an order, without a socket and unconfined: for those who try what it
//! withstands.

use std::fs::File;
use std::io::{self, Write};

use rustix::fs::{MemfdFlags, SealFlags};

use super::{end_of, invalid};
use crate::job::{Limits, Step};
use crate::wire::{self, Order, Report, Work};

/// Jobs of an order that are tried: beyond these there is nothing new.
const JOBS_MAX: usize = 8;

/// What a helper reports that is told a packet, where `stored` is what the arena has. Nothing takes
/// more than `limits` and `images` allow, whatever the packet says of that; there is no file for
/// what is large.
///
/// # Errors
/// `InvalidData` for what is no order to work, or has less behind it than it says: a helper ends at
/// that. What the system says of memory.
pub fn follow_packet(
    packet: &[u8],
    stored: &[u8],
    limits: &Limits,
    images: &weir_image::Limits,
) -> io::Result<Vec<u8>> {
    let (order, mut behind) = wire::parse(packet)?;
    let Order::Work(mut works) = order else { return Err(invalid("expected work")) };
    works.truncate(JOBS_MAX);
    let arena = arena_of(stored)?;
    let (mut ends, mut results) = (Vec::new(), Vec::new());
    for work in &mut works {
        lower(work, limits, images);
        let (end, result) = end_of(work, &arena, &mut behind, &mut None)?;
        ends.push(end);
        results.extend(result);
    }
    let mut report = postcard::to_allocvec(&Report::Done(ends)).map_err(io::Error::other)?;
    report.extend(results);
    Ok(report)
}

/// A file that can be mapped as an arena is.
fn arena_of(stored: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("weir-tried", flags)?);
    file.write_all(stored)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}

/// Puts limits in the place of those that are further.
fn lower(work: &mut Work, limits: &Limits, images: &weir_image::Limits) {
    work.limits.output_bytes = work.limits.output_bytes.min(limits.output_bytes);
    work.limits.time = work.limits.time.min(limits.time);
    for step in &mut work.recipe.steps {
        if let Step::Image(image) = step {
            let said = &mut image.limits;
            said.source_bytes = said.source_bytes.min(images.source_bytes);
            said.pixels = said.pixels.min(images.pixels);
            said.side = said.side.min(images.side);
            said.frames = said.frames.min(images.frames);
            said.decoded_bytes = said.decoded_bytes.min(images.decoded_bytes);
        }
    }
}
