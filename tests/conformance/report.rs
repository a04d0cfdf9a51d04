//! Runs the chosen cases on the chosen drivers and tells what came of it.

use std::fmt;
use std::process::ExitCode;
use std::time::Instant;

use crate::args::Options;
use crate::case::Entry;
use crate::cases;
use crate::runner::{Missing, Outcome, Target, run_all};

/// A driver, the cases' outcomes on it, and the name that its transcript file ends in.
struct Round {
    target: Target,
    outcomes: Vec<Outcome>,
    suffix: &'static str,
}

/// Runs everything that `options` ask for. The exit code tells whether all cases passed.
pub(crate) fn run(options: &Options) -> ExitCode {
    let all = cases::all();
    let chosen = options.selection.choose(&all);
    let filtered = all.len() - chosen.len();
    let (targets, absent) = match find_targets(options.driver.as_deref()) {
        Ok(found) => found,
        Err(message) => {
            eprintln!("conformance: {message}");
            return ExitCode::FAILURE;
        }
    };
    let mut rounds = Vec::new();
    for (target, suffix) in targets {
        rounds.push(run_on(target, suffix, &chosen, filtered, options));
    }
    if let Some(reason) = absent {
        println!("\nnot run on a real GPU: {reason}");
    }
    let mut passed = rounds.iter().all(|round| {
        round
            .outcomes
            .iter()
            .all(|outcome| outcome.failures.is_empty())
    });
    if let [first, second] = rounds.as_slice() {
        passed &= compare(first, second, &chosen);
    }
    if let Some(file) = &options.record {
        passed &= record(file, &rounds, &chosen);
    }
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The drivers to run on, each with the suffix of its transcript, and why a real GPU is not among
/// them if it is not.
pub(crate) type Targets = (Vec<(Target, &'static str)>, Option<String>);

fn find_targets(asked: Option<&str>) -> Result<Targets, String> {
    let variable = std::env::var("CUGUARD_DRIVER").ok();
    let source = if asked.is_some() {
        "--driver"
    } else {
        "CUGUARD_DRIVER"
    };
    match asked.or(variable.as_deref()).unwrap_or("auto") {
        "auto" | "" => both(Target::find("sim"), Target::find("real")),
        one => {
            let target = Target::find(one)
                .map_err(|missing| format!("{source}={one}: {}", missing.reason()))?;
            let absent = target
                .on
                .simulated()
                .then(|| format!("{source}={one} asks for the simulated one"));
            let suffix = if target.on.simulated() { "sim" } else { "real" };
            Ok((vec![(target, suffix)], absent))
        }
    }
}

/// Both drivers. There need not be a real GPU; but a driver that is installed must work, and the
/// simulated GPU must always.
pub(crate) fn both(
    simulation: Result<Target, Missing>,
    real: Result<Target, Missing>,
) -> Result<Targets, String> {
    let simulation =
        simulation.map_err(|missing| format!("the simulated GPU: {}", missing.reason()))?;
    let mut targets = vec![(simulation, "sim")];
    let absent = match real {
        Ok(found) if found.on.simulated() => {
            Some(format!("the installed driver is a {}", found.description))
        }
        Ok(real) => {
            targets.push((real, "real"));
            None
        }
        Err(Missing::Absent(reason)) => Some(reason),
        Err(Missing::Broken(reason)) => {
            return Err(format!("the installed driver does not work: {reason}"));
        }
    };
    Ok((targets, absent))
}

fn run_on(
    target: Target,
    suffix: &'static str,
    chosen: &[Entry],
    filtered: usize,
    options: &Options,
) -> Round {
    println!(
        "\nrunning {}\ndriver: {}",
        count_of_cases(chosen.len()),
        target.description
    );
    let begin = Instant::now();
    let outcomes = run_all(chosen, &target, options.threads, |outcome| {
        show(outcome, options)
    });
    let failed = outcomes.iter().filter(|o| !o.failures.is_empty()).count();
    let ignored = outcomes.iter().filter(|o| o.ignored.is_some()).count();
    let observed: usize = outcomes.iter().map(|o| o.observed.len()).sum();
    println!();
    if failed > 0 {
        println!("failures:");
        for outcome in outcomes.iter().filter(|o| !o.failures.is_empty()) {
            println!("    {}", outcome.name);
        }
        println!();
    }
    let differing: Vec<_> = chosen
        .iter()
        .filter(|e| e.differs_on_simulation.is_some())
        .collect();
    if target.on.simulated() && !differing.is_empty() {
        println!("declared differences of the simulated GPU:");
        for entry in differing {
            println!(
                "    {}: {}",
                entry.name,
                entry.differs_on_simulation.unwrap_or_default()
            );
        }
        println!();
    }
    println!(
        "driver: {}; {observed} expectations checked",
        target.description
    );
    println!(
        "test result: {}. {} passed; {failed} failed; {ignored} ignored; 0 measured; \
         {filtered} filtered out; finished in {:.2}s",
        if failed == 0 { "ok" } else { "FAILED" },
        outcomes.len() - failed - ignored,
        begin.elapsed().as_secs_f64()
    );
    Round {
        target,
        outcomes,
        suffix,
    }
}

fn count_of_cases(count: usize) -> String {
    format!("{count} {}", if count == 1 { "case" } else { "cases" })
}

fn show(outcome: &Outcome, options: &Options) {
    if let Some(reason) = outcome.ignored {
        println!("case {} ... ignored, {reason}", outcome.name);
        return;
    }
    let passed = outcome.failures.is_empty();
    if passed && options.quiet {
        return;
    }
    // One write, so that the lines of cases that run at the same time do not mix.
    let mut text = format!(
        "case {} ... {}\n",
        outcome.name,
        if passed { "ok" } else { "FAILED" }
    );
    if options.show {
        for line in &outcome.observed {
            text += &format!("      {line}\n");
        }
        text += &format!("      took {:.2} s\n", outcome.time.as_secs_f64());
    }
    for failure in &outcome.failures {
        text += &format!("    failed: {failure}\n");
    }
    if !passed || options.show {
        for line in outcome.errors.lines() {
            text += &format!("    stderr: {line}\n");
        }
    }
    print!("{text}");
}

/// The transcript of one case: what was observed, or for a case that differs by declaration its
/// reason, so that the transcripts of two drivers are equal exactly when the drivers agree.
fn transcript(outcome: &Outcome, entry: &Entry) -> Vec<String> {
    match entry.differs_on_simulation {
        Some(reason) => vec![format!("differs on the simulated GPU: {reason}")],
        None => outcome.observed.clone(),
    }
}

/// How many cases two drivers agree in. Cases that one of them did not run count nowhere.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    agree: usize,
    declared: usize,
    different: usize,
}

impl Agreement {
    /// Counts a case, and tells whether the two drivers differ in it.
    pub(crate) fn count(&mut self, one: &Outcome, other: &Outcome, entry: &Entry) -> bool {
        if one.ignored.is_some() || other.ignored.is_some() {
            return false;
        }
        if entry.differs_on_simulation.is_some() {
            self.declared += 1;
            return false;
        }
        let differs = one.observed != other.observed;
        if differs {
            self.different += 1;
        } else {
            self.agree += 1;
        }
        differs
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the two drivers agree in {}", count_of_cases(self.agree))?;
        match self.declared {
            0 => {}
            1 => f.write_str("; 1 differs by declaration")?,
            more => write!(f, "; {more} differ by declaration")?,
        }
        match self.different {
            0 => Ok(()),
            1 => f.write_str("; 1 differs"),
            more => write!(f, "; {more} differ"),
        }
    }
}

/// Whether both rounds observed the same; tells where they did not.
fn compare(first: &Round, second: &Round, chosen: &[Entry]) -> bool {
    let mut agreement = Agreement::default();
    let pairs = first.outcomes.iter().zip(&second.outcomes);
    for ((one, other), entry) in pairs.zip(chosen) {
        if !agreement.count(one, other, entry) {
            continue;
        }
        let (ours, theirs) = (&one.observed, &other.observed);
        println!("\ncase {} differs:", entry.name);
        for line in ours.iter().filter(|line| !theirs.contains(line)) {
            println!("    {}: {line}", first.target.description);
        }
        for line in theirs.iter().filter(|line| !ours.contains(line)) {
            println!("    {}: {line}", second.target.description);
        }
    }
    println!("\n{agreement}");
    agreement.different == 0
}

/// Writes the transcripts. Whether that worked.
fn record(file: &str, rounds: &[Round], chosen: &[Entry]) -> bool {
    let mut written = true;
    for round in rounds {
        let name = match rounds {
            [_] => file.to_owned(),
            _ => format!("{file}.{}", round.suffix),
        };
        let mut text = String::new();
        for (outcome, entry) in round.outcomes.iter().zip(chosen) {
            text += &format!("{}\n", entry.name);
            for line in transcript(outcome, entry) {
                text += &format!("    {line}\n");
            }
        }
        match std::fs::write(&name, text) {
            Ok(()) => println!("recorded: {name}"),
            Err(error) => {
                eprintln!("conformance: cannot write {name}: {error}");
                written = false;
            }
        }
    }
    written
}
