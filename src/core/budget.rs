//! The budget of a context: how much memory its guards may hold.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cuguard_registry::Kind;
use cuguard_report::oom::Limit;

use super::allocate::Refused;

/// Counts what is held against a limit. Without a limit nothing is counted.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    /// On a cache line that all threads write to only where there is a limit.
    held: AtomicU64,
}

const NONE: u64 = u64::MAX;

impl Budget {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self {
            limit: limit.unwrap_or(NONE),
            held: AtomicU64::new(0),
        }
    }

    /// Whether anything is counted: the one question on the way of every allocation and every free.
    #[inline(always)]
    pub(crate) fn is_limited(&self) -> bool {
        self.limit != NONE
    }

    fn counts(&self, kind: Kind) -> bool {
        let on_device = matches!(kind, Kind::Device | Kind::StreamOrdered | Kind::Managed);
        self.is_limited() && on_device
    }

    /// Takes so much of the budget, before the driver is asked.
    #[cold]
    pub(crate) fn take(&self, kind: Kind, bytes: u64) -> Result<(), Refused> {
        if !self.counts(kind) {
            return Ok(());
        }
        let take = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= self.limit);
        match self.held.fetch_update(Relaxed, Relaxed, take) {
            Ok(_) => Ok(()),
            Err(held) => Err(Refused::Limit { held }),
        }
    }

    /// Counts what came in without being asked for.
    pub(crate) fn add(&self, kind: Kind, bytes: u64) {
        if self.counts(kind) {
            self.held.fetch_add(bytes, Relaxed);
        }
    }

    /// Gives so much back, when the driver has freed it, or did not give it.
    #[cold]
    pub(crate) fn give_back(&self, kind: Kind, bytes: u64) {
        if self.counts(kind) {
            self.held.fetch_sub(bytes, Relaxed);
        }
    }

    /// What is left of it, if there is a limit.
    pub(crate) fn left(&self) -> Option<u64> {
        let left = self.limit.saturating_sub(self.held.load(Relaxed));
        (self.limit != NONE).then_some(left)
    }

    /// The limit, if there is one. `refused` is what was held when it said no.
    pub(crate) fn limit(&self, refused: Option<u64>) -> Option<Limit> {
        (self.limit != NONE).then(|| Limit {
            bytes: self.limit,
            held: refused.unwrap_or_else(|| self.held.load(Relaxed)),
            refused: refused.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Refused};
    use cuguard_registry::Kind;

    #[test]
    fn a_budget_is_kept_to_the_byte() {
        let budget = Budget::new(Some(10));
        assert!(budget.take(Kind::Device, 7).is_ok());
        assert!(matches!(
            budget.take(Kind::Managed, 4),
            Err(Refused::Limit { held: 7 })
        ));
        assert!(budget.take(Kind::Pinned, 4).is_ok());
        assert!(budget.take(Kind::StreamOrdered, 3).is_ok());
        budget.give_back(Kind::Device, 7);
        assert!(matches!(
            budget.take(Kind::Device, u64::MAX),
            Err(Refused::Limit { held: 3 })
        ));
        assert_eq!(budget.limit(None).unwrap().held, 3);
        assert_eq!(budget.left(), Some(7));
        // What came in unasked may be more than there is.
        budget.add(Kind::Device, 20);
        assert_eq!(budget.left(), Some(0));
        assert_eq!(Budget::new(None).left(), None);
        assert!(Budget::new(None).take(Kind::Device, u64::MAX).is_ok());
        assert_eq!(Budget::new(None).limit(None), None);
    }
}
