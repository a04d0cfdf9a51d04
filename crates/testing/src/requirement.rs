//! What tests need that a machine may lack, where that is, and what a test does without it.
//!
//! A test that lacks something prints `NOT RUN: …` to standard error and passes. `CUGUARD_REQUIRE` turns this into a
//! failure: `all`, or a comma-separated list of names; `-NAME` after `all` excepts one. CI requires everything that CI
//! has (`.ci/run`).

use std::fmt::Display;
use std::io::Write;

macro_rules! requirements {
    ($($(#[doc = $missing:literal])+ $variant:ident = $name:literal, $needs:literal;)+) => {
        /// Something that a machine may lack. The documentation of each says where it is missing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Requirement {
            $($(#[doc = $missing])+ $variant,)+
        }

        impl Requirement {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name that `CUGUARD_REQUIRE` knows it by.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What a test needs, for a sentence that begins with "needs".
            pub fn needs(self) -> &'static str {
                match self { $(Self::$variant => $needs,)+ }
            }
        }
    };
}

requirements! {
    /// Missing in CI and on most machines that build this repository.
    RealGpu = "gpu", "a real GPU";
    /// Missing on a machine with a GPU, where tests use the real driver.
    SimulatedGpu = "sim", "the simulated GPU";
    /// Missing on a machine with one GPU, or with GPUs that cannot access each other. The simulated machine has two.
    TwoDevices = "two-devices", "two devices that can access each other";
    /// Missing on a machine with a GPU: some tests show what happens without a driver.
    NoDriver = "no-driver", "a machine without a CUDA driver";
    /// Missing without a CUDA toolkit, as in CI.
    Nvrtc = "nvrtc", "NVRTC";
    /// Missing with a CUDA toolkit: a test shows what happens without NVRTC.
    NoNvrtc = "no-nvrtc", "a machine without NVRTC";
    /// Missing without NVML, or where a container hides processes from it.
    Nvml = "nvml", "NVML that lists processes";
    /// Missing on machines that only run a bundle.
    Sources = "sources", "the sources of this repository";
    /// Missing on machines without a C compiler, `cc` or `$CC`.
    CCompiler = "cc", "a C compiler";
    /// Missing on machines without `c++` or `$CXX`.
    CxxCompiler = "c++", "a C++ compiler";
    /// Missing with compilers other than GCC and Clang, and without a static C library.
    CompilerOptions = "cc-options", "a C compiler that knows the options";
    /// Missing on machines that only run a bundle.
    Rustc = "rustc", "rustc";
    /// Missing without Python, and with a Python that is too old for the test.
    Python = "python", "python3 of a version that the test knows";
    /// Missing where `scripts/fetch-pytest.sh` was not run: `CUGUARD_PYTEST` names its Python.
    Pytest = "pytest", "a Python with pytest in CUGUARD_PYTEST";
    /// Missing without the older or newer versions of Python that some tests look for.
    OtherPythons = "other-pythons", "other versions of Python";
    /// Missing without Go.
    Pprof = "pprof", "`go tool pprof`";
    /// Missing without Chromium or Chrome.
    Browser = "browser", "Chromium";
    /// Missing where `scripts/fetch-speedscope.sh` was not run: `CUGUARD_SPEEDSCOPE` names its folder.
    Speedscope = "speedscope", "a release of speedscope in CUGUARD_SPEEDSCOPE";
    /// Missing without binutils: `strip`, `addr2line`, `objcopy`.
    Binutils = "binutils", "binutils";
    /// Missing where tests run as a user, and in containers without the capability to mount or to become another user.
    Root = "root", "root";
    /// Missing on kernels without `CONFIG_PROC_CHILDREN`, and without `/proc`.
    ProcChildren = "proc-children", "a kernel that lists children";
    /// Missing on kernels before 4.14, and where a sandbox forbids the system call.
    Membarrier = "membarrier", "membarrier";
    /// Missing where something else is mapped in between.
    SameAddress = "same-address", "a dynamic loader that loads a library where another was unloaded";
    /// Missing in a command that was built without the audit library.
    AuditLibrary = "audit-library", "the audit library in the command";
    /// Missing with an optimised command, such as that of a bundle: it contains them.
    LibrariesApart = "libraries-apart", "a command whose libraries are files beside it";
    /// Missing on processors other than x86_64 and aarch64.
    UnwindRules = "unwind-rules", "unwind rules for this processor";
    /// Missing in static programs, and where the libraries of the C library's package are not installed.
    DynamicLoader = "dynamic-loader", "libraries that can be loaded while the program runs";
    /// Missing on systems with larger pages, or with a policy against memory that is both written and executed.
    Stacks = "stacks", "small stacks and code at run time";
}

/// Prints that the calling test was not run, with `why` beside the requirement unless it is empty or the test's name.
///
/// # Panics
/// If `CUGUARD_REQUIRE` contains the requirement, or is not valid.
#[track_caller]
pub fn not_run(requirement: Requirement, why: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let why = why.to_string();
    let why = if test.ends_with(&why) {
        format!("needs {}", requirement.needs())
    } else {
        format!("needs {}: {why}", requirement.needs())
    };
    match requirement.is_required() {
        Ok(true) => panic!(
            "{test} was not run: {why} (CUGUARD_REQUIRE requires `{}`)",
            requirement.name()
        ),
        // Written past the test harness, which captures the output of passing tests.
        Ok(false) => {
            let line = format!("NOT RUN: {test}: {why}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        Err(error) => panic!("{error}"),
    }
}

impl Requirement {
    /// Whether `CUGUARD_REQUIRE` contains this.
    ///
    /// # Errors
    ///
    /// The variable has a word that is not known.
    pub fn is_required(self) -> Result<bool, String> {
        is_required(&setting()?, self)
    }
}

/// The value of `CUGUARD_REQUIRE`, checked: a word that is not known would require nothing.
///
/// # Errors
///
/// As [`Requirement::is_required`].
pub fn setting() -> Result<String, String> {
    let setting = std::env::var_os("CUGUARD_REQUIRE").unwrap_or_default();
    let setting = setting.into_string().map_err(|value| {
        let value = value.display();
        format!("CUGUARD_REQUIRE: `{value}` is not UTF-8")
    })?;
    is_required(&setting, Requirement::RealGpu)?;
    Ok(setting)
}

/// Whether a value of `CUGUARD_REQUIRE` contains a requirement.
fn is_required(setting: &str, requirement: Requirement) -> Result<bool, String> {
    let (mut required, mut all) = (false, false);
    for word in setting.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        let (name, adds) = match word.strip_prefix('-') {
            Some(name) => (name, false),
            None => (word, true),
        };
        if word == "all" {
            (required, all) = (true, true);
        } else if !adds && !all {
            return Err(format!(
                "CUGUARD_REQUIRE: `{word}` excepts nothing: put `all` before it"
            ));
        } else if let Some(known) = Requirement::ALL.iter().find(|known| known.name() == name) {
            if *known == requirement {
                required = adds;
            }
        } else {
            let known: Vec<_> = Requirement::ALL.iter().map(|known| known.name()).collect();
            return Err(format!(
                "CUGUARD_REQUIRE: `{word}` is not known; accepted are `all`, {}, and `-NAME` after `all`",
                known.join(", ")
            ));
        }
    }
    Ok(required)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let gpu = |setting| is_required(setting, Requirement::RealGpu);
        assert_eq!(gpu(""), Ok(false));
        assert_eq!(gpu("all"), Ok(true));
        assert_eq!(gpu("all,-gpu"), Ok(false));
        assert_eq!(gpu("all, -cc"), Ok(true));
        assert_eq!(gpu("cc,gpu"), Ok(true));
        assert_eq!(gpu("cc"), Ok(false));
        let error = gpu("-gpu").unwrap_err();
        assert!(error.contains("put `all` before it"), "{error}");
        let error = gpu("all,-card").unwrap_err();
        assert!(
            error.contains("`-card` is not known; accepted are `all`, gpu, sim,"),
            "{error}"
        );
    }
}
