//! What is known of a test program: its tests, and whether its crate can be told from others.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::plan::crate_name;

/// A file that was executed.
#[derive(Clone, Debug, Default)]
pub(super) struct TestProgram {
    /// The names of its tests, which it lists.
    pub(super) tests: Vec<String>,
    /// Whether another crate of its name may be linked into it.
    pub(super) has_namesake: bool,
}

impl TestProgram {
    /// `libraries` is the `LD_LIBRARY_PATH` with which the program runs.
    pub(super) fn read(file: &Path, libraries: Option<&OsStr>) -> Self {
        let tests = list(file, libraries);
        let has_namesake = !tests.is_empty() && has_namesake(file);
        Self {
            tests,
            has_namesake,
        }
    }
}

/// The path of a function without its crate, if it is of this crate: of `<crate::a::{closure#0} as Trait>::call`, too.
pub(super) fn path_in_crate<'f>(function: &'f str, crate_name: &str) -> Option<&'f str> {
    let path = function.trim_start_matches(['<', '&']);
    let path = path.strip_prefix(crate_name)?.strip_prefix("::")?;
    // What follows is a type's argument, or a trait.
    Some(path.split([' ', '<', '>']).next().unwrap_or(path))
}

/// Where in a test a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Function,
    Closure,
}

/// Where in a test a path is. A function of a module that has the test's name has a path that begins so, too, and is in no test.
pub(super) fn place(path: &str, test: &str) -> Option<Place> {
    let mut inner = path.strip_prefix(test)?.split("::");
    if !inner.next()?.is_empty() {
        return None;
    }
    let mut inner = inner.peekable();
    if inner.peek().is_none() {
        return Some(Place::Function);
    }
    let is_closure = |name: &str| name == "{{closure}}" || name.starts_with("{closure#");
    inner.all(is_closure).then_some(Place::Closure)
}

/// Whether a thread of libtest has the name of a test, of which Linux keeps 15 bytes.
pub(super) fn is_named_after(thread: &str, test: &str) -> bool {
    const LENGTH: usize = 15;
    let kept = &test.as_bytes()[..test.len().min(LENGTH)];
    thread == test || String::from_utf8_lossy(kept) == thread
}

/// Whether a library of the program's name was built of other sources: `tests/a.rs` of a crate `a`, say. rustc writes the sources
/// of each crate into a file beside it, in the syntax of make: `folder/liba-hash.rlib: src/lib.rs src/b.rs`.
fn has_namesake(file: &Path) -> bool {
    let name = crate_name(file);
    let root = fs::read_to_string(file.with_extension("d"))
        .ok()
        .and_then(|rules| Some(rules.lines().find_map(rule)?.1.to_owned()));
    let Some(root) = root else {
        return false;
    };
    let folder = file.parent().unwrap_or(Path::new("/"));
    let mut files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.any(|other| {
        let path = other.path().with_extension("");
        if path.as_path() == file || crate_name(&path) != name {
            return false;
        }
        if other.path().extension() != Some(OsStr::new("d")) {
            return false;
        }
        let rules = fs::read_to_string(other.path()).unwrap_or_default();
        let library = format!("lib{name}-");
        let mut rules = rules.lines().filter_map(rule);
        rules.any(|(built, source)| built.starts_with(&library) && source != root)
    })
}

/// The name of the file that a rule is for, and the first source, which is the crate's root.
fn rule(line: &str) -> Option<(&str, &str)> {
    let (built, sources) = line.split_once(": ")?;
    let built = built.rsplit_once('/').map_or(built, |(_, name)| name);
    // Spaces in a path are escaped.
    let end = sources
        .match_indices(' ')
        .map(|(at, _)| at)
        .find(|&at| !sources[..at].ends_with('\\'));
    let root = &sources[..end.unwrap_or(sources.len())];
    (!built.ends_with(".d")).then_some((built, root))
}

/// A function of libtest that `main` of every test program calls. It has the same bytes in both ways in which rustc mangles names.
const LIBTEST: &[u8] = b"4test16test_main_static";

/// The tests of a program. None of a program that libtest is not in: it might do something else than list them.
fn list(file: &Path, libraries: Option<&OsStr>) -> Vec<String> {
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
    use std::fs;

    use super::{has_namesake, is_named_after, list, path_in_crate};

    #[test]
    fn threads_have_the_first_bytes_of_names() {
        assert!(is_named_after("tests::one", "tests::one"));
        assert!(is_named_after("tests::the_firs", "tests::the_first"));
        assert!(is_named_after("tests::the_first", "tests::the_first"));
        assert!(!is_named_after("tests::the_fir", "tests::the_first"));
    }

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

    /// This program lists itself.
    #[test]
    fn the_tests_of_a_program_are_those_that_it_lists() {
        let own = std::env::current_exe().expect("this program has a file");
        let tests = list(&own, None);
        let name =
            "run::cargo::test_program::tests::the_tests_of_a_program_are_those_that_it_lists";
        assert!(tests.iter().any(|test| test == name), "{tests:?}");
        assert!(list("/bin/sh".as_ref(), None).is_empty());
    }

    #[test]
    fn a_library_of_the_same_name_and_other_sources_is_a_namesake() {
        let folder = std::env::temp_dir().join(format!("cuguard-namesake-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let write = |hash: &str, built: &str, sources: &str| {
            let rules = format!(
                "{0}/a-{hash}.d: {sources}\n\n{0}/{built}: {sources}\n\nx:\n",
                "/t t"
            );
            fs::write(folder.join(format!("a-{hash}.d")), rules).expect("own folder");
        };
        let (own, other) = ("0123456789abcdef", "fedcba9876543210");
        let file = folder.join(format!("a-{own}"));
        assert!(!has_namesake(&file));
        write(own, &format!("a-{own}"), "/my\\ t/a.rs src/b.rs");
        assert!(!has_namesake(&file));
        for (built, sources, expected) in [
            // The tests in the library itself, and those of another package.
            (format!("liba-{other}.rlib"), "/my\\ t/a.rs", false),
            (format!("a-{other}"), "/my\\ two/a.rs", false),
            (format!("liba-{other}.rmeta"), "/my\\ src/lib.rs", true),
        ] {
            write(other, &built, sources);
            assert_eq!(has_namesake(&file), expected, "{built} {sources}");
        }
        fs::remove_dir_all(&folder).expect("own folder");
    }
}
