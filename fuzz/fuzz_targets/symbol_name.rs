//! Any bytes as a mangled name.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::symbol_name);
