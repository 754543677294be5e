#![no_main]
//! `cargo +nightly fuzz run conditional`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::conditional(data));
