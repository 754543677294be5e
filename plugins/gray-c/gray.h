/*
 * Colour to grey: (77 r + 150 g + 29 b) / 256, the weights of ITU-R BT.601 in whole numbers. Plain C,
 * the same for a plugin and for anything else.
 */
#ifndef GRAY_H
#define GRAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __wasm__
#include <wasm_simd128.h>

/*
 * Sixteen pixels at once. Three vectors hold them; each colour's bytes are blended into one vector,
 * since no two of them are at the same place modulo 16, put in order, and multiplied as the even and
 * the odd halves of 16-bit words, so that nothing has to be widened or narrowed.
 */
__attribute__((target("simd128"))) static inline v128_t
gray_weighted(v128_t red, v128_t green, v128_t blue) {
    return wasm_i16x8_add(
        wasm_i16x8_add(
            wasm_i16x8_mul(red, wasm_i16x8_const_splat(77)),
            wasm_i16x8_mul(green, wasm_i16x8_const_splat(150))),
        wasm_i16x8_mul(blue, wasm_i16x8_const_splat(29)));
}

__attribute__((target("simd128"))) static inline size_t
gray_blocks(const uint8_t *restrict rgb, uint8_t *restrict grey, size_t pixels) {
    const v128_t t0 = wasm_u8x16_const(255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255);
    const v128_t t1 = wasm_u8x16_const(0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0);
    const v128_t t2 = wasm_u8x16_const(0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0);
    const v128_t low = wasm_u16x8_const_splat(0xff);
    size_t done = 0;
    for (; done + 16 <= pixels; done += 16, rgb += 48) {
        v128_t a = wasm_v128_load(rgb), b = wasm_v128_load(rgb + 16), c = wasm_v128_load(rgb + 32);
#define GRAY_BLEND(x, y, z)                                                                         \
    wasm_v128_or(wasm_v128_or(wasm_v128_and(a, x), wasm_v128_and(b, y)), wasm_v128_and(c, z))
        v128_t red = GRAY_BLEND(t0, t2, t1);
        v128_t green = GRAY_BLEND(t1, t0, t2);
        v128_t blue = GRAY_BLEND(t2, t1, t0);
#undef GRAY_BLEND
        red = wasm_i8x16_shuffle(red, red, 0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13);
        green = wasm_i8x16_shuffle(
            green, green, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14);
        blue = wasm_i8x16_shuffle(
            blue, blue, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15);
        v128_t even = gray_weighted(
            wasm_v128_and(red, low), wasm_v128_and(green, low), wasm_v128_and(blue, low));
        v128_t odd = gray_weighted(
            wasm_u16x8_shr(red, 8), wasm_u16x8_shr(green, 8), wasm_u16x8_shr(blue, 8));
        wasm_v128_store(grey + done, wasm_v128_or(wasm_u16x8_shr(even, 8), wasm_v128_andnot(odd, low)));
    }
    return done;
}
#else
/* Compilers vectorise the loop below for machines; only WebAssembly's loads they do not take apart
 * into threes. */
static inline size_t gray_blocks(const uint8_t *rgb, uint8_t *grey, size_t pixels) {
    (void)rgb, (void)grey, (void)pixels;
    return 0;
}
#endif

/* Makes `pixels` grey pixels of as many coloured ones. */
static inline void
gray_transcode(const uint8_t *restrict rgb, uint8_t *restrict grey, size_t pixels) {
    for (size_t i = gray_blocks(rgb, grey, pixels); i < pixels; i++) {
        uint16_t red = rgb[3 * i], green = rgb[3 * i + 1], blue = rgb[3 * i + 2];
        grey[i] = (uint8_t)((uint16_t)(77 * red + 150 * green + 29 * blue) >> 8);
    }
}

#endif
