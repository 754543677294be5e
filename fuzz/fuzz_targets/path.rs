#![no_main]
//! `cargo +nightly fuzz run path`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::path(data));
