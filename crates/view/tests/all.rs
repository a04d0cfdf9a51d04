//! The tests of this crate. Each module runs in a process of its own.

cuguard_testing::run_modules_apart!();

mod diff;
mod from_recording;
mod growth;
mod hostile;
mod leaked;
mod model;
mod page;
mod pprof;
mod reports;
mod support;
mod symbols;
