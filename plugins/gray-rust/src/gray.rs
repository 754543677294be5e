//! Colour to grey: (77 r + 150 g + 29 b) / 256, the weights of ITU-R BT.601 in whole numbers.

/// Makes grey pixels of coloured ones. What there is too much of on either side is left alone.
pub fn transcode(rgb: &[u8], grey: &mut [u8]) {
    #[cfg(target_family = "wasm")]
    let (rgb, grey) = simd::transcode(rgb, grey);
    one_by_one(rgb, grey);
}

/// Compilers vectorise this where the machine has what it takes: not for WebAssembly, whose loads
/// they do not take apart into threes.
fn one_by_one(rgb: &[u8], grey: &mut [u8]) {
    for (pixel, grey) in rgb.chunks_exact(3).zip(grey) {
        let (red, green, blue) = (pixel[0], pixel[1], pixel[2]);
        // At most 256 · 255.
        let sum = 77 * u16::from(red) + 150 * u16::from(green) + 29 * u16::from(blue);
        *grey = (sum >> 8) as u8;
    }
}

/// The same for 16 pixels at once. Three vectors hold 16 pixels; each colour's bytes are blended
/// into one vector, since no two of them are at the same place modulo 16, put in order, and
/// multiplied as the even and the odd halves of 16-bit words, so that nothing has to be widened or
/// narrowed. Taking the vectors apart by shuffles of two instead, as the compiler would, takes
/// 1.4 times as long: machines shuffle once a cycle, and blend thrice.
#[cfg(target_family = "wasm")]
mod simd {
    use core::arch::wasm32::{
        i8x16_shuffle, u8x16, u16x8_add, u16x8_mul, u16x8_shr, u16x8_splat, u64x2,
        u64x2_extract_lane, v128, v128_and, v128_andnot, v128_or,
    };

    /// Masks of every third byte, from 0, 1 and 2 on.
    const THIRDS: [v128; 3] = [
        u8x16(255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255),
        u8x16(0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0),
        u8x16(0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0),
    ];

    /// Does whole blocks of 16 pixels; returns what is left.
    #[target_feature(enable = "simd128")]
    pub(super) fn transcode<'a, 'b>(rgb: &'a [u8], grey: &'b mut [u8]) -> (&'a [u8], &'b mut [u8]) {
        let blocks = (rgb.len() / 48).min(grey.len() / 16);
        let (rgb, rgb_rest) = rgb.split_at(blocks * 48);
        let (grey, grey_rest) = grey.split_at_mut(blocks * 16);
        for (block, grey) in rgb.as_chunks().0.iter().zip(grey.as_chunks_mut().0) {
            sixteen(block, grey);
        }
        (rgb_rest, grey_rest)
    }

    #[target_feature(enable = "simd128")]
    #[inline]
    fn sixteen(block: &[u8; 48], grey: &mut [u8; 16]) {
        let [a, b, c] = [load(block, 0), load(block, 16), load(block, 32)];
        let [first, second, third] = THIRDS;
        let blend = |x, y, z| v128_or(v128_or(v128_and(a, x), v128_and(b, y)), v128_and(c, z));
        let red = blend(first, third, second);
        let green = blend(second, first, third);
        let blue = blend(third, second, first);
        let red = i8x16_shuffle::<0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13>(red, red);
        let green =
            i8x16_shuffle::<1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14>(green, green);
        let blue =
            i8x16_shuffle::<2, 5, 8, 11, 14, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15>(blue, blue);
        let low = u16x8_splat(0xff);
        let even = weighted(v128_and(red, low), v128_and(green, low), v128_and(blue, low));
        let odd = weighted(u16x8_shr(red, 8), u16x8_shr(green, 8), u16x8_shr(blue, 8));
        store(grey, v128_or(u16x8_shr(even, 8), v128_andnot(odd, low)));
    }

    #[target_feature(enable = "simd128")]
    #[inline]
    fn weighted(red: v128, green: v128, blue: v128) -> v128 {
        let red = u16x8_mul(red, u16x8_splat(77));
        let green = u16x8_mul(green, u16x8_splat(150));
        let blue = u16x8_mul(blue, u16x8_splat(29));
        u16x8_add(u16x8_add(red, green), blue)
    }

    #[target_feature(enable = "simd128")]
    #[inline]
    fn load(block: &[u8; 48], at: usize) -> v128 {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&block[at..at + 16]);
        let word = u128::from_le_bytes(bytes);
        u64x2(word as u64, (word >> 64) as u64)
    }

    #[target_feature(enable = "simd128")]
    #[inline]
    fn store(to: &mut [u8; 16], vector: v128) {
        to[..8].copy_from_slice(&u64x2_extract_lane::<0>(vector).to_le_bytes());
        to[8..].copy_from_slice(&u64x2_extract_lane::<1>(vector).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_is_white_and_weights_are_right() {
        let mut grey = [1; 5];
        transcode(&[255, 255, 255, 255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9], &mut grey);
        assert_eq!(grey, [255, 76, 149, 28, 1], "an incomplete pixel is no pixel");
        let mut short = [0; 1];
        transcode(&[1, 2, 3, 4, 5, 6], &mut short);
        assert_eq!(short, [1]);
    }
}
