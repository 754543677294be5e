#![no_main]
//! `cargo +nightly fuzz run decode`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::decode(data));
