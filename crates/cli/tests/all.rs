//! The tests of this crate. Each module runs in a process of its own.

cuguard_testing::run_modules_apart!("cargo_runs", "cargo", "live");

mod cargo;
mod cargo_runs;
mod crate_inside;
mod crate_recordings;
mod doctor;
mod doctor_pools;
mod generated;
mod live;
mod metrics;
mod python_package;
mod record;
mod record_growth;
mod record_symbols;
mod report;
mod report_files;
mod run;
mod run_refused;
mod simulated;
mod support;
mod terminal;
mod watch;
