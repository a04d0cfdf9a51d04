//! Any bytes as a request to a live process.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::live_request);
