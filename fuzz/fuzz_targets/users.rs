#![no_main]
//! `cargo +nightly fuzz run users`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::users(data));
