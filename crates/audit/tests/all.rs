//! The tests of this crate. Each module runs in a process of its own.

cuguard_testing::run_modules_apart!("search", "search_malloc", "ends");

mod card;
mod closed_python;
mod crate_inside;
mod ends;
mod exiting;
mod growth;
mod handler_exits;
mod heap;
mod leaks;
mod locked;
mod out_of_memory;
mod pretend;
mod python_code;
mod refused_again;
mod report;
mod report_python;
mod report_unloaded;
mod search;
mod search_hindered;
mod search_malloc;
mod search_managed;
mod search_signals;
mod support;
mod unchanged;
mod ways;
