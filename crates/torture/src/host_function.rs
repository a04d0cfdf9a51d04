//! Guards dropped inside a host function, where the driver permits no call.

use std::ffi::c_void;

use cuguard::Kind;
use cuguard::driver::api;

use crate::guard::{Guard, Thing};
use crate::world::World;
use crate::wrong::{Answer, ensure};

unsafe extern "C" fn drop_guard(guard: *mut c_void) {
    // SAFETY: from `Box::into_raw` below, once.
    drop(unsafe { Box::from_raw(guard.cast::<Guard>()) });
}

impl World {
    /// Drops something in a host function of a stream. It is freed when the stream is waited for,
    /// which is an operation outside of one.
    pub fn drop_in_host_function(&mut self, number: u8, stream: u8) -> Answer {
        let Some(at) = self.pick(number, |_| true) else {
            return Ok(());
        };
        let id = self.things[at].id;
        let fits = |thing: &Thing| {
            thing.kind == Kind::Stream && thing.id != id && self.context_of(thing).is_some()
        };
        let Some(stream) = self.pick(stream, fits).map(|at| self.things[at].id) else {
            return Ok(());
        };
        let thing = self.things.remove(at);
        let on = self.things.iter().find(|thing| thing.id == stream);
        let Some((Guard::Stream(on), Some(context))) =
            on.map(|on| (&on.guard, self.context_of(on)))
        else {
            unreachable!("picked as a stream of an open context");
        };
        let guard = Box::into_raw(Box::new(thing.guard)).cast();
        let bound = context.make_current()?;
        // SAFETY: the stream is alive, and the function takes what it is given.
        let code = unsafe { api::cuLaunchHostFunc(on.as_raw(), Some(drop_guard), guard) };
        drop(bound);
        ensure(code.is_success(), || format!("cuLaunchHostFunc: {code}"))?;
        on.synchronize()?;
        // The function may have returned only while the first one waited.
        on.synchronize()?;
        self.left(thing.context, thing.key)
    }
}
