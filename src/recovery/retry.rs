//! The ladder: what is tried before something fails for want of memory.

use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;

use cuguard_driver::sys::CUresult;

use super::{frees, gather, pools};
use crate::context_state::{ContextState, Entered};
use crate::deferred;
use crate::error::{Error, Result};
use cuguard_registry::Kind;
use cuguard_report::oom::{RecoveryResult, RecoveryStep};

/// What is asked for.
pub(crate) struct Request {
    pub(crate) operation: &'static str,
    /// `None` for what no guard holds.
    pub(crate) kind: Option<Kind>,
    /// 0 where nobody knows: what needs no memory does not come here.
    pub(crate) bytes: usize,
    pub(crate) site: &'static Location<'static>,
}

impl Request {
    /// For what the driver makes of memory without telling how much: a stream, a module, a launch.
    #[track_caller]
    pub(crate) fn of_unknown_size(operation: &'static str, kind: Option<Kind>) -> Self {
        Self {
            operation,
            kind,
            bytes: 0,
            site: Location::caller(),
        }
    }

    /// Asks, and climbs the ladder where there is too little memory. `ask` is as for
    /// [`climb`](Failed::climb), and is the first attempt too.
    pub(crate) fn satisfy<T>(
        &self,
        state: &Arc<ContextState>,
        ask: impl Fn() -> Result<T, Failed>,
    ) -> Result<T> {
        ask().or_else(|failed| failed.climb(state, self, &ask))
    }
}

/// Who says that there is not enough.
#[derive(Clone, Copy)]
pub(crate) enum Refused {
    /// The driver.
    Memory {
        function: &'static str,
        code: CUresult,
    },
    /// The budget of the context, of which this much was held.
    Limit { held: u64 },
}

/// Why an attempt did not succeed.
pub(crate) enum Failed {
    /// For want of memory.
    Short(Refused),
    /// For another reason.
    Other(Error),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        Self::Short(refused)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Failed {
    /// The driver said no to so many bytes, which were taken from the budget.
    #[cold]
    #[inline(never)]
    pub(crate) fn by_driver(
        state: &ContextState,
        operation: &'static str,
        function: &'static str,
        code: CUresult,
        (kind, bytes): (Kind, usize),
    ) -> Self {
        state.budget.give_back(kind, bytes as u64);
        if code == CUresult::OUT_OF_MEMORY {
            return Self::Short(Refused::Memory { function, code });
        }
        match state.check(operation, function, code, Some(bytes as u64)) {
            Err(error) => Self::Other(error),
            Ok(()) => unreachable!("the code is an error"),
        }
    }

    /// Turns a code of the driver into a result, where nobody knows how many bytes it wanted.
    #[inline]
    pub(crate) fn check(
        entered: &Entered<'_>,
        function: &'static str,
        code: CUresult,
    ) -> Result<(), Self> {
        if code == CUresult::OUT_OF_MEMORY {
            return Err(Self::Short(Refused::Memory { function, code }));
        }
        Ok(entered.check(function, code)?)
    }

    /// What becomes of an attempt that did not succeed. For want of memory, the ladder is climbed:
    /// `ask` is another attempt, which asks the driver once; it enters the gate of the context and has
    /// left it when it returns. (The first attempt is made by the caller, where all of it is in one
    /// place: it is on the way of every allocation.)
    #[cold]
    #[inline(never)]
    pub(crate) fn climb<T>(
        self,
        state: &Arc<ContextState>,
        request: &Request,
        ask: &dyn Fn() -> Result<T, Failed>,
    ) -> Result<T> {
        let mut refused = match self {
            Self::Other(error) => return Err(error),
            Self::Short(refused) => refused,
        };
        // What was dropped in host functions may be all that is needed.
        if deferred::run() {
            match ask() {
                Err(Self::Short(again)) => refused = again,
                Err(Self::Other(error)) => return Err(error),
                Ok(thing) => return Ok(thing),
            }
        }
        let mut had = None;
        let mut attempt = || ask().map(|thing| had = Some(thing));
        climb(state, request, refused, &mut attempt)?;
        Ok(had.unwrap_or_else(|| unreachable!("the last attempt succeeded")))
    }
}

/// This thread is on the ladder: a callback that allocates does not climb it again.
struct Climbing;

thread_local! {
    static CLIMBING: Cell<bool> = const { Cell::new(false) };
    static GUESSING: Cell<bool> = const { Cell::new(false) };
}

/// Lets allocations of this thread fail at once, and with little more than what was asked for: for
/// one that tries how much there is, and asks for less where there is not so much.
pub(crate) fn guessing<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            GUESSING.set(self.0);
        }
    }
    let _before = Before(GUESSING.replace(true));
    work()
}

impl Climbing {
    /// `None` within another one. Not by `then_some`: that builds, and drops, a value also where it
    /// is not wanted, and the drop would end the outer one.
    fn begin() -> Option<Self> {
        if CLIMBING.replace(true) {
            return None;
        }
        Some(Self)
    }
}

impl Drop for Climbing {
    fn drop(&mut self) {
        CLIMBING.set(false);
    }
}

fn climb(
    state: &Arc<ContextState>,
    request: &Request,
    mut refused: Refused,
    ask: &mut dyn FnMut() -> Result<(), Failed>,
) -> Result<()> {
    if GUESSING.get() {
        return Err(gather::bare(state, request, &refused));
    }
    let climbing = Climbing::begin();
    let mut attempts = Vec::new();
    if climbing.is_some() {
        for rung in [
            RecoveryStep::Callbacks,
            RecoveryStep::Wait,
            RecoveryStep::Trim,
        ] {
            let mut attempt = RecoveryResult {
                step: rung,
                allowed: is_allowed(state, rung),
                tried: false,
                freed: 0,
            };
            // Of the budget, frees that wait and unused memory of pools take nothing.
            let matters =
                rung == RecoveryStep::Callbacks || matches!(refused, Refused::Memory { .. });
            if attempt.allowed && matters {
                let before = gather::memory(state);
                let mut outcome = None;
                let mut ask_again = || {
                    let answer = if state.callbacks.are_closed() {
                        // Teardown has waited for the callback, and takes down what is alive now.
                        let operation = request.operation;
                        Err(Error::ContextClosed { operation }.into())
                    } else {
                        ask()
                    };
                    match answer {
                        Err(Failed::Short(again)) => refused = again,
                        done => outcome = Some(done),
                    }
                    outcome.is_some()
                };
                attempt.tried = match rung {
                    RecoveryStep::Callbacks => {
                        // Where nobody knows, as much as they can.
                        let bytes = match request.bytes {
                            0 => u64::MAX,
                            bytes => bytes as u64,
                        };
                        state.callbacks.call_each(bytes, &mut ask_again)
                    }
                    RecoveryStep::Wait => {
                        let most = state.shortage.wait_at_most;
                        frees::wait_for_frees(state, most, &mut ask_again)
                    }
                    RecoveryStep::Trim => {
                        let any = pools::trim(state);
                        if any {
                            ask_again();
                        }
                        any
                    }
                };
                match outcome {
                    Some(Ok(())) => return Ok(()),
                    Some(Err(Failed::Other(error))) => return Err(error),
                    _ => {}
                }
                let after = gather::memory(state);
                attempt.freed = match (before, after) {
                    (Some((before, _)), Some((after, _))) => after.saturating_sub(before),
                    _ => 0,
                };
            }
            attempts.push(attempt);
        }
    }
    Err(gather::refused(state, request, &refused, attempts))
}

fn is_allowed(state: &ContextState, rung: RecoveryStep) -> bool {
    match rung {
        RecoveryStep::Callbacks => state.shortage.callbacks,
        RecoveryStep::Wait => state.shortage.wait,
        RecoveryStep::Trim => state.shortage.trim,
    }
}
