#![no_main]
//! `cargo +nightly fuzz run head`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::head(data));
