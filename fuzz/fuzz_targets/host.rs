#![no_main]
//! `cargo +nightly fuzz run host`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::host(data));
