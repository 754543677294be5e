#![no_main]
//! `cargo +nightly fuzz run icap`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::icap(data));
