//! Stack traces that the caller captures, interned.

use std::panic::Location;

use crate::call_site::{self, CallSite, CallSiteId, MAX_DEPTH};
use crate::caller;
use crate::names::NameId;

/// A stack trace of the calling thread, interned: for callers that know that they are where they have been before.
///
/// ```
/// use cuguard_registry::Trace;
///
/// assert_eq!(Trace::new(&[7, 8]), Trace::new(&[7, 8]));
/// assert_ne!(Trace::new(&[7, 8]), Trace::new(&[8, 7]));
/// assert_eq!(Trace::new(&[7, 8]).stack(), [7, 8]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    call_site: Option<&'static CallSite>,
    pub(crate) thread: NameId,
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        (self.id(), self.thread) == (other.id(), other.thread)
    }
}

impl Eq for Trace {}

impl Trace {
    /// Interns frames, innermost first, which [`cuguard_stack::capture_frames`] has captured. No frames are an unknown call site.
    #[must_use]
    pub fn new(stack: &[usize]) -> Self {
        Self {
            call_site: match stack {
                [] => None,
                _ => call_site::intern_frames(stack, ""),
            },
            thread: caller::thread(),
        }
    }

    /// The calling stack, with the line of the program where it is known.
    ///
    /// ```
    /// assert!(!cuguard_registry::Trace::here(None).stack().is_empty());
    /// ```
    #[must_use]
    pub fn here(site: Option<&'static Location<'static>>) -> Self {
        let id = call_site::intern_stack(site, "", MAX_DEPTH);
        Self {
            call_site: call_site::get(id),
            thread: caller::thread(),
        }
    }

    /// The frames, innermost first.
    #[must_use]
    pub fn stack(self) -> &'static [usize] {
        self.call_site.map_or(&[], |call_site| &call_site.stack)
    }

    #[inline]
    pub(crate) fn id(self) -> CallSiteId {
        self.call_site.map_or(0, |call_site| call_site.id)
    }
}
