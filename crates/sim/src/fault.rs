//! Faults that no GPU gives on demand: the n-th call fails, or memory runs out after so many
//! bytes.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cuguard_sys::{CUresult, NAMES};

use crate::engine;

/// A call that is to fail, and how.
///
/// ```
/// use cuguard_sim::Fault;
/// use cuguard_sys::CUresult;
///
/// // The third call of cuMemAlloc from now on fails, once.
/// let one = Fault::nth_call_of("cuMemAlloc_v2", 3);
/// // From the tenth call of anything, everything fails.
/// let all = Fault::nth_call(10).answering(CUresult::ILLEGAL_ADDRESS).sticky();
/// // What is allocated beyond 64 MiB, counted from now, fails.
/// let full = Fault::after_bytes(64 << 20).sticky();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing until it is handed to `inject`"]
pub struct Fault {
    trigger: Trigger,
    answer: CUresult,
    sticky: bool,
}

#[derive(Clone, Debug)]
enum Trigger {
    Call(u64),
    CallOf(String, u64),
    Bytes(u64),
}

impl Fault {
    /// The `n`-th call from now, of any function; the next call is number 1.
    ///
    /// The four functions that only tell something about the driver itself do not count and never
    /// fail: `cuGetErrorName`, `cuGetErrorString`, `cuDriverGetVersion`, `cuGetProcAddress`.
    pub fn nth_call(n: u64) -> Self {
        Self::new(Trigger::Call(n), CUresult::UNKNOWN)
    }

    /// The `n`-th call of one function from now; `function` is the exported name, such as
    /// `cuMemAlloc_v2`.
    pub fn nth_call_of(function: impl Into<String>, n: u64) -> Self {
        Self::new(Trigger::CallOf(function.into(), n), CUresult::UNKNOWN)
    }

    /// The allocation with which the bytes asked for since now pass `bytes`: device memory, arrays,
    /// stream-ordered memory, physical handles, pinned and managed memory count.
    pub fn after_bytes(bytes: u64) -> Self {
        Self::new(Trigger::Bytes(bytes), CUresult::OUT_OF_MEMORY)
    }

    fn new(trigger: Trigger, answer: CUresult) -> Self {
        Self {
            trigger,
            answer,
            sticky: false,
        }
    }

    /// What the failing call answers: by default `CUDA_ERROR_OUT_OF_MEMORY` for
    /// [`after_bytes`](Self::after_bytes) and `CUDA_ERROR_UNKNOWN` for the others.
    pub fn answering(mut self, code: CUresult) -> Self {
        self.answer = code;
        self
    }

    /// Not only the call that is described fails, but every one after it of the same description.
    /// Where that is every call, the device has stopped: work that is in flight is not done.
    pub fn sticky(mut self) -> Self {
        self.sticky = true;
        self
    }
}

/// A fault that cannot be injected.
///
/// ```
/// use cuguard_sim::{Fault, inject};
///
/// let error = inject(Fault::nth_call_of("cuMemAllok", 1)).unwrap_err();
/// assert!(error.to_string().contains("cuMemAllok"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// No driver function has this name.
    #[error("no driver function is called `{0}`; names carry their version, as in `cuMemAlloc_v2`")]
    UnknownFunction(String),
    /// Calls are counted from 1.
    #[error("calls are counted from 1: there is no call number 0")]
    CallZero,
    /// Success is no fault.
    #[error("a fault cannot answer CUDA_SUCCESS: the call would seem to work without having run")]
    AnswersSuccess,
}

struct Armed {
    trigger: ArmedTrigger,
    answer: CUresult,
    sticky: bool,
    fired: Arc<AtomicU64>,
}

enum ArmedTrigger {
    /// How many calls are still let through before the one that fails.
    Call(u64),
    CallOf(usize, u64),
    /// How many bytes are still granted.
    Bytes(u64),
}

static ARMED: Mutex<Vec<Armed>> = Mutex::new(Vec::new());
/// Whether anything is armed at all, so that the usual call takes no lock for nothing.
static ANY: AtomicBool = AtomicBool::new(false);

/// Tells about a fault that was injected.
///
/// ```
/// let injected = cuguard_sim::inject(cuguard_sim::Fault::nth_call(1_000_000))?;
/// assert_eq!(injected.fired(), 0);
/// # Ok::<(), cuguard_sim::FaultError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Injected {
    fired: Arc<AtomicU64>,
}

impl Injected {
    /// How many calls have failed because of this fault.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }
}

/// Arms a fault. Several can be armed at once; a call fails by the first that applies.
///
/// ```
/// use cuguard_sim::{Fault, clear_faults, inject};
///
/// let injected = inject(Fault::after_bytes(1 << 20))?;
/// assert_eq!(injected.fired(), 0);
/// clear_faults();
/// # Ok::<(), cuguard_sim::FaultError>(())
/// ```
///
/// # Errors
///
/// [`FaultError`], where the description makes no sense.
pub fn inject(fault: Fault) -> Result<Injected, FaultError> {
    if fault.answer.is_success() {
        return Err(FaultError::AnswersSuccess);
    }
    let trigger = match fault.trigger {
        Trigger::Call(0) | Trigger::CallOf(_, 0) => return Err(FaultError::CallZero),
        Trigger::Call(n) => ArmedTrigger::Call(n - 1),
        Trigger::CallOf(name, n) => match NAMES.iter().position(|known| *known == name) {
            Some(function) => ArmedTrigger::CallOf(function, n - 1),
            None => return Err(FaultError::UnknownFunction(name)),
        },
        Trigger::Bytes(bytes) => ArmedTrigger::Bytes(bytes),
    };
    let fired = Arc::new(AtomicU64::new(0));
    // In a forked child every call fails anyway, and a thread of its parent may have held the lock.
    if crate::machine::is_forked() {
        return Ok(Injected { fired });
    }
    let mut armed = ARMED.lock().unwrap_or_else(|e| e.into_inner());
    armed.push(Armed {
        trigger,
        answer: fault.answer,
        sticky: fault.sticky,
        fired: fired.clone(),
    });
    ANY.store(true, Ordering::Release);
    Ok(Injected { fired })
}

/// Disarms every fault.
///
/// ```
/// cuguard_sim::clear_faults();
/// ```
pub fn clear_faults() {
    if crate::machine::is_forked() {
        return;
    }
    let mut armed = ARMED.lock().unwrap_or_else(|e| e.into_inner());
    armed.clear();
    ANY.store(false, Ordering::Release);
    if crate::machine::corrupted().is_ok() {
        engine::start_again();
    }
}

/// Runs `matches` over the armed faults: it counts down and tells whether this one fires now.
fn check(mut matches: impl FnMut(&mut ArmedTrigger) -> bool) -> Result<(), CUresult> {
    if !ANY.load(Ordering::Acquire) {
        return Ok(());
    }
    let mut armed = ARMED.lock().unwrap_or_else(|e| e.into_inner());
    let mut hit = None;
    // Every fault counts the call, also the ones behind the first that fires.
    for (index, fault) in armed.iter_mut().enumerate() {
        if matches(&mut fault.trigger) && hit.is_none() {
            hit = Some(index);
        }
    }
    let Some(index) = hit else { return Ok(()) };
    let fault = &armed[index];
    fault.fired.fetch_add(1, Ordering::Relaxed);
    let answer = fault.answer;
    if fault.sticky && matches!(fault.trigger, ArmedTrigger::Call(_)) {
        engine::stop(answer);
    }
    if !fault.sticky {
        armed.remove(index);
        ANY.store(!armed.is_empty(), Ordering::Release);
    }
    Err(answer)
}

fn count_down(left: &mut u64) -> bool {
    if *left == 0 {
        return true;
    }
    *left -= 1;
    false
}

/// To be asked once for each call, never in a forked child; `function` is its place in [`NAMES`].
pub(crate) fn on_call(function: usize) -> Result<(), CUresult> {
    check(|trigger| match trigger {
        ArmedTrigger::Call(left) => count_down(left),
        ArmedTrigger::CallOf(of, left) if *of == function => count_down(left),
        _ => false,
    })
}

/// To be asked once for each allocation, before anything is taken.
pub(crate) fn on_allocation(bytes: u64) -> Result<(), CUresult> {
    check(|trigger| match trigger {
        ArmedTrigger::Bytes(left) => match left.checked_sub(bytes) {
            Some(rest) => {
                *left = rest;
                false
            }
            None => true,
        },
        _ => false,
    })
}
