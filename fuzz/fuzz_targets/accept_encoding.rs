#![no_main]
//! `cargo +nightly fuzz run accept_encoding`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::accept_encoding(data));
