//! The command line: the options of this suite, and those of every test program (`libtest-mimic`).

use clap::{CommandFactory, FromArgMatches, Parser};
use libtest_mimic::Arguments;

use crate::case::{Entry, On};

/// The help of `--nocapture` and `--show-output`.
const SHOWS: &str = "Print what each case observed";

/// Runs the cases on the simulated GPU and, where a real driver is found, on the real GPU too
#[derive(Debug, Parser)]
#[command(disable_version_flag = true)]
pub(crate) struct Options {
    /// Run on this driver alone: sim, real or the path of a library; `auto` runs on both. The default
    /// is CUGUARD_DRIVER, or `auto`
    #[arg(long, value_name = "sim|real|auto|PATH")]
    pub(crate) driver: Option<String>,

    /// Write what was observed, without addresses, times and sizes that depend on the card, so that
    /// `diff` compares two drivers; with two drivers FILE.sim and FILE.real are written
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<String>,

    #[command(flatten)]
    pub(crate) test: Arguments,

    /// More filters: a case runs if one of them matches
    #[arg(value_name = "FILTER")]
    more_filters: Vec<String>,

    /// As --nocapture
    #[arg(long, hide = true)]
    no_capture: bool,

    /// Run one case in this process
    #[arg(long, hide = true)]
    pub(crate) case: Option<String>,

    /// The kind of driver that the case runs on
    #[arg(long, hide = true, value_parser = On::from_word, default_value = "real")]
    pub(crate) on: On,

    /// Print which driver the environment selects
    #[arg(long, hide = true)]
    pub(crate) describe: bool,
}

impl Options {
    /// Parses the command line. Exits after `--help` and after invalid arguments.
    pub(crate) fn from_args() -> Options {
        // The help of the flattened options would replace that of this suite.
        let command = Options::command()
            .help_template("{about}\n\n{usage-heading} {usage}\n\n{all-args}{after-help}")
            .after_help("--test-threads is 2 by default; a real GPU runs one case at a time.")
            .mut_arg("nocapture", |option| option.help(SHOWS))
            .mut_arg("show_output", |option| option.help(SHOWS).long_help(SHOWS));
        Options::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }

    /// Applies the filters where there are several; `libtest-mimic` applies a single one.
    pub(crate) fn filter(&mut self, mut cases: Vec<Entry>) -> Vec<Entry> {
        if self.more_filters.is_empty() {
            return cases;
        }
        let mut filters = std::mem::take(&mut self.more_filters);
        filters.extend(self.test.filter.take());
        let exact = self.test.exact;
        cases.retain(|entry| {
            let matches = |filter: &String| match exact {
                true => entry.name == filter,
                false => entry.name.contains(filter.as_str()),
            };
            filters.iter().any(matches)
        });
        cases
    }

    /// Whether to print what each case observed.
    pub(crate) fn shows_output(&self) -> bool {
        self.test.nocapture || self.test.show_output || self.no_capture
    }
}
