#![no_main]
//! `cargo +nightly fuzz run config`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::config(data));
