//! Which test allocated a resource.
//!
//! The names of tests are those that the test program lists. On a stack trace, the outermost function that is a test, or is
//! defined inside one, as a closure that runs on another thread is, names the test. Where an optimizer has inlined all of these,
//! the name of the thread does: libtest names threads after tests, and Linux keeps 15 bytes of a name, so it must be the beginning
//! of one test's name alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cuguard_report::FailOn;

use super::plan::{Program, crate_name};
use super::reports::{Frame, Group, LEAKED, NOT_FREED, Report};

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
    /// The tests of each program file that was on a stack trace.
    tests: BTreeMap<PathBuf, Vec<String>>,
}

impl<'a> Owners<'a> {
    fn new(programs: &'a BTreeMap<u32, Program>) -> Self {
        Self {
            programs,
            tests: BTreeMap::new(),
        }
    }

    /// Who has this stack trace, and its frames that are shown.
    fn of(&mut self, process: u32, stack: &[Frame], threads: &[String]) -> (Owner, Vec<Frame>) {
        let started = self.programs.get(&process);
        let test = stack
            .iter()
            .rposition(|frame| self.test_of(frame).is_some());
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
        let names = match (started.and_then(|started| started.test.clone()), test) {
            (Some(only), _) => vec![only],
            (None, Some(test)) => self.test_of(&stack[test]).into_iter().collect(),
            (None, None) => self.tests_of_threads(started, threads),
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

    /// Where the frames end that are shown: behind the test. libtest calls a closure on the same line, which calls the test.
    fn end_of_shown(&mut self, stack: &[Frame], test: Option<usize>) -> usize {
        let Some(test) = test else {
            return stack.len();
        };
        let name = self.test_of(&stack[test]);
        let is_itself = |frame: &Frame| {
            let (function, file) = (frame.function.as_deref()?, frame.module.as_deref()?);
            Some(path_in_crate(function, crate_name(file))? == name.as_deref()?)
        };
        let itself = stack[..test]
            .iter()
            .rposition(|frame| is_itself(frame) == Some(true));
        itself.filter(|itself| itself + 1 == test).unwrap_or(test) + 1
    }

    /// The test that a frame is in.
    fn test_of(&mut self, frame: &Frame) -> Option<String> {
        let (function, file) = (frame.function.as_deref()?, frame.module.as_deref()?);
        // Most frames are of other crates.
        let path = path_in_crate(function, crate_name(file))?;
        let is_inside = |test: &&String| {
            let rest = path.strip_prefix(test.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let tests = self.tests(file).iter().filter(is_inside);
        tests.max_by_key(|test| test.len()).cloned()
    }

    /// The tests that threads are named after: none, unless all are.
    fn tests_of_threads(&mut self, started: Option<&Program>, threads: &[String]) -> Vec<String> {
        let Some(program) = started else {
            return Vec::new();
        };
        let tests = self.tests(&program.file);
        let names = threads.iter().map(|thread| {
            let mut named = tests.iter().filter(|test| thread_name(test) == *thread);
            named.next().filter(|_| named.next().is_none())
        });
        let names: Option<Vec<_>> = names.map(|name| name.cloned()).collect();
        names.unwrap_or_default()
    }

    fn tests(&mut self, file: &Path) -> &[String] {
        if !self.tests.contains_key(file) {
            let libraries = self.programs.values().find(|program| program.file == file);
            let tests = list(
                file,
                libraries.and_then(|program| program.libraries.as_deref()),
            );
            self.tests.insert(file.to_owned(), tests);
        }
        &self.tests[file]
    }

    fn name_of(&self, file: &Path) -> String {
        let known = self.programs.values().find(|program| program.file == file);
        known.map_or_else(|| crate_name(file).to_owned(), Program::name)
    }
}

/// What Linux keeps of the name of a test's thread.
fn thread_name(test: &str) -> String {
    const LENGTH: usize = 15;
    String::from_utf8_lossy(&test.as_bytes()[..test.len().min(LENGTH)]).into_owned()
}

/// The path of a function without its crate, if it is of this crate: of `<crate::a::{closure#0} as Trait>::call`, too.
fn path_in_crate<'f>(function: &'f str, crate_name: &str) -> Option<&'f str> {
    let path = function.trim_start_matches(['<', '&']);
    let path = path.strip_prefix(crate_name)?.strip_prefix("::")?;
    // What follows is a type's argument, or a trait.
    Some(path.split([' ', '<', '>']).next().unwrap_or(path))
}

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

/// A function of libtest that `main` of every test program calls. It has the same bytes in both ways in which rustc mangles names.
const LIBTEST: &[u8] = b"4test16test_main_static";

/// The tests of a program. None of a program that libtest is not in: it might do something else than list them.
fn list(file: &Path, libraries: Option<&std::ffi::OsStr>) -> Vec<String> {
    let content = fs::read(file).unwrap_or_default();
    if !content.windows(LIBTEST.len()).any(|part| part == LIBTEST) {
        return Vec::new();
    }
    let mut command = Command::new(file);
    command
        .args(["--list", "--format", "terse"])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    let listed = command.output().map(|output| output.stdout);
    let listed = listed.unwrap_or_default();
    let listed = String::from_utf8_lossy(&listed);
    let tests = listed.lines().filter_map(|line| {
        line.strip_suffix(": test")
            .or_else(|| line.strip_suffix(": benchmark"))
    });
    tests.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::super::reports::Frame;
    use super::{Owner, Owners, list, path_in_crate, thread_name};

    #[test]
    fn functions_have_paths_in_their_crate() {
        for (function, path) in [
            ("a::tests::one", Some("tests::one")),
            (
                "a::tests::one::{{closure}}",
                Some("tests::one::{{closure}}"),
            ),
            (
                "<a::tests::one::{closure#0} as core::ops::FnOnce<()>>::call_once",
                Some("tests::one::{closure#0}"),
            ),
            ("a::tests::one::<u32>", Some("tests::one::")),
            ("<&a::One as b::Two>::three", Some("One")),
            ("aa::tests::one", None),
            ("b::a::one", None),
            ("a", None),
        ] {
            assert_eq!(path_in_crate(function, "a"), path, "{function}");
        }
    }

    #[test]
    fn threads_have_the_first_bytes_of_names() {
        assert_eq!(thread_name("tests::one"), "tests::one");
        assert_eq!(thread_name("tests::the_first"), "tests::the_firs");
    }

    /// This program lists itself.
    #[test]
    fn the_tests_of_a_program_are_those_that_it_lists() {
        let own = std::env::current_exe().expect("this program has a file");
        let tests = list(&own, None);
        let name = "run::cargo::owner::tests::the_tests_of_a_program_are_those_that_it_lists";
        assert!(tests.iter().any(|test| test == name), "{tests:?}");
        assert!(list("/bin/sh".as_ref(), None).is_empty());
    }

    fn owner(tests: &[&str], functions: &[&str], threads: &[&str]) -> Owner {
        let program = super::Program {
            package: "a".to_owned(),
            file: "/t/a".into(),
            ..super::Program::default()
        };
        let programs = BTreeMap::from([(7, program)]);
        let mut owners = Owners::new(&programs);
        let file = PathBuf::from("/t/a");
        let tests = tests.iter().map(|&test| test.to_owned()).collect();
        owners.tests.insert(file.clone(), tests);
        let stack: Vec<_> = functions
            .iter()
            .map(|&function| Frame {
                function: Some(function.to_owned()),
                module: Some(file.clone()),
                ..Frame::default()
            })
            .collect();
        let threads: Vec<_> = threads.iter().map(|&thread| thread.to_owned()).collect();
        owners.of(7, &stack, &threads).0
    }

    #[test]
    fn the_outermost_test_on_the_stack_allocated() {
        let tests = [
            "tests::one",
            "tests::one::more",
            "tests::long_name_1",
            "tests::long_name_2",
        ];
        for (functions, threads, expected) in [
            (
                &["cust::alloc", "a::help", "a::tests::one", "test::run"][..],
                &["main"][..],
                &["tests::one"][..],
            ),
            (
                &["a::help", "a::tests::one::{{closure}}"],
                &["worker"],
                &["tests::one"],
            ),
            (
                &["a::tests::one", "a::tests::one::more"],
                &[],
                &["tests::one::more"],
            ),
            (&["a::tests::one_more"], &[], &[]),
            // An optimizer has inlined the test.
            (
                &["core::ops::FnOnce::call_once"],
                &["tests::one"],
                &["tests::one"],
            ),
            (
                &[],
                &["tests::one", "tests::one::mor"],
                &["tests::one", "tests::one::more"],
            ),
            // Two tests have names that begin so.
            (&[], &["tests::long_nam"], &[]),
            (&[], &["tests::one", "worker"], &[]),
            (&["b::tests::one"], &[], &[]),
        ] {
            let expected = match expected {
                [] => Owner::Program {
                    program: "a".to_owned(),
                    threads: threads.iter().map(|&thread| thread.to_owned()).collect(),
                },
                names => Owner::Tests {
                    program: "a".to_owned(),
                    names: names.iter().map(|&name| name.to_owned()).collect(),
                },
            };
            assert_eq!(
                owner(&tests, functions, threads),
                expected,
                "{functions:?} {threads:?}"
            );
        }
    }
}
