//! The runner that cargo executes in place of each program: it notes the program, and executes it with the audit library preloaded.
//!
//! It is replaced by the program, so signals, the exit status and the process id are as without it.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::child::{Audit, Variable, set_environment};
use super::super::failure::Failure;
use super::super::program;
use super::plan::{Plan, Program};

/// The first argument, by which the command is the runner. The others are the run's folder, the target, and the program with its
/// arguments.
pub(super) const WORD: &str = "runner";

/// Executes the program. Returns only if that is not possible.
pub(super) fn execute(arguments: &[OsString]) -> Failure {
    match try_execute(arguments) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

enum Never {}

fn try_execute(arguments: &[OsString]) -> Result<Never, Failure> {
    let [folder, target, program @ ..] = arguments else {
        return Err(Failure::NoProgram);
    };
    let folder = Path::new(folder);
    let plan = Plan::read(folder)?;
    let users = plan.runners.get(&*target.to_string_lossy());
    let command: Vec<&OsString> = users.into_iter().flatten().chain(program).collect();
    let (Some((name, rest)), Some((own, own_arguments))) =
        (command.split_first(), program.split_first())
    else {
        return Err(Failure::NoProgram);
    };
    let file = program::find(name)?;
    program::check(&file)?;
    // Of a program that the user's runner executes: nothing is preloaded into a static one.
    program::check(Path::new(own))?;
    let audit = Audit {
        library: &plan.library,
        simulation: plan.simulation.as_deref(),
        folder,
        words: &plan.words,
    };
    let environment = audit.environment();
    let program = Program {
        process: std::process::id(),
        package: env::var("CARGO_PKG_NAME").unwrap_or_default(),
        file: PathBuf::from(own),
        test: only_test(own_arguments),
        libraries: libraries(&environment),
    };
    program.note(folder).map_err(|error| Failure::Folder {
        path: folder.to_owned(),
        error,
    })?;
    let mut start = Command::new(&file);
    start.arg0(name).args(rest);
    set_environment(&mut start, &environment);
    // By this the audit library knows that it is in a program of the command.
    start.env("CUGUARD_RUNNER", std::process::id().to_string());
    let error = start.exec();
    Err(Failure::Start { path: file, error })
}

/// Where the program finds its libraries: those that cargo has built, and the simulated GPU.
fn libraries(environment: &[Variable]) -> Option<OsString> {
    const NAME: &str = "LD_LIBRARY_PATH";
    let mut set = environment.iter().filter(|(name, _)| name == NAME);
    let set = set.find_map(|(_, value)| value.clone());
    set.or_else(|| env::var_os(NAME))
}

/// The test that nextest starts the program for.
fn only_test(arguments: &[OsString]) -> Option<String> {
    env::var_os("NEXTEST")?;
    let exact = arguments.iter().position(|word| word == "--exact")?;
    let test = arguments.get(exact + 1)?.to_str()?;
    Some(test.to_owned())
}
