//! The memory limit of a context.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cuguard_driver::result::CallError;
use cuguard_registry::ResourceKind;
use cuguard_report::oom::Limit;

/// Who refused the memory.
#[derive(Clone, Copy)]
pub(crate) enum Refused {
    /// The driver.
    Memory(CallError),
    /// The budget of the context, with this much in use.
    Limit { held: u64 },
    /// The limit of a pool, which holds this much.
    PoolLimit { held: u64, limit: u64 },
    /// The check before the launch of a graph with scratch memory. The driver was not called.
    NotLaunched,
}

/// Counts the bytes in use against a limit. Without a limit nothing is counted.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    /// Written by all threads, but only where there is a limit.
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

    /// Whether there is a limit: the only check on the hot path of allocations and frees.
    #[inline(always)]
    pub(crate) fn is_limited(&self) -> bool {
        self.limit != NONE
    }

    fn counts(&self, kind: ResourceKind) -> bool {
        let on_device = matches!(
            kind,
            ResourceKind::Device
                | ResourceKind::StreamOrdered
                | ResourceKind::Pooled
                | ResourceKind::Managed
        );
        self.is_limited() && on_device
    }

    /// Reserves bytes, before the driver allocates.
    #[cold]
    pub(crate) fn reserve(&self, kind: ResourceKind, bytes: u64) -> Result<(), Refused> {
        if !self.counts(kind) {
            return Ok(());
        }
        let add = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= self.limit);
        match self.held.fetch_update(Relaxed, Relaxed, add) {
            Ok(_) => Ok(()),
            Err(held) => Err(Refused::Limit { held }),
        }
    }

    /// Counts memory that `from_raw` takes over, even beyond the limit.
    pub(crate) fn add(&self, kind: ResourceKind, bytes: u64) {
        if self.counts(kind) {
            self.held.fetch_add(bytes, Relaxed);
        }
    }

    /// Releases bytes, after the driver freed them or failed to allocate them.
    #[cold]
    pub(crate) fn release(&self, kind: ResourceKind, bytes: u64) {
        if self.counts(kind) {
            self.held.fetch_sub(bytes, Relaxed);
        }
    }

    /// The bytes left, if there is a limit.
    pub(crate) fn left(&self) -> Option<u64> {
        let left = self.limit.saturating_sub(self.held.load(Relaxed));
        self.is_limited().then_some(left)
    }

    /// The limit for the diagnosis. `refused` is what was in use when an allocation exceeded it.
    pub(crate) fn limit(&self, refused: Option<u64>) -> Option<Limit> {
        self.is_limited().then(|| Limit {
            bytes: self.limit,
            held: refused.unwrap_or_else(|| self.held.load(Relaxed)),
            refused: refused.is_some(),
            of_pool: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::core::Budget;
    use crate::core::Refused;
    use cuguard_registry::ResourceKind;

    #[test]
    fn a_budget_is_kept_to_the_byte() {
        let budget = Budget::new(Some(10));
        assert!(budget.reserve(ResourceKind::Device, 7).is_ok());
        assert!(matches!(
            budget.reserve(ResourceKind::Managed, 4),
            Err(Refused::Limit { held: 7 })
        ));
        assert!(budget.reserve(ResourceKind::Pinned, 4).is_ok());
        assert!(budget.reserve(ResourceKind::StreamOrdered, 3).is_ok());
        budget.release(ResourceKind::Device, 7);
        assert!(matches!(
            budget.reserve(ResourceKind::Device, u64::MAX),
            Err(Refused::Limit { held: 3 })
        ));
        assert_eq!(budget.limit(None).unwrap().held, 3);
        assert_eq!(budget.left(), Some(7));
        // Memory that is taken over may exceed the limit.
        budget.add(ResourceKind::Device, 20);
        assert_eq!(budget.left(), Some(0));
        assert_eq!(Budget::new(None).left(), None);
        assert!(
            Budget::new(None)
                .reserve(ResourceKind::Device, u64::MAX)
                .is_ok()
        );
        assert_eq!(Budget::new(None).limit(None), None);
    }
}
