//! proxy-wasm's form of maps: a count, the sizes of all names and values, then each of them with a
//! zero byte after it.

/// Names and values, in order.
pub(crate) type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// Reads a map. None if it is malformed.
pub(crate) fn parse(bytes: &[u8]) -> Option<Pairs<'_>> {
    // Both are the empty map.
    if bytes.is_empty() || bytes == [0] {
        return Some(Vec::new());
    }
    let (count, rest) = number(bytes)?;
    if count > rest.len() / 8 {
        return None;
    }
    let (mut sizes, mut content) = rest.split_at(count * 8);
    let mut pairs = Vec::with_capacity(count);
    for _ in 0..count {
        let (name_size, after) = number(sizes)?;
        let (value_size, after) = number(after)?;
        sizes = after;
        let (name, after) = terminated(content, name_size)?;
        let (value, after) = terminated(after, value_size)?;
        content = after;
        pairs.push((name, value));
    }
    Some(pairs)
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}

fn terminated(bytes: &[u8], size: usize) -> Option<(&[u8], &[u8])> {
    let (content, rest) = bytes.split_at_checked(size)?;
    rest.split_first().filter(|(zero, _)| **zero == 0).map(|(_, rest)| (content, rest))
}

/// Bytes of a map once it is written. The empty one has none.
pub(crate) fn size<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> usize {
    let mut size = 4;
    for (name, value) in pairs {
        size += 8 + name.len() + 1 + value.len() + 1;
    }
    if size == 4 { 0 } else { size }
}

/// Writes a map to where there are exactly as many bytes as [`size`] says. Writes nothing else if
/// there are not: then the map is not the one that was measured.
pub(crate) fn write<'a, I>(to: &mut [u8], pairs: impl Fn() -> I)
where
    I: Iterator<Item = (&'a [u8], &'a [u8])>,
{
    if to.len() != size(pairs()) || to.is_empty() {
        return to.fill(0);
    }
    let count = pairs().count();
    let (mut sizes, mut content) = to.split_at_mut(4 + 8 * count);
    let mut put = |number: usize| {
        let (place, rest) = std::mem::take(&mut sizes).split_at_mut(4);
        // What is held in memory and sent to a 32-bit guest is shorter than 4 GiB.
        place.copy_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
        sizes = rest;
    };
    put(count);
    for (name, value) in pairs() {
        put(name.len());
        put(value.len());
        for part in [name, value] {
            let (place, rest) = std::mem::take(&mut content).split_at_mut(part.len() + 1);
            place[..part.len()].copy_from_slice(part);
            place[part.len()] = 0;
            content = rest;
        }
    }
}

/// A map in a buffer of its own.
pub(crate) fn written<'a, I>(pairs: impl Fn() -> I) -> Vec<u8>
where
    I: Iterator<Item = (&'a [u8], &'a [u8])>,
{
    let mut buffer = vec![0; size(pairs())];
    write(&mut buffer, pairs);
    buffer
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_the_specification_shows() {
        let bytes = [
            &[2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0][..],
            b"a\x001\x00b\x0022\x00",
        ]
        .concat();
        let pairs: Pairs = vec![(b"a", b"1"), (b"b", b"22")];
        assert_eq!(parse(&bytes), Some(pairs.clone()));
        assert_eq!(written(|| pairs.iter().copied()), bytes);
        assert_eq!(written(std::iter::empty), b"");
    }

    #[test]
    fn empty_maps_have_three_forms() {
        for bytes in [&b""[..], b"\0", b"\0\0\0\0"] {
            assert_eq!(parse(bytes), Some(Vec::new()), "{bytes:?}");
        }
    }

    #[test]
    fn malformed_maps_are_none() {
        for bytes in [
            &b"\x01"[..],
            b"\0\0\0",
            b"\x01\0\0\0",
            b"\xff\xff\xff\xff",
            b"\xff\xff\xff\x7f\0\0\0\0\0\0\0\0",
            b"\x01\0\0\0\x01\0\0\0\x01\0\0\0a\0b",
            b"\x01\0\0\0\x01\0\0\0\x01\0\0\0a\0bx",
            b"\x01\0\0\0\x01\0\0\0\xff\xff\xff\xffa\0b\0",
            b"\x01\0\0\0\xff\xff\xff\xff\x01\0\0\0a\0b\0",
        ] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn written_maps_read_the_same(
            pairs in prop::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 0..8),
        ) {
            let view = || pairs.iter().map(|(name, value)| (&name[..], &value[..]));
            let bytes = written(view);
            prop_assert_eq!(parse(&bytes), Some(view().collect()));
        }

        #[test]
        fn no_bytes_panic(bytes in any::<Vec<u8>>()) {
            let _ = parse(&bytes);
        }
    }
}
