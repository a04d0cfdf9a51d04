//! References of instantiated graphs to user objects, which are released once no launch needs them.

use std::collections::BTreeMap;

use cuguard_sys::flags;

use super::driver_state::DriverState;
use crate::handle::{Id, Kind};
use crate::streams::{OnComplete, Role, Stream, StreamPosition};

impl DriverState {
    /// Releases references to user objects when the work at a position is complete, or now if it is, or if there is none.
    pub(crate) fn release_objects(
        &mut self,
        objects: BTreeMap<Id, u32>,
        after: Option<StreamPosition>,
    ) {
        let id = self.ids.next(Kind::UserObject);
        let is_empty = objects.is_empty();
        self.graphs.releases.insert(id, objects);
        let pending = after.filter(|own| !is_empty && !self.is_done(own.stream, own.number));
        let submitted = pending.is_some_and(|position| self.release_after(id, &position));
        if !submitted {
            self.complete_release(id);
        }
    }

    /// Submits a release. Returns whether that was possible.
    fn release_after(&mut self, id: Id, position: &StreamPosition) -> bool {
        let Some(context) = self.streams.get(&position.stream).map(|own| own.context) else {
            return false;
        };
        // Of its own, so that no other work waits for it.
        let stream = self.add_stream(Stream {
            context,
            flags: flags::STREAM_NON_BLOCKING,
            role: Role::Internal,
            ..Stream::default()
        });
        let release = Some(OnComplete::Release(id));
        let submitted = self.submit(stream, Some(position), None, release);
        self.destroy_stream(stream);
        submitted.is_ok()
    }

    /// No launch needs these references any more.
    pub(super) fn complete_release(&mut self, id: Id) {
        for (object, count) in self.graphs.releases.remove(&id).unwrap_or_default() {
            let destroyed = self.graphs.release(object, count.into());
            self.destroyed_objects.extend(destroyed);
        }
    }
}
