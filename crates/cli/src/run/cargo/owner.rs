//! Which test allocated a resource. A wrong answer is worse than none, so what is not certain is attributed to no test.
//!
//! libtest names a thread after each test, of which Linux keeps 15 bytes, and runs the test there. Its own functions are on the
//! stack trace then, and the name is right, also where an optimizer has inlined the test, or where the test calls a function that
//! has the name of another. On a thread without them the name says nothing: Linux gives a thread without a name that of the thread
//! that started it. There, and on the main thread, the frames name the test: its function, or a closure in it. A crate of the same
//! name in the program has frames that look the same, so then none counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cuguard_report::FailOn;

use super::plan::{Program, crate_name};
use super::reports::{Frame, Group, LEAKED, NOT_FREED, Report};
use super::test_program::{Place, TestProgram, is_named_after, path_in_crate, place};

/// Who allocated something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// Tests: several, where one group has threads of several.
    Tests { program: String, names: Vec<String> },
    /// Not known: the program, and the threads that allocated it.
    Program {
        program: String,
        threads: Vec<String>,
    },
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Lost,
    /// Not searched for to the end: it may be lost.
    Alive,
    NotFreed,
    Destroyed,
    Reachable,
    Growing,
    Refused,
}

/// What was found at one call site.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) owner: Owner,
    pub(super) what: What,
    /// The kind of resource, its name in JSON. Empty for what grows or was refused.
    pub(super) kind: String,
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// The guards' label, or the function of the driver that refused.
    pub(super) label: Option<String>,
    /// Where the address was found.
    pub(super) holder: Option<String>,
    /// The frames of the program up to the test.
    pub(super) frames: Vec<Frame>,
}

/// The findings that are listed: losses always, others where they set the exit code.
pub(super) fn attribute(
    reports: &[Report],
    programs: &BTreeMap<u32, Program>,
    fail_on: FailOn,
) -> Vec<Finding> {
    let mut owners = Owners::new(programs);
    let mut found = Vec::new();
    for report in reports {
        for group in &report.groups {
            let Some(what) = what(group, fail_on) else {
                continue;
            };
            let (owner, frames) = owners.of(report.process, &group.stack, &group.threads);
            found.push(Finding {
                owner,
                what,
                kind: group.kind.clone(),
                count: group.count,
                bytes: group.bytes,
                label: group.label.clone(),
                holder: group.holder.clone(),
                frames,
            });
        }
        for growth in report.growth.iter().filter(|_| fail_on.growth) {
            let (owner, frames) = owners.of(report.process, &growth.stack, &[]);
            found.push(Finding {
                owner,
                what: What::Growing,
                kind: String::new(),
                count: growth.blocks,
                bytes: growth.to_bytes.saturating_sub(growth.from_bytes),
                label: None,
                holder: None,
                frames,
            });
        }
        for refused in report.refused.iter().filter(|_| fail_on.oom) {
            let (owner, frames) = owners.of(report.process, &refused.stack, &[]);
            found.push(Finding {
                owner,
                what: What::Refused,
                kind: String::new(),
                count: refused.count,
                bytes: refused.largest_bytes.unwrap_or(0),
                label: Some(refused.function.clone()),
                holder: None,
                frames,
            });
        }
    }
    merged(found)
}

/// Findings that differ in frames that are not shown become one.
fn merged(findings: Vec<Finding>) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    for finding in findings {
        match merged.iter_mut().find(|known| known.looks_like(&finding)) {
            Some(known) => {
                known.count = known.count.saturating_add(finding.count);
                known.bytes = match known.what {
                    // The largest.
                    What::Refused => known.bytes.max(finding.bytes),
                    _ => known.bytes.saturating_add(finding.bytes),
                };
            }
            None => merged.push(finding),
        }
    }
    merged
}

impl Finding {
    fn looks_like(&self, other: &Self) -> bool {
        let place = |frame: &Frame| (frame.function.clone(), frame.file.clone(), frame.line);
        (&self.owner, self.what, &self.kind) == (&other.owner, other.what, &other.kind)
            && (&self.label, &self.holder) == (&other.label, &other.holder)
            && self
                .frames
                .iter()
                .map(place)
                .eq(other.frames.iter().map(place))
    }
}

fn what(group: &Group, fail_on: FailOn) -> Option<What> {
    match &*group.fate {
        "lost" | LEAKED => Some(What::Lost),
        "unclassified" => Some(What::Alive),
        NOT_FREED => Some(What::NotFreed),
        _ if group.is_destroyed_memory() => Some(What::Destroyed),
        "reachable" if fail_on.reachable => Some(What::Reachable),
        _ => None,
    }
}

/// Knows the tests of all programs.
struct Owners<'a> {
    programs: &'a BTreeMap<u32, Program>,
    /// Of each file that was on a stack trace.
    files: BTreeMap<PathBuf, TestProgram>,
}

impl<'a> Owners<'a> {
    fn new(programs: &'a BTreeMap<u32, Program>) -> Self {
        Self {
            programs,
            files: BTreeMap::new(),
        }
    }

    /// Who has this stack trace, and its frames that are shown.
    fn of(&mut self, process: u32, stack: &[Frame], threads: &[String]) -> (Owner, Vec<Frame>) {
        let started = self.programs.get(&process);
        let names = match started.and_then(|started| started.test.clone()) {
            Some(only) => vec![only],
            None => self.tests_of(stack, threads),
        };
        let test = match &names[..] {
            [name] => stack
                .iter()
                .rposition(|frame| self.place_in(frame).is_some_and(|(test, _)| test == *name)),
            _ => None,
        };
        let frames = shown(&stack[..self.end_of_shown(stack, test)]);
        let file = stack[test.unwrap_or(0)..]
            .iter()
            .find_map(|frame| frame.module.clone());
        // A process that a test has started is of the same program, or of another.
        let program = match (started, &file) {
            (Some(program), _) => program.name(),
            (None, Some(file)) => self.name_of(file),
            (None, None) => format!("process {process}"),
        };
        let owner = match names.is_empty() {
            true => Owner::Program {
                program,
                threads: threads.to_vec(),
            },
            false => Owner::Tests { program, names },
        };
        (owner, frames)
    }

    /// Whose tests a stack trace is, on these threads. None where that is not certain.
    fn tests_of(&mut self, stack: &[Frame], threads: &[String]) -> Vec<String> {
        // A crate that cannot be told from another by its name says nothing.
        let mut places = Vec::new();
        for frame in stack {
            let place = self.place_in(frame);
            let file = frame.module.as_deref().unwrap_or(Path::new(""));
            places.extend(place.filter(|_| !self.file(file).has_namesake));
        }
        let Some(libtest) = stack.iter().find(|frame| is_libtest(frame)) else {
            // Some thread, with the name that it was given, or else that of the thread that started it.
            let (mut tests, mut others) = (places.iter(), places.iter());
            let first = tests.next().map(|(test, _)| test);
            let is_one = others.all(|(test, _)| Some(test) == first);
            return first.filter(|_| is_one).cloned().into_iter().collect();
        };
        let file = libtest.module.clone().unwrap_or_default();
        let outermost = places.last();
        let unnamed = [MAIN.to_owned()];
        let threads = if threads.is_empty() {
            &unnamed
        } else {
            threads
        };
        let mut names = Vec::new();
        for thread in threads {
            let tests = &self.file(&file).tests;
            let named: Vec<_> = tests
                .iter()
                .filter(|test| *thread != MAIN && is_named_after(thread, test))
                .collect();
            let name = match (&named[..], outermost) {
                ([name], _) => Some((*name).clone()),
                // libtest runs the test on the main thread, or the test has named its thread. A test may call the function of
                // another, so it must be in what libtest calls for the test.
                ([], Some((test, Place::Closure))) => Some(test.clone()),
                (several, Some((test, _))) if several.contains(&test) => Some(test.clone()),
                _ => return Vec::new(),
            };
            names.extend(name);
        }
        names.sort();
        names.dedup();
        names
    }

    /// Where the frames end that are shown: behind the test. libtest calls a closure on the same line, which calls the test.
    fn end_of_shown(&mut self, stack: &[Frame], test: Option<usize>) -> usize {
        let Some(test) = test else {
            return stack.len();
        };
        let mut end = test;
        while let Some((_, Place::Closure)) = self.place_in(&stack[end]) {
            if end == 0 {
                return test + 1;
            }
            end -= 1;
        }
        let is_test = self.place_in(&stack[end]) == self.place_in(&stack[test]).map(as_function);
        if is_test { end + 1 } else { test + 1 }
    }

    /// The test that a frame is in, or is in another crate of the same name.
    fn place_in(&mut self, frame: &Frame) -> Option<(String, Place)> {
        let (function, file) = (frame.function.as_deref()?, frame.module.as_deref()?);
        // Most frames are of other crates.
        let path = path_in_crate(function, crate_name(file))?;
        let mut tests = self.file(file).tests.iter();
        tests.find_map(|test| Some((test.clone(), place(path, test)?)))
    }

    fn file(&mut self, file: &Path) -> &TestProgram {
        if !self.files.contains_key(file) {
            let started = self.programs.values().find(|program| program.file == file);
            let libraries = started.and_then(|program| program.libraries.as_deref());
            let program = TestProgram::read(file, libraries);
            self.files.insert(file.to_owned(), program);
        }
        &self.files[file]
    }

    fn name_of(&self, file: &Path) -> String {
        let known = self.programs.values().find(|program| program.file == file);
        known.map_or_else(|| crate_name(file).to_owned(), Program::name)
    }
}

fn as_function((test, _): (String, Place)) -> (String, Place) {
    (test, Place::Function)
}

/// Whether a frame is one of those by which libtest calls a test: the thread is one that libtest started, or the main thread.
fn is_libtest(frame: &Frame) -> bool {
    let function = frame.function.as_deref().unwrap_or_default();
    let names = ["test::__rust_begin_short_backtrace", "test::run_test"];
    !frame.is_users() && names.iter().any(|name| function.starts_with(name))
}

/// The name of the main thread in reports.
const MAIN: &str = "main";

/// The program's frames. Where there are none, those of libraries.
fn shown(stack: &[Frame]) -> Vec<Frame> {
    let users: Vec<_> = stack
        .iter()
        .filter(|frame| frame.is_users())
        .cloned()
        .collect();
    match users.is_empty() {
        true => {
            let named = stack.iter().filter(|frame| frame.function.is_some());
            named.take(FEW).cloned().collect()
        }
        false => users,
    }
}

/// How many frames of libraries are shown.
const FEW: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::super::plan::Program;
    use super::super::reports::Frame;
    use super::super::test_program::TestProgram;
    use super::{Owner, Owners};

    /// The tests that a stack trace is attributed to, and the functions that are shown.
    fn of(functions: &[&str], threads: &[&str], has_namesake: bool) -> (Vec<String>, Vec<String>) {
        let program = Program {
            package: "a".to_owned(),
            file: "/t/a".into(),
            ..Program::default()
        };
        let programs = BTreeMap::from([(7, program)]);
        let mut owners = Owners::new(&programs);
        let file = PathBuf::from("/t/a");
        let tests = ["one", "two", "tests::long_name_1", "tests::long_name_2"];
        let program = TestProgram {
            tests: tests.map(str::to_owned).to_vec(),
            has_namesake,
        };
        owners.files.insert(file.clone(), program);
        let stack: Vec<_> = functions
            .iter()
            .map(|&function| Frame {
                function: Some(function.to_owned()),
                module: Some(file.clone()),
                class: function.contains("a::").then(|| "user".to_owned()),
                ..Frame::default()
            })
            .collect();
        let threads: Vec<_> = threads.iter().map(|&thread| thread.to_owned()).collect();
        let (owner, frames) = owners.of(7, &stack, &threads);
        let names = match owner {
            Owner::Tests { names, .. } => names,
            Owner::Program { threads: of, .. } => {
                assert_eq!(of, threads);
                Vec::new()
            }
        };
        let frames = frames.into_iter().filter_map(|frame| frame.function);
        (names, frames.collect())
    }

    const LIBTEST: &str = "test::__rust_begin_short_backtrace::<fn()>";

    #[test]
    fn on_threads_of_libtest_the_name_is_the_tests() {
        for (functions, threads, expected) in [
            (&["a::one", LIBTEST][..], &["one"][..], &["one"][..]),
            // An optimizer has inlined the test; what it calls has the name of another one.
            (&["a::two", LIBTEST], &["one"], &["one"]),
            (
                &["core::ops::FnOnce::call_once", LIBTEST],
                &["one"],
                &["one"],
            ),
            (&[LIBTEST], &["one", "two"], &["one", "two"]),
            (&[LIBTEST], &["one", "worker"], &[]),
            // Two tests have names that begin so.
            (&[LIBTEST], &["tests::long_name"], &[]),
            (&[LIBTEST], &["tests::long_nam"], &[]),
            (
                &["a::tests::long_name_2", LIBTEST],
                &["tests::long_nam"],
                &["tests::long_name_2"],
            ),
            (&["a::one", LIBTEST], &["tests::long_nam"], &[]),
            // The main thread, and one that the test has named.
            (
                &["a::one", "a::one::{{closure}}", LIBTEST],
                &["main"],
                &["one"],
            ),
            (
                &["a::one", "a::one::{{closure}}", LIBTEST],
                &["mine"],
                &["one"],
            ),
            (&["a::one", "a::one::{{closure}}", LIBTEST], &[], &["one"]),
            (&["a::two", LIBTEST], &["main"], &[]),
            (
                &["a::two", "a::one", "a::one::{{closure}}", LIBTEST],
                &["main"],
                &["one"],
            ),
        ] {
            let names = of(functions, threads, false).0;
            assert_eq!(names, expected, "{functions:?} {threads:?}");
        }
    }

    #[test]
    fn on_other_threads_the_frames_name_the_test() {
        for (functions, expected) in [
            (
                &["a::help", "a::one::{{closure}}", "std::x"][..],
                &["one"][..],
            ),
            (&["a::help", "a::one::{closure#0}::{closure#1}"], &["one"]),
            (&["a::one"], &["one"]),
            // A function of a module that has the name of a test.
            (&["a::one::work"], &[]),
            (&["a::one::work::{{closure}}"], &[]),
            (&["a::one_more"], &[]),
            (&["b::one"], &[]),
            // A job of one test that another one's thread does while it waits.
            (
                &["a::two::{{closure}}", "c::wait", "a::one::{{closure}}"],
                &[],
            ),
            // Linux has given the thread the name of the one that started it.
            (&["a::work::{{closure}}"], &[]),
            (&[], &[]),
        ] {
            for thread in ["one", "two", "main", "worker"] {
                let names = of(functions, &[thread], false).0;
                assert_eq!(names, expected, "{functions:?} {thread}");
            }
        }
    }

    #[test]
    fn of_a_crate_with_a_namesake_only_threads_of_libtest_name_tests() {
        for (functions, thread, expected) in [
            (&["a::two", "a::one", LIBTEST][..], "one", &["one"][..]),
            (&["a::one::{{closure}}", LIBTEST], "main", &[]),
            (&["a::one::{{closure}}"], "one", &[]),
            (&["a::one"], "one", &[]),
        ] {
            let names = of(functions, &[thread], true).0;
            assert_eq!(names, expected, "{functions:?} {thread}");
        }
    }

    #[test]
    fn what_calls_the_test_is_not_shown() {
        let v0 = "<a::one::{closure#0} as core::ops::function::FnOnce<()>>::call_once";
        for (functions, shown) in [
            (
                &["a::help", "a::one", "a::one::{{closure}}", LIBTEST][..],
                2,
            ),
            (
                &["a::help", "a::one", "a::one::{closure#0}", v0, LIBTEST],
                2,
            ),
            (&["a::one", v0, LIBTEST], 1),
            // The closure is the test's own, on another thread.
            (&["a::help", "a::one::{{closure}}"], 2),
            (
                &[
                    "a::one::{{closure}}",
                    "a::one",
                    "a::one::{{closure}}",
                    LIBTEST,
                ],
                2,
            ),
            (&["a::two", LIBTEST], 1),
        ] {
            for has_namesake in [false, true] {
                let frames = of(functions, &["one"], has_namesake).1;
                assert_eq!(frames, functions[..shown], "{functions:?}");
            }
        }
    }
}
