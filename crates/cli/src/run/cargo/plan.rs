//! What `cargo cuguard` and the runner that cargo executes leave for each other in the run's folder.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::super::failure::Failure;
use super::super::summary::is_running;

const PLAN: &str = "plan.json";
const PROGRAMS: &str = "programs";

/// How the runner starts programs.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Plan {
    pub(super) library: PathBuf,
    /// The folder of the simulated GPU.
    pub(super) simulation: Option<PathBuf>,
    /// The value of `LEAK_REPORT`.
    pub(super) words: String,
    /// For each target, the runner that the user has set, with its arguments.
    pub(super) runners: BTreeMap<String, Vec<OsString>>,
}

impl Plan {
    pub(super) fn write(&self, folder: &Path) -> Result<(), Failure> {
        let path = folder.join(PLAN);
        let written = serde_json::to_vec(self)
            .map_err(io::Error::from)
            .and_then(|plan| fs::write(&path, plan));
        written.map_err(|error| Failure::Cargo {
            why: format!("{}: {error}", path.display()),
        })
    }

    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join(PLAN);
        let plan = fs::read(&path).and_then(|plan| Ok(serde_json::from_slice(&plan)?));
        plan.map_err(|error| Failure::Cargo {
            why: format!(
                "{}: {error}. Only `cargo cuguard` starts its runner",
                path.display()
            ),
        })
    }
}

/// How the names of doctests begin.
pub(super) const DOCTEST: &str = "a doctest of ";

/// A program that cargo started.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Program {
    pub(super) process: u32,
    /// The name of its package.
    pub(super) package: String,
    pub(super) file: PathBuf,
    /// The only test that it was started for.
    pub(super) test: Option<String>,
    /// `LD_LIBRARY_PATH`, with which it was started.
    pub(super) libraries: Option<OsString>,
}

impl Program {
    /// Appends it to the list. It is executed next, in this process.
    pub(super) fn note(&self, folder: &Path) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join(PROGRAMS))?;
        file.write_all(&line)
    }

    /// The crate that it was built of: cargo names files after them, with a hash.
    pub(super) fn crate_name(&self) -> &str {
        crate_name(&self.file)
    }

    /// Its name, in the manner of nextest: the package, and the crate where it has another name.
    pub(super) fn name(&self) -> String {
        let (package, crate_name) = (&self.package, self.crate_name());
        match () {
            () if self.is_doctest() => format!("{DOCTEST}{package}"),
            () if package.is_empty() => crate_name.to_owned(),
            () if package.replace('-', "_") == crate_name => package.clone(),
            () => format!("{package}::{crate_name}"),
        }
    }

    /// Whether rustdoc has built it.
    fn is_doctest(&self) -> bool {
        self.file.file_name().is_some_and(|name| name == "rust_out")
    }
}

/// The crate of a program.
pub(super) fn crate_name(file: &Path) -> &str {
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    match name.rsplit_once('-') {
        Some((name, hash)) if is_hash(hash) => name,
        _ => name,
    }
}

/// The programs that cargo started, by their process ids.
pub(super) fn programs(folder: &Path) -> BTreeMap<u32, Program> {
    let text = fs::read_to_string(folder.join(PROGRAMS)).unwrap_or_default();
    let programs = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Program>(line).ok());
    programs.map(|program| (program.process, program)).collect()
}

/// Waits until all programs have ended, for at most this time, and returns those that have not.
pub(super) fn wait_for_programs(folder: &Path, longest: Duration) -> Vec<Program> {
    let start = Instant::now();
    loop {
        let running = programs(folder).into_values();
        let running: Vec<_> = running
            .filter(|program| runs(program.process, folder))
            .collect();
        if running.is_empty() || start.elapsed() >= longest {
            return running;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process is one of a run, and has not ended: the arguments of the runner, and then the environment of the program, have
/// the folder's random name. Another one, that has the number of one that has ended, has not.
fn runs(process: u32, folder: &Path) -> bool {
    if !is_running(process) {
        return false;
    }
    let folder = folder.as_os_str().as_bytes();
    let read = |file: &str| fs::read(format!("/proc/{process}/{file}"));
    let (Ok(mut words), Ok(environment)) = (read("cmdline"), read("environ")) else {
        return false;
    };
    words.extend(environment);
    // It has none for a moment as it executes the program, and as it ends.
    words.is_empty() || words.windows(folder.len()).any(|part| part == folder)
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    use super::{Program, crate_name, wait_for_programs};

    #[test]
    fn programs_that_cargo_has_left_are_waited_for() {
        let folder = env::temp_dir().join(format!("cuguard-left-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let mut started = Command::new("sleep");
        let started = started.arg("1000").env("CUGUARD_RUN", &folder).spawn();
        let mut started = started.expect("it is everywhere");
        let program = Program {
            process: started.id(),
            file: "/bin/sleep".into(),
            ..Program::default()
        };
        program.note(&folder).expect("own folder");
        // Another one, that has the number of one that has ended.
        let other = Program {
            process: std::process::id(),
            ..program.clone()
        };
        other.note(&folder).expect("own folder");
        let running = wait_for_programs(&folder, Duration::ZERO);
        started.kill().expect("own child");
        assert_eq!(running, [program]);
        // Nobody has waited for it.
        assert_eq!(wait_for_programs(&folder, Duration::MAX), []);
        started.wait().expect("own child");
        fs::remove_dir_all(&folder).expect("own folder");
    }

    #[test]
    fn programs_are_named_after_package_and_crate() {
        for (package, file, name) in [
            (
                "my-crate",
                "/t/debug/deps/my_crate-0123456789abcdef",
                "my-crate",
            ),
            (
                "my-crate",
                "/t/debug/deps/gpu-0123456789abcdef",
                "my-crate::gpu",
            ),
            ("a", "/t/debug/a", "a"),
            ("a", "/tmp/rustdoctestX/rust_out", "a doctest of a"),
            ("", "/t/debug/deps/a-0123456789abcdef", "a"),
        ] {
            let program = Program {
                package: package.to_owned(),
                file: file.into(),
                ..Program::default()
            };
            assert_eq!(program.name(), name);
        }
        assert_eq!(crate_name(Path::new("/t/my-program")), "my-program");
    }
}
