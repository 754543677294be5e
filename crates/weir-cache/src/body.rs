//! Stored bodies, and the memory they are read into: small ones on the heap, larger ones in arena
//! extents. Which of the two is a matter of length alone.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use weir_arena::{Extent, PAGE_BYTES};

use crate::limits::HEAP_BODY_BYTES_MAX;

/// An immutable body. Its bytes are shared by whoever holds a chunk of it.
#[derive(Clone, Debug, Default)]
pub struct Body {
    repr: Repr,
    len: u64,
    id: u64,
}

#[derive(Clone, Debug, Default)]
enum Repr {
    #[default]
    Empty,
    One(Bytes),
    Many(Box<[Bytes]>),
}

impl Body {
    /// A body of these chunks, in order.
    pub fn from_chunks(chunks: Vec<Bytes>) -> Body {
        let len = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let mut chunks: Vec<Bytes> = chunks.into_iter().filter(|c| !c.is_empty()).collect();
        let repr = match chunks.len() {
            0 => Repr::Empty,
            1 => Repr::One(chunks.swap_remove(0)),
            _ => Repr::Many(chunks.into_boxed_slice()),
        };
        static MADE: AtomicU64 = AtomicU64::new(0);
        Body { repr, len, id: MADE.fetch_add(1, Relaxed) + 1 }
    }

    /// What clones of this body have in common with it, and no other body has; 0 for nothing.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The stored chunks; none is empty.
    pub fn chunks(&self) -> &[Bytes] {
        match &self.repr {
            Repr::Empty => &[],
            Repr::One(chunk) => std::slice::from_ref(chunk),
            Repr::Many(chunks) => chunks,
        }
    }

    /// The part of the body from `range.start` up to, not including, `range.end`, as slices of the
    /// stored chunks. What lies beyond the end is left out.
    pub fn slices(&self, range: Range<u64>) -> impl Iterator<Item = Bytes> + '_ {
        let mut start = 0;
        self.chunks().iter().filter_map(move |chunk| {
            let chunk_start = start;
            start += chunk.len() as u64;
            let from = range.start.max(chunk_start);
            let to = range.end.min(start);
            // Both differences are at most the chunk's length.
            (from < to)
                .then(|| chunk.slice((from - chunk_start) as usize..(to - chunk_start) as usize))
        })
    }

    /// Bytes charged: arena bodies occupy whole pages.
    pub(crate) fn charge(&self) -> u64 {
        match self.len > HEAP_BODY_BYTES_MAX as u64 {
            true => self.len.next_multiple_of(PAGE_BYTES as u64),
            false => self.len,
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body::from_chunks(vec![bytes])
    }
}

/// Memory for a body of known length, to be filled by a source that reads it in one go. Made by
/// [`crate::Cache::destination`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Destination {
    /// A small body: append to the vector.
    Heap(Vec<u8>),
    /// A larger one: append to the extent.
    Arena(Extent),
}

impl Destination {
    /// Appends `data`.
    ///
    /// # Errors
    /// What [`Extent::write`] says: `InvalidInput` beyond the length asked for, or no memory.
    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Destination::Heap(bytes) => bytes.extend_from_slice(data),
            Destination::Arena(extent) => extent.write(data)?,
        }
        Ok(())
    }

    /// Ends the filling.
    pub fn freeze(self) -> Body {
        match self {
            Destination::Heap(bytes) => Bytes::from(bytes).into(),
            Destination::Arena(extent) => extent.freeze().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_a_body_in_chunks() {
        let body = Body::from_chunks(vec!["abc".into(), "".into(), "de".into(), "f".into()]);
        assert_eq!((body.len(), body.chunks().len()), (6, 3));
        for start in 0..8u64 {
            for end in start..9 {
                let got: Vec<u8> = body.slices(start..end).flatten().collect();
                let all = b"abcdef";
                let to = (end as usize).min(6);
                let from = (start as usize).min(to);
                assert_eq!(got, all[from..to], "{start}..{end}");
            }
        }
        assert!(Body::default().slices(0..10).next().is_none());
    }
}
