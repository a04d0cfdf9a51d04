//! Any snapshot as JSON, read back.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::report_json);
