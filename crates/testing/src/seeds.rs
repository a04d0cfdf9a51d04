//! Seeds of property tests that failed: each test keeps them in a file beside its source, `name.proptest-regressions` for `name.rs`,
//! and prints them. proptest's own configuration loses them where the sources are not, as on a machine that only runs the tests.

use std::any::Any;
use std::env;
use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use proptest::test_runner::{Config, FailurePersistence, PersistedSeed};

/// The configuration of `proptest!` in all crates: keeps and prints the seeds of cases that fail. With a number, so many cases
/// instead of 256; the environment variable `PROPTEST_CASES` wins over both.
///
/// ```
/// use proptest::prelude::*;
///
/// proptest! {
///     #![proptest_config(cuguard_testing::property_config!(20))]
///
///     fn a_sum_does_not_depend_on_the_order(a: u32, b: u32) {
///         prop_assert_eq!(u64::from(a) + u64::from(b), u64::from(b) + u64::from(a));
///     }
/// }
/// a_sum_does_not_depend_on_the_order();
/// ```
#[macro_export]
macro_rules! property_config {
    () => {
        $crate::seeds::config(env!("CARGO_MANIFEST_DIR"), file!(), None)
    };
    ($cases:expr) => {
        $crate::seeds::config(env!("CARGO_MANIFEST_DIR"), file!(), Some($cases))
    };
}

/// For [`property_config!`](crate::property_config): the folder of the crate and the source file, as the compiler names them.
#[must_use]
pub fn config(folder: &'static str, source: &'static str, cases: Option<u32>) -> Config {
    let mut config = Config::default();
    // `None` where the environment turns it off.
    if config.failure_persistence.is_some() {
        config.failure_persistence = Some(Box::new(Seeds { folder, source }));
    }
    match cases {
        Some(cases) if env::var_os("PROPTEST_CASES").is_none() => config.cases = cases,
        _ => {}
    }
    config
}

/// The seeds of one source file.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seeds {
    folder: &'static str,
    source: &'static str,
}

impl Seeds {
    /// The file of the seeds. `None` on a machine without the source.
    fn file(&self) -> Option<PathBuf> {
        // The compiler names a source file from the root of the workspace, and the folder with its whole path.
        let folders = Path::new(self.folder).ancestors();
        let mut sources = folders.map(|folder| folder.join(self.source));
        let source = sources.find(|source| source.is_file())?;
        Some(source.with_extension("proptest-regressions"))
    }

    /// Keeps a seed. Returns what to print.
    fn keep(&self, seed: &PersistedSeed, value: &dyn fmt::Debug) -> String {
        let file = self.file();
        let kept = file.as_deref().map(|file| append(file, seed, value));
        let mut text = format!("proptest: the seed of this case is\n{seed}\n");
        let name = Path::new(self.source).with_extension("proptest-regressions");
        let _ = match (kept, file) {
            (Some(Ok(())), Some(file)) => writeln!(
                text,
                "proptest: {} has it, and each run begins with it: commit the file",
                file.display()
            ),
            (Some(Err(error)), _) => writeln!(
                text,
                "proptest: to begin each run with it, put that line into {} ({error})",
                name.display()
            ),
            _ => writeln!(
                text,
                "proptest: to begin each run with it, put that line into {}",
                name.display()
            ),
        };
        text
    }
}

/// In one piece: tests of the file run at the same time.
fn append(file: &Path, seed: &PersistedSeed, value: &dyn fmt::Debug) -> io::Result<()> {
    let value = format!("{value:?}").replace('\n', " ");
    let line = format!("{seed} # shrinks to {value}\n");
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(line.as_bytes())
}

impl FailurePersistence for Seeds {
    fn load_persisted_failures2(&self, _: Option<&'static str>) -> Vec<PersistedSeed> {
        let text = self.file().map(fs::read_to_string);
        let text = text.and_then(Result::ok).unwrap_or_default();
        let seeds = text.lines().filter_map(|line| {
            let seed = line.split('#').next().unwrap_or_default().trim();
            seed.parse().ok()
        });
        seeds.collect()
    }

    fn save_persisted_failure2(
        &mut self,
        _: Option<&'static str>,
        seed: PersistedSeed,
        value: &dyn fmt::Debug,
    ) {
        eprint!("{}", self.keep(&seed, value));
    }

    fn box_clone(&self) -> Box<dyn FailurePersistence> {
        Box::new(*self)
    }

    fn eq(&self, other: &dyn FailurePersistence) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::path::{Path, PathBuf};

    use proptest::prelude::any;
    use proptest::test_runner::{FailurePersistence, TestCaseError, TestRunner};

    use super::{Seeds, config};

    /// A crate with one source file, removed with this value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("cuguard-seeds-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(folder.join("crates/one/src")).unwrap();
            fs::write(folder.join("crates/one/src/a.rs"), "").unwrap();
            Self(folder)
        }

        /// For the configuration, whose names live as long as the program.
        fn of_crate(&self) -> &'static str {
            self.0
                .join("crates/one")
                .to_str()
                .unwrap()
                .to_owned()
                .leak()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Fails for large numbers. Returns the numbers that were tried.
    fn numbers(folder: &'static str) -> Vec<u64> {
        let tried = RefCell::new(Vec::new());
        let config = config(folder, "crates/one/src/a.rs", Some(64));
        let failed = TestRunner::new(config).run(&any::<u64>(), |number| {
            tried.borrow_mut().push(number);
            match number > 1000 {
                true => Err(TestCaseError::fail("large")),
                false => Ok(()),
            }
        });
        failed.unwrap_err();
        tried.into_inner()
    }

    #[test]
    fn a_run_begins_with_the_cases_that_failed() {
        let folder = Folder::new("kept");
        let first = numbers(folder.of_crate())[0];
        let file = folder.0.join("crates/one/src/a.proptest-regressions");
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with("cc ") && text.contains("# shrinks to 1001"),
            "{text}"
        );
        assert_eq!(numbers(folder.of_crate())[0], first);
    }

    #[test]
    fn without_the_source_the_seed_is_printed() {
        let folder = Folder::new("printed");
        numbers(folder.of_crate());
        let seeds = |source| Seeds {
            folder: folder.of_crate(),
            source,
        };
        let seed = seeds("crates/one/src/a.rs")
            .load_persisted_failures2(None)
            .remove(0);
        let text = seeds("crates/one/src/b.rs").keep(&seed, &7);
        let expected = format!(
            "proptest: the seed of this case is\n{seed}\nproptest: to begin each run with it, put that line into crates/one/src/b.proptest-regressions\n"
        );
        assert_eq!(text, expected);
    }

    /// Where the sources are: every `proptest!` uses the configuration.
    #[test]
    fn all_property_tests_keep_their_seeds() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .unwrap();
        let mut folders = vec![root.join("crates"), root.join("src"), root.join("tests")];
        let mut blocks = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs")
                    && !path.ends_with(file!())
                {
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    for block in text
                        .split("\nproptest! {\n")
                        .skip(1)
                        .chain(text.split("\n    proptest! {\n").skip(1))
                    {
                        blocks += 1;
                        let config = block.lines().next().unwrap_or_default();
                        assert!(
                            config.contains("cuguard_testing::property_config!("),
                            "{}",
                            path.display()
                        );
                    }
                }
            }
        }
        assert!(blocks > 10 || !root.join("crates").is_dir(), "{blocks}");
    }
}
