//! Any text as PTX that kernels are decoded from.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::ptx_module);
