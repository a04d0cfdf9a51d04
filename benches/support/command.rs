//! The command line of a benchmark that compares a figure with a limit: `--limit`, `--test`, `--help`.

use std::process::ExitCode;

/// A benchmark as a command.
pub struct Command {
    pub name: &'static str,
    pub help: &'static str,
    /// Rounds, and calls in each.
    pub long: (usize, u32),
    /// The same of a run that only shows that it works.
    pub short: (usize, u32),
    /// What a figure above the limit is called: "a ratio of", …
    pub figure: &'static str,
}

/// What the arguments select.
pub struct Options {
    pub rounds: usize,
    /// Calls in each round.
    pub calls: u32,
    limit: Option<f64>,
}

impl Command {
    /// Runs `measure`, which prints the figures and returns the largest. Exits with code 1 if that is above the limit or
    /// if `measure` fails, and with code 2 for an unknown argument.
    pub fn run(
        &self,
        measure: impl FnOnce(&Options) -> Result<f64, Box<dyn std::error::Error>>,
    ) -> ExitCode {
        let (name, help) = (self.name, self.help);
        let options = match self.options(std::env::args().skip(1)) {
            Ok(Some(options)) => options,
            Ok(None) => {
                println!("{help}");
                return ExitCode::SUCCESS;
            }
            Err(argument) => {
                eprintln!("{name}: cannot use the argument {argument}\n\n{help}");
                return ExitCode::from(2);
            }
        };
        let (figure, error) = match (measure(&options), options.limit) {
            (Ok(figure), Some(limit)) if figure > limit => (
                self.figure,
                format!("{figure:.3} is more than the limit of {limit}"),
            ),
            (Ok(_), _) => return ExitCode::SUCCESS,
            (Err(error), _) => ("failed:", error.to_string()),
        };
        eprintln!("{name}: {figure} {error}");
        ExitCode::FAILURE
    }

    /// `None`: asked for help. An error names the argument.
    fn options(
        &self,
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<Option<Options>, String> {
        // Without optimisation the figures mean nothing, so they need not be exact.
        let short = cfg!(debug_assertions);
        let (rounds, calls) = if short { self.short } else { self.long };
        let mut options = Options {
            rounds,
            calls,
            limit: None,
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--help" | "-h" => return Ok(None),
                // Cargo adds this one.
                "--bench" => {}
                "--test" => (options.rounds, options.calls) = self.short,
                "--limit" => {
                    let value = arguments.next().ok_or("--limit without a number")?;
                    options.limit = Some(value.parse().map_err(|_| format!("--limit {value}"))?);
                }
                _ => return Err(argument),
            }
        }
        Ok(Some(options))
    }
}
