//! Any bytes as a fatbin.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::fatbin);
