//! A context that one program leaves to the next, for fuzzers: to make and end one is most of what a
//! short program costs. Only one that is as good as new is left, but for the figures of what was
//! ever in it, which the model keeps with it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cuguard::Level;

use crate::model::Home;
use crate::world::{CallSite, World};

static SPARE: Mutex<Option<CallSite>> = Mutex::new(None);

fn spare() -> MutexGuard<'static, Option<CallSite>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether no context is kept.
pub fn is_empty() -> bool {
    spare().is_none()
}

/// Ends the context that is kept.
pub fn end() {
    let kept = spare().take();
    drop(kept);
}

impl World {
    /// Begins with the context that is kept, if it fits; else it goes.
    pub fn take_spare(&mut self, fits: bool) -> bool {
        let kept = spare().take();
        let Some(place) = kept.filter(|_| fits && !self.options.every_step) else {
            return false;
        };
        self.driver.own_contexts += 1;
        self.places.push(place);
        true
    }

    /// Leaves the first context to the next program, if nothing is or was wrong with it.
    pub fn leave_spare(&mut self) -> bool {
        let Some(place) = self.places.first_mut() else {
            return false;
        };
        let (registry, context) = (&place.registry, &place.context);
        let right = |context| registry.check_figures(context).is_ok();
        let clean = matches!(place.home, Home::Own(_))
            && context.as_ref().is_some_and(right)
            && registry.level == Level::Sites
            && registry.records.is_empty()
            && registry.bare.is_empty()
            && self.things.iter().all(|thing| thing.context != 0);
        if !clean {
            return false;
        }
        let left = CallSite {
            context: place.context.take(),
            kept_open: false,
            home: Home::Own(0),
            free_leaks: true,
            registry: std::mem::take(&mut place.registry),
            report: None,
        };
        *spare() = Some(left);
        true
    }
}
