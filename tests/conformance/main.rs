//! What a CUDA driver does, stated as cases and checked on the simulated GPU and, where there is
//! one, on a real GPU.
//!
//! Every case calls the plain driver functions, records what it observed and compares it with
//! what it expects. The expectations are the same for every driver: where the simulated GPU
//! answers something else than a real one, the simulation is wrong. The only exceptions are the
//! cases that declare their difference; the summary lists them.
//!
//! Some cases break their context, or the process, on purpose. So every case runs in a process of
//! its own: this program starts itself again with a hidden flag and reads what the child reports.
//!
//! `cargo test --test conformance -- --help` tells the options.

mod args;
mod case;
mod cases;
mod child;
mod driver;
mod host;
mod report;
mod runner;
mod tools;

use std::process::ExitCode;

fn main() -> ExitCode {
    match args::parse(std::env::args().skip(1)) {
        Ok(args::Command::Help) => {
            print!("{}", args::HELP);
            ExitCode::SUCCESS
        }
        Ok(args::Command::List(selection)) => {
            let chosen = selection.choose(&cases::all());
            for entry in &chosen {
                println!("{}: test", entry.name);
            }
            if !selection.terse {
                println!("\n{} cases, 0 benchmarks", chosen.len());
            }
            ExitCode::SUCCESS
        }
        Ok(args::Command::Child { case, on }) => child::run(&case, on),
        Ok(args::Command::Describe) => ExitCode::from(child::describe()),
        Ok(args::Command::Run(options)) => report::run(&options),
        Err(message) => {
            eprintln!("conformance: {message}\n\n{}", args::HELP);
            ExitCode::from(2)
        }
    }
}
