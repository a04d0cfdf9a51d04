//! Any bytes as the reply of a live process.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::live_reply);
