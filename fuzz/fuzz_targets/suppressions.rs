//! Any text as a file of suppressions.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::suppressions);
