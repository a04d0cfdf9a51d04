//! A context that one program leaves to the next, for fuzzers: creating and closing one is most of what
//! a short program costs. Only an empty context is left; the model keeps its totals.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cuguard::TrackingLevel;

use crate::mode::Mode;
use crate::model::DriverContext;
use crate::world::{ContextSlot, World};

static SPARE: Mutex<Option<ContextSlot>> = Mutex::new(None);

fn spare() -> MutexGuard<'static, Option<ContextSlot>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether no context is kept.
pub fn is_empty() -> bool {
    spare().is_none()
}

/// Drops the kept context.
pub fn end() {
    let kept = spare().take();
    drop(kept);
}

impl World {
    /// Begins with the kept context if it fits; else drops it.
    pub fn take_spare(&mut self, fits: bool) -> bool {
        let kept = spare().take();
        let Some(slot) = kept.filter(|_| fits && self.mode == Mode::Quick) else {
            return false;
        };
        self.driver.own_contexts += 1;
        self.slots.push(slot);
        true
    }

    /// Leaves the first context to the next program, if it is empty and as the model expects.
    pub fn leave_spare(&mut self) -> bool {
        let Some(slot) = self.slots.first_mut() else {
            return false;
        };
        let (registry, context) = (&slot.registry, slot.context.as_ref());
        let clean = slot.driver_context != DriverContext::Primary
            && context.is_some_and(|context| registry.check_figures(context).is_ok())
            && registry.level == TrackingLevel::Sites
            && registry.records.is_empty()
            && registry.unrecorded.is_empty()
            && self.resources.iter().all(|resource| resource.slot != 0);
        if clean {
            *spare() = Some(ContextSlot {
                context: slot.context.take(),
                kept_open: false,
                driver_context: DriverContext::Own(0),
                free_leaks: true,
                registry: std::mem::take(&mut slot.registry),
                report: None,
            });
        }
        clean
    }
}
