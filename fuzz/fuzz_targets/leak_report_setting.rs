//! Any text as `LEAK_REPORT`.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::setting);
