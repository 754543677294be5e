#![no_main]
//! `cargo +nightly fuzz run helper_report`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::helper_report(data));
