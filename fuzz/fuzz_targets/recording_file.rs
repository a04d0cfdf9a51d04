//! Any bytes as a recording.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::recording_file);
