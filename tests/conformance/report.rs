//! Runs the chosen cases on the chosen drivers and prints the results.

use std::collections::HashMap;
use std::fmt;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use cuguard_testing::Requirement;
use libtest_mimic::{Arguments, Trial};

use crate::args::Options;
use crate::case::Entry;
use crate::cases;
use crate::runner::{Missing, Outcome, Target, run_one};

/// A driver, the outcomes of the cases on it, and the suffix of its transcript file.
struct Round {
    target: Target,
    outcomes: Vec<(Entry, Outcome)>,
    suffix: &'static str,
    passed: bool,
}

/// Runs everything that `options` ask for. The exit code says whether all cases passed.
pub(crate) fn run(mut options: Options) -> ExitCode {
    let chosen = options.filter(cases::all());
    if options.test.list {
        let names = chosen
            .iter()
            .map(|entry| Trial::test(entry.name, || Ok(())));
        return libtest_mimic::run(&options.test, names.collect()).exit_code();
    }
    if options.test.test_threads == Some(0) {
        eprintln!("conformance: --test-threads must be above 0");
        return ExitCode::from(2);
    }
    let (targets, absent) = match find_targets(options.driver.as_deref()) {
        Ok(found) => found,
        Err(message) => {
            eprintln!("conformance: {message}");
            return ExitCode::FAILURE;
        }
    };
    let rounds: Vec<Round> = targets
        .into_iter()
        .map(|(target, suffix)| run_on(target, suffix, &chosen, &options))
        .collect();
    let mut passed = rounds.iter().all(|round| round.passed);
    if let Some(reason) = absent {
        println!("\nnot run on a real GPU: {reason}");
        match Requirement::RealGpu.is_required() {
            Ok(false) => {}
            Ok(true) => {
                eprintln!("conformance: CUGUARD_REQUIRE requires `gpu`");
                passed = false;
            }
            Err(error) => {
                eprintln!("conformance: {error}");
                passed = false;
            }
        }
    }
    if let [first, second] = rounds.as_slice() {
        passed &= compare(first, second);
    }
    if let Some(file) = &options.record {
        passed &= record(file, &rounds);
    }
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The drivers to run on, each with the suffix of its transcript, and why no real GPU is among them.
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
                .then(|| format!("{source}={one} selects the simulated one"));
            let suffix = if target.on.simulated() { "sim" } else { "real" };
            Ok((vec![(target, suffix)], absent))
        }
    }
}

/// Both drivers. A real GPU is optional, but an installed driver must work, and so must the simulated
/// GPU.
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

fn run_on(target: Target, suffix: &'static str, chosen: &[Entry], options: &Options) -> Round {
    println!("\ndriver: {}", target.description);
    let outcomes: Arc<Mutex<HashMap<_, Outcome>>> = Arc::default();
    let shows_output = options.shows_output();
    let trials = chosen.iter().map(|&entry| {
        let (target, outcomes) = (target.clone(), Arc::clone(&outcomes));
        Trial::test(entry.name, move || {
            let outcome = run_one(&entry, &target);
            if shows_output {
                println!("{}", observations(&entry, &outcome));
            }
            let mut outcomes = outcomes.lock().expect("no case panics");
            let outcome = outcomes.entry(entry.name).insert_entry(outcome);
            let outcome = outcome.get();
            match outcome.failures.is_empty() {
                true => Ok(()),
                false => Err(failures(outcome).into()),
            }
        })
    });
    // A real GPU runs one case at a time: the cases measure its memory.
    let threads = match target.on.simulated() {
        true => options.test.test_threads.unwrap_or(2),
        false => 1,
    };
    let arguments = Arguments {
        test_threads: Some(threads),
        ..options.test.clone()
    };
    let passed = !libtest_mimic::run(&arguments, trials.collect()).has_failed();
    let mut outcomes = std::mem::take(&mut *outcomes.lock().expect("no case panics"));
    let ran = chosen.iter();
    let outcomes: Vec<_> = ran
        .filter_map(|entry| Some((*entry, outcomes.remove(entry.name)?)))
        .collect();
    let declared = outcomes.iter().filter_map(|(entry, _)| {
        let reason = entry.differs_on_simulation?;
        Some(format!("    {}: {reason}\n", entry.name))
    });
    let declared: String = declared.collect();
    if target.on.simulated() && !declared.is_empty() {
        println!("declared differences of the simulated GPU:\n{declared}");
    }
    let observed = outcomes.iter().map(|(_, outcome)| outcome.observed.len());
    let (observed, driver) = (observed.sum::<usize>(), &target.description);
    println!("{observed} expectations checked on {driver}");
    Round {
        target,
        outcomes,
        suffix,
        passed,
    }
}

/// What a case observed, how long it took, and what it wrote to stderr.
fn observations(entry: &Entry, outcome: &Outcome) -> String {
    let mut text = format!("\ncase {}:\n", entry.name);
    for line in &outcome.observed {
        text += &format!("      {line}\n");
    }
    text += &format!("      took {:.2} s", outcome.time.as_secs_f64());
    for line in outcome.errors.lines() {
        text += &format!("\n    stderr: {line}");
    }
    text
}

/// What is wrong with a case, and what it wrote to stderr.
fn failures(outcome: &Outcome) -> String {
    let failures = outcome.failures.iter();
    let failures = failures.map(|failure| format!("    failed: {failure}"));
    let errors = outcome.errors.lines();
    let errors = errors.map(|line| format!("    stderr: {line}"));
    failures.chain(errors).collect::<Vec<_>>().join("\n")
}

fn count_of_cases(count: usize) -> String {
    format!("{count} {}", if count == 1 { "case" } else { "cases" })
}

/// The transcript of one case: what was observed, or the reason of a declared difference. So the
/// transcripts of two drivers are equal exactly when the drivers agree.
fn transcript(entry: &Entry, outcome: &Outcome) -> Vec<String> {
    match entry.differs_on_simulation {
        Some(reason) => vec![format!("differs on the simulated GPU: {reason}")],
        None => outcome.observed.clone(),
    }
}

/// How many cases two drivers agree in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    agree: usize,
    declared: usize,
    different: usize,
}

impl Agreement {
    /// Counts a case; returns whether the two drivers differ in it.
    pub(crate) fn count(&mut self, one: &Outcome, other: &Outcome, entry: &Entry) -> bool {
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

/// Whether both rounds observed the same; prints where they did not.
fn compare(first: &Round, second: &Round) -> bool {
    let mut agreement = Agreement::default();
    let pairs = first.outcomes.iter().zip(&second.outcomes);
    for ((entry, one), (_, other)) in pairs {
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

/// Writes the transcripts; returns whether that succeeded.
fn record(file: &str, rounds: &[Round]) -> bool {
    let mut written = true;
    for round in rounds {
        let name = match rounds {
            [_] => file.to_owned(),
            _ => format!("{file}.{}", round.suffix),
        };
        let mut text = String::new();
        for (entry, outcome) in &round.outcomes {
            text += &format!("{}\n", entry.name);
            for line in transcript(entry, outcome) {
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
