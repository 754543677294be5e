#![no_main]
//! `cargo +nightly fuzz run range`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::range(data));
