#![no_main]
//! `cargo +nightly fuzz run image`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::image(data));
