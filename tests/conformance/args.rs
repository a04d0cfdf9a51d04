//! The command line: the options of this suite, and those that `cargo test` hands to every test
//! program.

use crate::case::{Entry, On};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Usage: conformance [OPTIONS] [FILTER]...

Runs the cases whose name contains one of the FILTERs (all cases without a FILTER) on the
simulated GPU and, where a real driver is found, on the real GPU too.

Options:
  --driver sim|real|auto|PATH  run on this driver alone (`auto`: the default, both). Without this
                               option CUGUARD_DRIVER is obeyed
  --record FILE                write what was observed, without addresses, times and sizes that
                               depend on the card, so that two drivers can be compared with
                               `diff`; with two drivers FILE.sim and FILE.real are written
  --list                       list the cases
  --exact                      a FILTER is a whole name
  --skip TEXT                  leave out the cases whose name contains TEXT
  --test-threads N             cases at a time on the simulated GPU (2); a real GPU runs one
  -q, --quiet                  print only the cases that failed
  --nocapture, --show-output   print what each case observed
  --help                       print this

Accepted without effect: --format FORMAT, --color WHEN, --include-ignored. With --ignored no case
runs, because none is ignored.
";

/// Which cases to run.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    filters: Vec<String>,
    skip: Vec<String>,
    exact: bool,
    none: bool,
    /// Print the list in the form that test runners read.
    pub(crate) terse: bool,
}

impl Selection {
    /// The cases of `all` that this selection takes, in their order.
    pub(crate) fn choose(&self, all: &[Entry]) -> Vec<Entry> {
        let matches = |name: &str, word: &String| {
            if self.exact {
                name == word
            } else {
                name.contains(word.as_str())
            }
        };
        all.iter()
            .filter(|_| !self.none)
            .filter(|entry| {
                self.filters.is_empty() || self.filters.iter().any(|word| matches(entry.name, word))
            })
            .filter(|entry| !self.skip.iter().any(|word| matches(entry.name, word)))
            .copied()
            .collect()
    }
}

/// How to run the cases.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) selection: Selection,
    pub(crate) driver: Option<String>,
    pub(crate) record: Option<String>,
    pub(crate) threads: usize,
    pub(crate) quiet: bool,
    pub(crate) show: bool,
}

/// What this process is for.
#[derive(Debug)]
pub(crate) enum Command {
    Help,
    List(Selection),
    Run(Options),
    /// Hidden: run one case in this process.
    Child {
        case: String,
        on: On,
    },
    /// Hidden: say which driver the environment selects.
    Describe,
}

/// Reads the command line. The error names what is wrong.
pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut selection = Selection::default();
    let mut options = Options {
        selection: Selection::default(),
        driver: None,
        record: None,
        threads: 2,
        quiet: false,
        show: false,
    };
    let (mut list, mut help, mut describe) = (false, false, false);
    let (mut case, mut on) = (None, On::Real);
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        if !argument.starts_with('-') {
            selection.filters.push(argument);
            continue;
        }
        let (flag, mut inline) = match argument.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let mut value = || {
            inline
                .take()
                .or_else(|| arguments.next())
                .ok_or_else(|| format!("the option {flag} needs a value"))
        };
        match flag.as_str() {
            "--help" | "-h" => help = true,
            "--list" => list = true,
            "--exact" => selection.exact = true,
            "--skip" => selection.skip.push(value()?),
            "--driver" => options.driver = Some(value()?),
            "--record" => options.record = Some(value()?),
            "--test-threads" => {
                let text = value()?;
                options.threads =
                    text.parse()
                        .ok()
                        .filter(|&count| count > 0)
                        .ok_or_else(|| {
                            format!("--test-threads needs a number above 0, not {text:?}")
                        })?;
            }
            "--quiet" | "-q" => options.quiet = true,
            "--nocapture" | "--no-capture" | "--show-output" => options.show = true,
            "--format" => selection.terse = value()? == "terse",
            "--color" => drop(value()?),
            "--ignored" => selection.none = true,
            "--include-ignored" => {}
            "--case" => case = Some(value()?),
            "--on" => on = On::from_word(&value()?)?,
            "--describe" => describe = true,
            _ => return Err(format!("unknown option {flag}")),
        }
        if inline.is_some() {
            return Err(format!("the option {flag} takes no value"));
        }
    }
    Ok(if help {
        Command::Help
    } else if describe {
        Command::Describe
    } else if let Some(case) = case {
        Command::Child { case, on }
    } else if list {
        Command::List(selection)
    } else {
        options.selection = selection;
        Command::Run(options)
    })
}
