//! Guards dropped inside a host function, where the driver permits no call.

use std::ffi::c_void;

use cuguard::ResourceKind;
use cuguard::driver::api;

use crate::guard::Guard;
use crate::mismatch::{Check, ensure};
use crate::resource::Resource;
use crate::world::World;

unsafe extern "C" fn drop_guard(guard: *mut c_void) {
    // SAFETY: from `Box::into_raw` below, once.
    drop(unsafe { Box::from_raw(guard.cast::<Guard>()) });
}

impl World {
    /// Drops a resource in a host function. It is freed at the next call, the synchronization of the
    /// stream.
    pub fn drop_in_host_function(&mut self, number: u8, stream: u8) -> Check {
        let at = self.pick(number, |_| true)?;
        let id = self.resources[at].id;
        let fits = |resource: &Resource| {
            resource.kind == ResourceKind::Stream
                && resource.id != id
                && self.context_of(resource).is_some()
        };
        let stream = self.resources[self.pick(stream, fits)?].id;
        let resource = self.resources.remove(at);
        let on = self.resources.iter().find(|resource| resource.id == stream);
        let on = on.map(|on| (on.guard.stream(), self.context_of(on)));
        let Some((on, Some(context))) = on else {
            unreachable!("picked as a stream of an open context");
        };
        let guard = Box::into_raw(Box::new(resource.guard)).cast();
        let bound = context.make_current()?;
        // SAFETY: the stream is alive, and the function takes a boxed guard.
        let code = unsafe { api::cuLaunchHostFunc(on.as_raw(), Some(drop_guard), guard) };
        drop(bound);
        ensure(code.is_success(), || format!("cuLaunchHostFunc: {code}"))?;
        on.synchronize()?;
        // The guard may have been dropped during the first one, after it freed what was deferred.
        on.synchronize()?;
        self.dropped(resource.slot, resource.key)
    }
}
