//! A valid recording with changed bytes.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::recording_flips);
