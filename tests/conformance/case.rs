//! A case: what it is called, and how it records and checks what it observes.
//!
//! A case reports to its parent process line by line on standard output; the first character is the
//! kind of the line. A line is written before the next driver call, which may end the process.

use std::fmt::{Debug, Display};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::driver::CUresult;

/// An observation that is as expected.
pub(crate) const HELD: char = '+';
/// An observation that is not as expected, and after a tab what was expected.
pub(crate) const FAILED: char = '-';
/// The next call must not succeed, and may end the process.
pub(crate) const DEADLY: char = '?';
/// The case cannot continue.
pub(crate) const STOPPED: char = '!';
/// The case has ended.
pub(crate) const END: char = '=';
/// The record of a call that must not succeed, when it did not.
pub(crate) const REFUSED: &str = "never success";

/// What a case runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// The simulated GPU inside this program.
    Simulation,
    /// A simulated GPU inside a loaded library, which this program cannot configure.
    SimulationLibrary,
    /// A real GPU.
    Real,
}

impl On {
    /// Its name on the command line of a child.
    pub(crate) fn word(self) -> &'static str {
        match self {
            On::Simulation => "simulation",
            On::SimulationLibrary => "simulation-library",
            On::Real => "real",
        }
    }

    /// The reverse of [`word`](Self::word).
    pub(crate) fn from_word(word: &str) -> Result<On, String> {
        [On::Simulation, On::SimulationLibrary, On::Real]
            .into_iter()
            .find(|on| on.word() == word)
            .ok_or_else(|| format!("--on: unknown word {word:?}"))
    }

    /// Whether the GPU is simulated.
    pub(crate) fn simulated(self) -> bool {
        self != On::Real
    }
}

/// A case as the list of cases holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// `topic::name`.
    pub(crate) name: &'static str,
    /// The case itself.
    pub(crate) run: fn(&Case),
    /// Why the simulated GPU behaves differently here, for the few cases where it is meant to.
    pub(crate) differs_on_simulation: Option<&'static str>,
    /// How long it may take.
    pub(crate) seconds: u64,
}

impl Entry {
    /// A case that behaves the same on every driver.
    pub(crate) const fn new(name: &'static str, run: fn(&Case)) -> Entry {
        Entry {
            name,
            run,
            differs_on_simulation: None,
            seconds: 120,
        }
    }

    /// Declares that the simulated GPU differs, and why.
    pub(crate) const fn differs_on_simulation(mut self, reason: &'static str) -> Entry {
        self.differs_on_simulation = Some(reason);
        self
    }

    /// Allows more time than the usual two minutes.
    pub(crate) const fn seconds(mut self, seconds: u64) -> Entry {
        self.seconds = seconds;
        self
    }
}

/// The recorder of a running case. All expectations of a case are evaluated, whether or not
/// earlier ones held; only [`require`](Case::require) stops.
#[derive(Debug)]
pub(crate) struct Case {
    on: On,
    ends_at_exit: AtomicBool,
}

impl Case {
    /// A recorder for a case on this kind of driver.
    pub(crate) fn new(on: On) -> Case {
        Case {
            on,
            ends_at_exit: AtomicBool::new(false),
        }
    }

    /// Whether the GPU is simulated. Only for what declares that it differs.
    pub(crate) fn on_simulation(&self) -> bool {
        self.on.simulated()
    }

    /// Expects the result `want` from a driver call.
    pub(crate) fn expect(&self, what: impl Display, got: CUresult, want: CUresult) {
        self.check(what, &code(got), &code(want));
    }

    /// Expects success.
    pub(crate) fn ok(&self, what: impl Display, got: CUresult) {
        self.expect(what, got, CUresult::SUCCESS);
    }

    /// Expects `CUDA_ERROR_INVALID_VALUE`.
    pub(crate) fn invalid(&self, what: impl Display, got: CUresult) {
        self.expect(what, got, CUresult::INVALID_VALUE);
    }

    /// Expects the value `want`.
    pub(crate) fn same<T: PartialEq + Debug>(&self, what: impl Display, got: T, want: T) {
        self.check(what, &format!("{got:?}"), &format!("{want:?}"));
    }

    /// The same for addresses and handles, which differ from driver to driver and are not recorded.
    pub(crate) fn same_handle<T: PartialEq + Debug>(&self, what: impl Display, got: T, want: T) {
        let equal = "as expected";
        match got == want {
            true => self.check(what, equal, equal),
            false => self.same(what, got, want),
        }
    }

    /// Expects that the statement `what` is true.
    pub(crate) fn yes(&self, what: impl Display, got: bool) {
        self.check(what, word(got), word(true));
    }

    /// Expects that the statement `what` is false.
    pub(crate) fn no(&self, what: impl Display, got: bool) {
        self.check(what, word(got), word(false));
    }

    /// Expects that `call` does not succeed. It may return any error or end the process, so this is the
    /// last call of a case.
    pub(crate) fn never_success(&self, what: impl Display, call: impl FnOnce() -> CUresult) {
        let what = what.to_string();
        line(DEADLY, &what);
        let got = call();
        if got.is_success() {
            self.check(&what, &code(got), REFUSED);
        } else {
            self.check(&what, REFUSED, REFUSED);
        }
    }

    /// Part of the set-up: without success the case stops here.
    pub(crate) fn require(&self, what: impl Display, got: CUresult) {
        if !got.is_success() {
            self.stop(format_args!("{what}: {}", code(got)));
        }
    }

    /// Ends the case with a failure.
    pub(crate) fn stop(&self, why: impl Display) -> ! {
        line(STOPPED, &why.to_string());
        std::process::exit(1);
    }

    /// The case continues in an exit handler, and ends there with [`end`](Case::end).
    pub(crate) fn ends_at_exit(&self) {
        self.ends_at_exit.store(true, Ordering::Relaxed);
    }

    /// Reports to the parent process that the case has ended.
    pub(crate) fn end(&self) {
        if !self.ends_at_exit.load(Ordering::Relaxed) {
            line(END, "end");
        }
    }

    fn check(&self, what: impl Display, got: &str, want: &str) {
        if got == want {
            line(HELD, &format!("{what}: {got}"));
        } else {
            line(FAILED, &format!("{what}: {got}\texpected {want}"));
        }
    }
}

/// The name of a result code, or its number.
fn code(result: CUresult) -> String {
    match result.name() {
        Some(name) => name.to_owned(),
        None => format!("code {}", result.0),
    }
}

fn word(truth: bool) -> &'static str {
    if truth { "yes" } else { "no" }
}

/// Writes one line to the parent process, at once.
fn line(kind: char, text: &str) {
    let text = format!("{kind} {}\n", text.replace('\n', " "));
    let mut out = std::io::stdout().lock();
    // It fails only if the parent has ended.
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}
