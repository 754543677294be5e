#![no_main]
//! `cargo +nightly fuzz run html`

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::html(data));
