#![no_main]
//! `cargo +nightly fuzz run helper_order`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::helper_order(data));
