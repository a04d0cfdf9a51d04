//! What a CUDA driver does, stated as cases and checked on the simulated GPU and, where there is
//! one, on a real GPU.
//!
//! Every case calls the plain driver functions, records what it observed and compares it with
//! what it expects. The expectations are the same for every driver: where the simulated GPU differs
//! from a real one, the simulation is wrong. The only exceptions are the cases that declare their
//! difference; the summary lists them.
//!
//! Some cases break their context, or the process, on purpose. So every case runs in a process of its
//! own: this program starts itself again with a hidden option and reads what the child reports.
//!
//! `cargo test --test conformance -- --help` lists the options.

mod args;
mod case;
mod cases;
mod child;
mod driver;
mod graphs;
mod host;
mod report;
mod runner;
mod tools;

use std::process::ExitCode;

fn main() -> ExitCode {
    let options = args::Options::from_args();
    if let Some(case) = &options.case {
        child::run(case, options.on)
    } else if options.describe {
        ExitCode::from(child::describe())
    } else {
        report::run(options)
    }
}
