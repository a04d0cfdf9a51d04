//! When a run is looked at, for [`growth`](crate::growth): every so many allocations, whatever time that takes. The registry does it while
//! the program runs, and recordings are looked at in the same way: with other steps, one of them could see growth that the other does not.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most steps.
pub(crate) const STEPS: usize = 64;

/// How many allocations of a thread are in a step: a power of two. Where there are too many steps, every other one is dropped, and the
/// length doubles.
///
/// ```
/// use cuguard_registry::StepLength;
///
/// let length = StepLength::default();
/// let mut steps = Vec::new();
/// for nth in 0..100 {
///     if length.ends_step(nth) {
///         steps.push(nth);
///     }
///     if length.is_too_short(steps.len()) {
///         StepLength::drop_every_other(&mut steps);
///         length.double();
///     }
/// }
/// assert_eq!((steps.len(), steps[1]), (50, 2));
/// ```
#[derive(Debug, Default)]
pub struct StepLength {
    /// One less.
    mask: AtomicU64,
}

impl StepLength {
    /// Whether a step ends with the nth allocation of a thread, from 0.
    #[inline]
    pub fn ends_step(&self, nth: u64) -> bool {
        nth & self.mask.load(Relaxed) == 0
    }

    /// Whether so many steps are too many.
    pub fn is_too_short(&self, steps: usize) -> bool {
        steps >= STEPS
    }

    /// Twice as many allocations in each step from now on.
    pub fn double(&self) {
        let mask = self.mask.load(Relaxed);
        self.mask.store(mask << 1 | 1, Relaxed);
    }

    /// Drops every other step, but not the first.
    pub fn drop_every_other<T>(steps: &mut Vec<T>) {
        let mut index = 0;
        steps.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }
}
