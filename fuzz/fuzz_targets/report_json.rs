//! Any snapshot as JSON, read back.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::report_json);
