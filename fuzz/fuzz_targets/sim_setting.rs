//! Any text as `CUGUARD_SIM`.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::sim_setting);
