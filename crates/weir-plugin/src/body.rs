//! A body, or what has arrived of it, as pieces that nobody copies until a plugin changes them.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// Pieces of a body.
#[derive(Clone, Debug, Default)]
pub struct BodyBuffer {
    pieces: Vec<Bytes>,
    len: usize,
}

impl BodyBuffer {
    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push(piece);
        }
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Takes everything out.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.len = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Replaces everything.
    pub fn set(&mut self, content: Bytes) {
        self.take();
        self.push(content);
    }

    /// Copies `range`, which is cut to what there is, into `to`, in order.
    pub fn copy(&self, range: Range<usize>, mut to: impl FnMut(&[u8])) {
        let mut at = 0;
        for piece in &self.pieces {
            let (start, end) = (range.start.max(at), range.end.min(at + piece.len()));
            if start < end {
                to(&piece[start - at..end - at]);
            }
            at += piece.len();
        }
    }

    /// Replaces `size` bytes from `start` on, both cut to what there is, by `with`.
    pub fn splice(&mut self, start: usize, size: usize, with: Bytes) {
        let start = start.min(self.len);
        let end = start.saturating_add(size).min(self.len);
        let tail = self.split_off(end);
        self.split_off(start);
        self.push(with);
        for piece in tail {
            self.push(piece);
        }
    }

    /// Takes out what comes from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Vec<Bytes> {
        let (mut before, mut index) = (0, 0);
        while index < self.pieces.len() && before + self.pieces[index].len() <= at {
            before += self.pieces[index].len();
            index += 1;
        }
        let mut tail = self.pieces.split_off(index);
        if let Some(first) = tail.first_mut()
            && before < at
        {
            self.pieces.push(first.split_to(at - before));
        }
        self.len = at.min(self.len);
        tail
    }

    /// Everything as one piece.
    pub fn flatten(&mut self) -> Bytes {
        match &self.pieces[..] {
            [] => Bytes::new(),
            [one] => one.clone(),
            several => {
                let mut whole = BytesMut::with_capacity(self.len);
                several.iter().for_each(|piece| whole.extend_from_slice(piece));
                let whole = whole.freeze();
                self.pieces = vec![whole.clone()];
                whole
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn splices_like_a_vector(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6),
            splices in prop::collection::vec((0_usize..80, 0_usize..80, 0_usize..20), 0..6),
        ) {
            let mut body = BodyBuffer::default();
            let mut model = Vec::new();
            for piece in pieces {
                model.extend_from_slice(&piece);
                body.push(Bytes::from(piece));
            }
            for (start, size, len) in splices {
                let with = vec![0xab; len];
                let from = start.min(model.len());
                let to = (from + size).min(model.len());
                model.splice(from..to, with.iter().copied());
                body.splice(start, size, Bytes::from(with));
                prop_assert_eq!(body.len(), model.len());
            }
            let mut copied = Vec::new();
            body.copy(0..body.len(), |piece| copied.extend_from_slice(piece));
            prop_assert_eq!(&copied, &model);
            prop_assert_eq!(&body.flatten()[..], &model[..]);
        }
    }
}
