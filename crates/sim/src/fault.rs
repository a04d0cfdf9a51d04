//! Fault injection: the n-th call fails, or allocations fail after a number of bytes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cuguard_sys::CUresult;

use crate::copy_engine;
use crate::functions::Function;
use crate::process::lock_unless_forked;
use crate::result::DriverResult;

/// Which call fails, and with what error.
///
/// ```
/// use cuguard_sim::Fault;
/// use cuguard_sys::CUresult;
///
/// // The third call of cuMemAlloc from now on fails, once.
/// let one = Fault::nth_call_of("cuMemAlloc_v2", 3);
/// // From the tenth call of any function on, every call fails.
/// let all = Fault::nth_call(10).returning(CUresult::ILLEGAL_ADDRESS).sticky();
/// // Allocations beyond 64 MiB, counted from now, fail.
/// let full = Fault::after_bytes(64 << 20).sticky();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing until it is passed to `inject`"]
pub struct Fault {
    trigger: Trigger,
    error: CUresult,
    sticky: bool,
}

#[derive(Clone, Debug)]
enum Trigger {
    /// The number of the failing call, counted down to 1, of this function or of any.
    Call(Option<String>, u64),
    /// The number of the failing allocation, counted down to 1.
    Allocation(u64),
    /// How many bytes can still be allocated.
    Bytes(u64),
}

impl Fault {
    /// The `n`-th call of any function fails; the next call is number 1.
    ///
    /// Four functions that only query the driver itself do not count and never fail:
    /// `cuGetErrorName`, `cuGetErrorString`, `cuDriverGetVersion`, `cuGetProcAddress`.
    pub fn nth_call(n: u64) -> Self {
        Self::new(Trigger::Call(None, n), CUresult::UNKNOWN)
    }

    /// The `n`-th call of one function fails; `function` is the exported name, such as
    /// `cuMemAlloc_v2`.
    pub fn nth_call_of(function: impl Into<String>, n: u64) -> Self {
        Self::new(Trigger::Call(Some(function.into()), n), CUresult::UNKNOWN)
    }

    /// The `n`-th allocation of memory fails, by whichever function; the next one is number 1. Device memory, arrays,
    /// stream-ordered memory, physical handles, managed and page-locked memory count, and each variable of a module. Memory
    /// of graphs does not, nor registered memory, nor what the driver needs for contexts, streams and the like.
    ///
    /// With increasing numbers until [nothing fails](InjectedFault::fired), a program is tested for each of these that can
    /// fail; [`sticky`](Self::sticky) makes all later ones fail too, as on a device that is full.
    pub fn nth_allocation(n: u64) -> Self {
        Self::new(Trigger::Allocation(n), CUresult::OUT_OF_MEMORY)
    }

    /// The allocation that brings the total since now above `bytes` fails. What counts is as for
    /// [`nth_allocation`](Self::nth_allocation).
    pub fn after_bytes(bytes: u64) -> Self {
        Self::new(Trigger::Bytes(bytes), CUresult::OUT_OF_MEMORY)
    }

    fn new(trigger: Trigger, error: CUresult) -> Self {
        Self {
            trigger,
            error,
            sticky: false,
        }
    }

    /// The error that the failing call returns: by default `CUDA_ERROR_OUT_OF_MEMORY` for
    /// [`nth_allocation`](Self::nth_allocation) and [`after_bytes`](Self::after_bytes), and `CUDA_ERROR_UNKNOWN` for the
    /// others.
    ///
    /// A code that means that [nothing is in flight](CUresult::ends_all_work) is returned by `cuStreamSynchronize` and its
    /// like once the work is complete; until then, `cuStreamQuery` and its like return `CUDA_ERROR_NOT_READY`.
    pub fn returning(mut self, error: CUresult) -> Self {
        self.error = error;
        self
    }

    /// Every later matching call fails too. If that is every call, the device stops: work in flight is never executed.
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
    /// No simulated function has this name. Among them are the 32-bit versions of CUDA 2, such as `cuMemAlloc`, and
    /// names whose calls count as those of another, such as `cuMemcpy_ptds`.
    #[error(
        "no simulated function is called `{0}`; names include the version, as in `cuMemAlloc_v2`"
    )]
    UnknownFunction(String),
    /// The number of the call or of the allocation is 0.
    #[error("calls and allocations are counted from 1: there is no number 0")]
    NumberZero,
    /// The error is `CUDA_SUCCESS`.
    #[error("a fault cannot return CUDA_SUCCESS: the call would seem to work without having run")]
    ReturnsSuccess,
}

/// The armed faults, and how often each has fired.
static ARMED: Mutex<Vec<(Fault, Arc<AtomicU64>)>> = Mutex::new(Vec::new());
/// Whether any fault is armed, so that calls take no lock otherwise.
static ANY: AtomicBool = AtomicBool::new(false);

/// An injected fault: counts how often it fires. The fault stays armed when this is dropped; [`clear_faults`] disarms it.
///
/// ```
/// let injected = cuguard_sim::inject(cuguard_sim::Fault::nth_call(1_000_000))?;
/// assert_eq!(injected.fired(), 0);
/// # Ok::<(), cuguard_sim::FaultError>(())
/// ```
#[derive(Clone, Debug)]
pub struct InjectedFault {
    fired: Arc<AtomicU64>,
}

impl InjectedFault {
    /// How many calls have failed because of this fault.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }
}

/// Arms a fault. Several can be armed; a call fails with the first that matches.
///
/// Faults belong to the process: calls on all threads count and can fail, those of tests that run at the same time too.
/// A fault is armed until it fires, a [sticky](Fault::sticky) one until [`clear_faults`]. Dropping the returned value,
/// which only counts, disarms nothing.
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
/// [`FaultError`] for an unknown function, number 0 of a call or an allocation, or `CUDA_SUCCESS` as the error.
pub fn inject(fault: Fault) -> Result<InjectedFault, FaultError> {
    if fault.error.is_success() {
        return Err(FaultError::ReturnsSuccess);
    }
    match &fault.trigger {
        Trigger::Call(_, 0) | Trigger::Allocation(0) => return Err(FaultError::NumberZero),
        Trigger::Call(Some(name), _) if !Function::is_simulated_name(name) => {
            return Err(FaultError::UnknownFunction(name.clone()));
        }
        _ => {}
    }
    let fired = Arc::<AtomicU64>::default();
    // In a forked child every call fails anyway.
    if let Some(mut armed) = lock_unless_forked(&ARMED) {
        armed.push((fault, fired.clone()));
        ANY.store(true, Ordering::Release);
    }
    Ok(InjectedFault { fired })
}

/// Disarms every fault of the process, and ends the stop of the device by a sticky one.
///
/// ```
/// cuguard_sim::clear_faults();
/// ```
pub fn clear_faults() {
    if let Some(mut armed) = lock_unless_forked(&ARMED) {
        armed.clear();
        ANY.store(false, Ordering::Release);
        copy_engine::restart();
    }
}

/// Fails if an armed fault fires. `fires` counts down a trigger and returns whether it fires now.
fn check(mut fires: impl FnMut(&mut Trigger) -> bool) -> DriverResult {
    let armed = ANY
        .load(Ordering::Acquire)
        .then(|| lock_unless_forked(&ARMED));
    let Some(mut armed) = armed.flatten() else {
        return Ok(());
    };
    let mut hit = None;
    // Every fault counts the call, also those after the first that fires.
    for (index, (fault, _)) in armed.iter_mut().enumerate() {
        if fires(&mut fault.trigger) && hit.is_none() {
            hit = Some(index);
        }
    }
    let Some(index) = hit else { return Ok(()) };
    let (fault, fired) = &armed[index];
    let error = fault.error;
    fired.fetch_add(1, Ordering::Relaxed);
    let stops = fault.sticky && matches!(fault.trigger, Trigger::Call(None, _));
    if !fault.sticky {
        drop(armed.remove(index));
        ANY.store(!armed.is_empty(), Ordering::Release);
    }
    // Not under the lock: a stop waits for kernels, which may wait for the driver's state, whose owner may be here.
    drop(armed);
    if stops {
        copy_engine::stop(error);
        // The faults may have been cleared meanwhile.
        if !ANY.load(Ordering::Acquire) {
            copy_engine::restart();
        }
    }
    Err(error)
}

/// Called once for each call, never in a forked child.
pub(crate) fn on_call(function: Function) -> DriverResult {
    check(|trigger| match trigger {
        Trigger::Call(name, left) if name.as_ref().is_none_or(|n| n == function.name()) => {
            counts_down_to(left)
        }
        _ => false,
    })
}

/// Whether this is the one that was counted to. It stays at 1, for what is sticky.
fn counts_down_to(left: &mut u64) -> bool {
    let fires = *left == 1;
    *left = (*left - 1).max(1);
    fires
}

/// Called once for each allocation, before anything is allocated.
pub(crate) fn on_allocation(bytes: u64) -> DriverResult {
    check(|trigger| match trigger {
        Trigger::Allocation(left) => counts_down_to(left),
        Trigger::Bytes(left) => {
            let rest = left.checked_sub(bytes);
            *left = rest.unwrap_or(*left);
            rest.is_none()
        }
        _ => false,
    })
}
