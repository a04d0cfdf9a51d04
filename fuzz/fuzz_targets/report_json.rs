//! Any snapshot as JSON, read back.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| cuguard_torture::report_json(bytes));
