//! What a Zstandard file asks of whoever decodes it. As a content coding its window may have 8 MiB
//! (RFC 9659, section 3), and browsers refuse more; what `zstd --ultra` and `--long` make has more.

use std::os::fd::AsFd;

use rustix::io::pread;

/// The largest window that all who take the coding can decode, in bytes.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// A frame's first bytes, as they stand (RFC 8878, section 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Magic number, descriptor, window, dictionary and content size at their longest.
const HEADER_BYTES_MAX: usize = 4 + 14;

/// Whether the window of the file's first frame is more than clients can be expected to have. What
/// does not begin with a frame, or cannot be read, has none: whoever put it there is believed.
pub(super) fn is_too_wide(file: impl AsFd) -> bool {
    let mut header = [0; HEADER_BYTES_MAX];
    // A short read is that of a short file: the whole header is in its first page.
    let read = pread(file, &mut header, 0).unwrap_or(0);
    window_bytes(&header[..read]).is_some_and(|bytes| bytes > WINDOW_BYTES_MAX)
}

/// The window that a frame's header asks for (RFC 8878, section 3.1.1.1.2); `None` if it is none.
fn window_bytes(frame: &[u8]) -> Option<u64> {
    let (&descriptor, rest) = frame.strip_prefix(&MAGIC)?.split_first()?;
    let is_single_segment = descriptor & 0x20 != 0;
    if !is_single_segment {
        let window = rest.first()?;
        let base = 1 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // There is no window but the content, whose size comes after the dictionary's number.
    let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_bytes = 1 << (descriptor >> 6);
    let size = rest.get(dictionary_bytes..dictionary_bytes + size_bytes)?;
    let number = size.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    // Two bytes begin to count where one byte ends.
    Some(number + if size_bytes == 2 { 256 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_what_window_they_want() {
        let check = |header: &[u8], expect: Option<u64>| {
            let frame = [&MAGIC, header].concat();
            assert_eq!(window_bytes(&frame), expect, "{header:x?}");
        };
        // Windows: an exponent above 10, and eighths.
        check(&[0x00, 0x00], Some(1 << 10));
        check(&[0x04, 0x68], Some(8 << 20));
        check(&[0x04, 0x69], Some(9 << 20));
        check(&[0x84, 0x88, 1, 2, 3, 4], Some(128 << 20));
        check(&[0x00, 0xff], Some((1 << 41) / 8 * 15));
        // Single segments: sizes of one, two, four and eight bytes, with dictionaries before them.
        check(&[0x20, 5], Some(5));
        check(&[0x61, 9, 0, 1], Some(256 + 256));
        check(&[0xa3, 9, 9, 9, 9, 1, 0, 0, 2], Some((2 << 24) + 1));
        check(&[0xe0, 255, 255, 255, 255, 255, 255, 255, 255], Some(u64::MAX));
        for short in [&[][..], &[0x00], &[0x20], &[0x60, 1], &[0xa3, 9, 9, 9, 9, 1, 0, 0]] {
            check(short, None);
        }
        assert_eq!(window_bytes(b"ZSTD"), None);
    }
}
