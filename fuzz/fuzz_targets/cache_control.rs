#![no_main]
//! `cargo +nightly fuzz run cache_control`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::cache_control(data));
