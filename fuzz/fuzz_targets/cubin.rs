//! Any bytes as a cubin.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::cubin);
