#![no_main]
//! `cargo +nightly fuzz run request`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::request(data));
