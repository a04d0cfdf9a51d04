//! Any text as `LEAK_REPORT`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| cuguard_torture::setting(bytes));
