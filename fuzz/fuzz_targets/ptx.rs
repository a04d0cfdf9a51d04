//! Any text as PTX.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::ptx);
