//! Bytes become operations of a pool, which must do what its model does.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::pool_sequence);
