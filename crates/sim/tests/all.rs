//! The tests of this crate. Each module runs in a process of its own.

cuguard_testing::run_modules_apart!();

mod common;
mod contexts;
mod counters;
mod edge_cases;
mod faults;
mod fragmentation;
mod graph_kernels;
mod graph_misuse;
mod graphs;
mod kernel_faults;
mod kernel_results;
mod kernels;
mod limits;
mod location_pools;
mod misuse;
mod modules;
mod other_processes;
mod proc_address;
mod races;
mod streams;
mod trace;
mod visible_devices;
