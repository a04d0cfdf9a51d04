//! Runs each top-level module of a test program in a process of its own.
//!
//! Linking takes longer than compiling for small test files, so each crate has one test program, `tests/all.rs`, with one
//! module per concept. The modules still need a process each: a driver is loaded once per process, settings are read
//! once, and a registry is global. [`run_modules_apart!`](crate::run_modules_apart) starts the test program again for
//! each module. All options of the test harness work as usual; so does a filter.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::requirement;

/// Set in the process of a module, to the module's name.
const MODULE: &str = "CUGUARD_TEST_MODULE";

/// The program that uses it runs each of its top-level modules in a process of its own.
///
/// Expands to a constructor, which runs before `main`: the test harness generates `main`. The modules that take longest can
/// be named, to be started first: at the end nothing would run beside them.
#[macro_export]
macro_rules! run_modules_apart {
    ($($long:literal),*) => {
        #[used]
        #[unsafe(link_section = ".init_array")]
        static RUN_MODULES_APART: extern "C" fn() = {
            extern "C" fn start() {
                $crate::apart::start(&[$($long),*]);
            }
            start
        };
    };
}

/// The path of a test of the current module, as `--exact` expects it. `test` is the path within the module.
///
/// ```
/// // In a program without `run_modules_apart!`:
/// assert_eq!(cuguard_testing::test_path("scope::ends"), "scope::ends");
/// ```
pub fn test_path(test: &str) -> String {
    match env::var(MODULE) {
        Ok(module) if !module.is_empty() => format!("{module}::{test}"),
        _ => test.to_owned(),
    }
}

/// This program, to run one test of the current module: without capture of its output, and alone.
///
/// The test tells the two processes apart by a variable that the caller sets.
///
/// # Panics
/// If the system does not say which file this program is.
pub fn test_command(test: &str) -> Command {
    let program = env::current_exe().expect("this program has a file");
    let mut command = Command::new(program);
    command.args([
        "--exact",
        &test_path(test),
        "--nocapture",
        "--test-threads=1",
    ]);
    command
}

/// Runs the modules and exits, unless this is the process of a module. Called by
/// [`run_modules_apart!`](crate::run_modules_apart).
pub fn start(first: &[&str]) {
    let options = Options::parse(env::args_os().skip(1));
    if env::var_os(MODULE).is_some() || options.is_query {
        return;
    }
    let code = match requirement::setting()
        .map_err(std::io::Error::other)
        .and_then(|_| run(&options, first))
    {
        Ok(true) => 0,
        // As the test harness.
        Ok(false) => 101,
        Err(error) => {
            eprintln!("cannot run the modules of this test program: {error}");
            101
        }
    };
    std::process::exit(code);
}

/// Options of the test harness whose next word is their value.
const WITH_VALUE: [&str; 6] = [
    "--color",
    "--format",
    "--logfile",
    "--shuffle-seed",
    "--test-threads",
    "-Z",
];

/// What the test harness is asked to do.
#[derive(Debug, Default)]
struct Options {
    /// Options with their values.
    flags: Vec<OsString>,
    /// Filters, and options that change what they select.
    selection: Vec<OsString>,
    /// No test is run.
    is_query: bool,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = OsString>) -> Self {
        let mut options = Self::default();
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            let word = argument.to_string_lossy().into_owned();
            match &*word {
                "--list" | "--help" | "-h" => options.is_query = true,
                "--skip" => {
                    options.selection.push(argument);
                    options.selection.extend(arguments.next());
                }
                "--exact" | "--ignored" | "--include-ignored" => options.selection.push(argument),
                word if word.starts_with("--skip=") => options.selection.push(argument),
                word if WITH_VALUE.contains(&word) => {
                    options.flags.push(argument);
                    options.flags.extend(arguments.next());
                }
                word if word.starts_with('-') => options.flags.push(argument),
                _ => options.selection.push(argument),
            }
        }
        options
    }

    /// Flags that the harness checks when it lists tests: one that is not known is an error even if no test is selected.
    fn checked_flags(&self) -> impl Iterator<Item = &OsString> {
        let is_meant = |flag: &&OsString| {
            let flag = flag.to_string_lossy();
            let changes_list = ["--format", "--quiet", "--logfile", "-q", "-Z"];
            flag.starts_with('-') && !changes_list.iter().any(|other| flag.starts_with(other))
        };
        let with_value = |flag: &&OsString| !WITH_VALUE.contains(&&*flag.to_string_lossy());
        self.flags.iter().filter(is_meant).filter(with_value)
    }

    /// Whether ignored tests are selected: their names do not tell.
    fn ignored(&self) -> impl Iterator<Item = &OsString> {
        let is_meant = |word: &&OsString| *word == "--ignored" || *word == "--include-ignored";
        self.selection.iter().filter(is_meant)
    }
}

fn this_program(module: &str) -> std::io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.env(MODULE, module);
    Ok(command)
}

/// The tests that are selected.
fn list(options: &Options) -> std::io::Result<Vec<String>> {
    let listing = this_program("")?
        .args(["--list", "--format=terse"])
        .args(options.checked_flags())
        .args(&options.selection)
        .stderr(Stdio::inherit())
        .output()?;
    if !listing.status.success() {
        return Err(std::io::Error::other(format!("--list: {}", listing.status)));
    }
    let names = String::from_utf8_lossy(&listing.stdout);
    let names = names.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

/// The tests that are selected, by module: those in `first` before the others, in the order of the harness.
fn selected(options: &Options, first: &[&str]) -> std::io::Result<Vec<(String, Vec<String>)>> {
    let mut modules: Vec<(String, Vec<String>)> = Vec::new();
    for test in list(options)? {
        let module = test.split_once("::").map_or("", |(module, _)| module);
        match modules.iter_mut().find(|(name, _)| name == module) {
            Some((_, tests)) => tests.push(test),
            None => modules.push((module.to_owned(), vec![test])),
        }
    }
    modules.sort_by_key(|(name, _)| !first.contains(&&**name));
    Ok(modules)
}

/// Whether this machine has a real GPU, without loading a driver.
pub fn has_gpu() -> bool {
    let files = ["/dev/nvidiactl", "/dev/dxg"];
    files.iter().any(|file| Path::new(file).exists())
}

/// How many modules run at once. Tests on a GPU compare how much of its memory is free, and run alone.
fn jobs(options: &Options) -> usize {
    let alone = ["--test-threads=1", "1"];
    if options
        .flags
        .iter()
        .any(|flag| alone.iter().any(|word| flag == word))
        || has_gpu()
    {
        1
    } else {
        // They wait for children and time limits in between.
        std::thread::available_parallelism().map_or(1, |count| count.get() + 1)
    }
}

/// Runs the selected modules, some at a time, and returns whether all tests passed.
fn run(options: &Options, first: &[&str]) -> std::io::Result<bool> {
    let all = list(&Options::default())?.len();
    let modules = Mutex::new(selected(options, first)?.into_iter());
    let totals = Mutex::new(Totals::default());
    let next = || modules.lock().expect("no thread panics with it").next();
    let work = || -> std::io::Result<()> {
        while let Some((module, tests)) = next() {
            let (status, output) = run_module(options, &module, &tests)?;
            // What is printed of a module stays together.
            let mut totals = totals.lock().expect("no thread panics with it");
            let mut stdout = std::io::stdout().lock();
            writeln!(stdout, "\nmodule {module}")?;
            stdout.write_all(&output)?;
            let result = Counts::of_module(&String::from_utf8_lossy(&output), &tests, all);
            totals.add(module, tests.len(), status, result);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs(options)).map(|_| scope.spawn(work)).collect();
        let mut ended = workers.into_iter().map(|worker| worker.join());
        ended.try_for_each(|worker| worker.expect("a worker does not panic"))
    })?;
    let totals = totals.into_inner().expect("no thread panics with it");
    Ok(totals.print())
}

/// A folder that is removed with this value.
struct RemovedFolder<'a>(&'a Path);

impl Drop for RemovedFolder<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}

/// A new name in the folder for temporary files, or in `/tmp` if that one's name is long: tests have sockets in it, whose
/// paths have at most 108 bytes, and so has the browser.
fn short_folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = match env::temp_dir() {
        long if long.as_os_str().len() > 20 => PathBuf::from("/tmp"),
        short => short,
    };
    temporary.join(format!("cuguard-{}-{number}", std::process::id()))
}

/// Creates such a folder. A run with the same process id that was killed may have left some.
fn create_short_folder(mode: u32) -> std::io::Result<PathBuf> {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(mode);
    loop {
        let folder = short_folder();
        match builder.create(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            created => return created.map(|()| folder),
        }
    }
}

/// Runs the tests of one module. Returns what it printed, on standard output and standard error.
fn run_module(
    options: &Options,
    module: &str,
    tests: &[String],
) -> std::io::Result<(ExitStatus, Vec<u8>)> {
    // A test process asks for its path with `test_path`, which needs a name: tests outside of modules have none.
    assert!(!module.is_empty(), "{} is in no module", tests[0]);
    // What tests leave behind, at the exit of their process at the latest, is removed with this folder.
    let folder = create_short_folder(0o755)?;
    let _removed = RemovedFolder(&folder);
    // A process answers requests of others, and may be asked by tests of another module, or of another run, for the idle memory
    // of its pools: each module has a folder of sockets of its own.
    let runtime = create_short_folder(0o700)?;
    let _removed_runtime = RemovedFolder(&runtime);
    // A file, not a pipe: a process that outlives its test would keep a pipe open.
    let file = File::options()
        .read(true)
        .append(true)
        .create_new(true)
        .open(folder.join("output"))?;
    std::fs::remove_file(folder.join("output"))?;
    let status = this_program(module)?
        .args(&options.flags)
        .args(options.ignored())
        .arg("--exact")
        .args(tests)
        .env("TMPDIR", &folder)
        .env("XDG_RUNTIME_DIR", &runtime)
        .stdout(file.try_clone()?)
        .stderr(file.try_clone()?)
        .status()?;
    let mut output = Vec::new();
    (&file).seek(SeekFrom::Start(0))?;
    (&file).read_to_end(&mut output)?;
    // Tests that fail do not clean up.
    if status.success() {
        let files = left_behind(&folder, "temporary files");
        let sockets = left_behind(&runtime, "sockets");
        for line in [files, sockets].into_iter().flatten() {
            output.extend(line.into_bytes());
        }
    }
    Ok((status, output))
}

/// The folder in that of sockets, which stays when the last process with a socket ends.
const SOCKETS: &str = "cuguard";

/// How many files are named.
const NAMES: usize = 5;

/// Names what is in the folder, in one line.
fn left_behind(folder: &Path, what: &str) -> Option<String> {
    let names_in = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.collect::<Vec<_>>()
    };
    let mut names = Vec::new();
    for name in names_in(folder) {
        match name == SOCKETS {
            true => {
                let sockets = names_in(&folder.join(&name)).into_iter();
                names.extend(sockets.map(|socket| format!("{SOCKETS}/{socket}")));
            }
            false => names.push(name),
        }
    }
    names.sort();
    let more = names.len().saturating_sub(NAMES);
    names.truncate(NAMES);
    if more != 0 {
        names.push(format!("{more} more"));
    }
    let names = (!names.is_empty()).then(|| names.join(", "))?;
    Some(format!("left behind in the folder for {what}: {names}\n"))
}

/// The figures of a line `test result: …`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Counts {
    /// The result of a module: the last line of a harness that ran so many tests and left out so many. Children of tests are
    /// harnesses, too, which run one test and leave out the others.
    fn of_module(output: &str, tests: &[String], all: usize) -> Option<Self> {
        let others = format!(" {} filtered out", all.saturating_sub(tests.len()));
        let failed = output.lines().any(|line| {
            let name = line
                .strip_prefix("test ")
                .and_then(|line| line.strip_suffix(" ... FAILED"));
            name.is_some_and(|name| tests.iter().any(|test| test == name))
        });
        let results = output.lines().rev().filter(|line| line.contains(&others));
        let counts = results.filter_map(Self::parse).next()?;
        (counts.failed > 0 || !failed).then_some(counts)
    }

    fn parse(line: &str) -> Option<Self> {
        let figures = line.strip_prefix("test result: ")?.split_once(". ")?.1;
        let count = |word: &str| {
            let part = figures.split("; ").find(|part| part.ends_with(word))?;
            part.split_once(' ')?.0.parse().ok()
        };
        Some(Self {
            passed: count("passed")?,
            failed: count("failed")?,
            ignored: count("ignored")?,
        })
    }
}

#[derive(Debug, Default)]
struct Totals {
    counts: Counts,
    modules: usize,
    failures: Vec<String>,
}

impl Totals {
    fn add(&mut self, module: String, tests: usize, status: ExitStatus, result: Option<Counts>) {
        self.modules += 1;
        let result = result.unwrap_or_default();
        self.counts.passed += result.passed;
        self.counts.failed += result.failed;
        self.counts.ignored += result.ignored;
        let ran = result.passed + result.failed + result.ignored;
        if !status.success() {
            self.failures.push(format!("{module}: {status}"));
        } else if ran != tests {
            // A process that ends early with exit code 0 passes nothing.
            self.failures
                .push(format!("{module}: ran {ran} of {tests} tests"));
        }
    }

    fn print(&self) -> bool {
        let passed = self.failures.is_empty();
        println!();
        for failure in &self.failures {
            println!("FAILED module {failure}");
        }
        // Not `test result:`, which stands for one process.
        println!(
            "all modules: {}. {} modules; {} passed; {} failed; {} ignored",
            if passed { "ok" } else { "FAILED" },
            self.modules,
            self.counts.passed,
            self.counts.failed,
            self.counts.ignored
        );
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Options {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_and_filters_are_told_apart() {
        let options = parse("--test-threads 1 --nocapture scope --skip waits --color=always");
        assert_eq!(
            options.flags,
            ["--test-threads", "1", "--nocapture", "--color=always"]
        );
        assert_eq!(options.selection, ["scope", "--skip", "waits"]);
        assert!(!options.is_query);
        assert!(parse("--list --format terse").is_query);
    }

    #[test]
    fn files_that_tests_leave_are_named() {
        let folder = create_short_folder(0o700).unwrap();
        let _removed = RemovedFolder(&folder);
        let left = || left_behind(&folder, "sockets");
        assert_eq!(left(), None);
        // Every process with a socket creates it.
        std::fs::create_dir(folder.join("cuguard")).unwrap();
        assert_eq!(left(), None);
        for name in ["b", "a", "cuguard/7"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let line = "left behind in the folder for sockets: a, b, cuguard/7\n";
        assert_eq!(left().as_deref(), Some(line));
        for name in ["c", "d", "e", "f"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let line = "left behind in the folder for sockets: a, b, c, cuguard/7, d, 2 more\n";
        assert_eq!(left().as_deref(), Some(line));
    }

    #[test]
    fn folders_of_a_run_that_was_killed_are_left_alone() {
        let name = short_folder();
        let (start, number) = name.to_str().unwrap().rsplit_once('-').unwrap();
        let number: u32 = number.parse().unwrap();
        let left = (number..number + 20).map(|number| PathBuf::from(format!("{start}-{number}")));
        let left: Vec<_> = left.filter(|it| std::fs::create_dir(it).is_ok()).collect();
        let _removed: Vec<_> = left.iter().map(|it| RemovedFolder(it)).collect();
        let folder = create_short_folder(0o700).unwrap();
        let _removed_too = RemovedFolder(&folder);
        assert!(!left.is_empty() && !left.contains(&folder));
    }

    #[test]
    fn results_are_counted() {
        let line = "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.00s";
        let counts = Counts {
            passed: 5,
            failed: 0,
            ignored: 1,
        };
        assert_eq!(Counts::parse(line), Some(counts));
        assert_eq!(Counts::parse("test scope::ends ... ok"), None);
        let tests = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
        let of = |output: String| Counts::of_module(&output, &tests, 9);
        assert_eq!(
            of(format!("test a ... ok\n{line}\n\nleaked\n")),
            Some(counts)
        );
        // Printed by a child of a test, after which the process ended, or after another test failed.
        let of_child = line.replace("3 filtered", "8 filtered");
        assert_eq!(of(of_child), None);
        assert_eq!(of(format!("test a ... FAILED\n{line}\n")), None);
    }
}
