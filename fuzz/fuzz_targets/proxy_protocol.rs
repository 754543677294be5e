#![no_main]
//! `cargo +nightly fuzz run proxy_protocol`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::proxy_protocol(data));
