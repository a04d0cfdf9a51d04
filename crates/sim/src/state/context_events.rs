//! Events of a whole context: `cuCtxRecordEvent` and `cuCtxWaitEvent`.

use cuguard_sys::flags;

use super::driver_state::DriverState;
use crate::handle::Id;
use crate::result::DriverResult;
use crate::streams::{Role, Stream, StreamPosition};

impl DriverState {
    /// A stream whose next work executes after all work that was submitted to a context so far.
    pub(crate) fn stream_after_context(&mut self, context: Id) -> DriverResult<Id> {
        let stream = self.internal_stream(context);
        let busy = self.contexts.get(&context).map(|own| own.busy.clone());
        for other in busy.unwrap_or_default() {
            if other != stream {
                let position = self.position(other, self.last_work(other));
                self.submit(stream, Some(&position), None, None)?;
            }
        }
        Ok(stream)
    }

    fn internal_stream(&mut self, context: Id) -> Id {
        let existing = self.contexts.get(&context).and_then(|own| own.internal);
        existing.unwrap_or_else(|| {
            let stream = self.add_stream(Stream {
                context,
                // The default stream does not wait for it, nor it for the default stream.
                flags: flags::STREAM_NON_BLOCKING,
                role: Role::Internal,
                ..Stream::default()
            });
            if let Some(own) = self.contexts.get_mut(&context) {
                own.internal = Some(stream);
            }
            stream
        })
    }

    /// Makes all work that is submitted to a context from now on wait for `position`.
    pub(crate) fn make_context_wait(&mut self, context: Id, position: StreamPosition) {
        let own = self.contexts.get_mut(&context);
        let mut waits = own.map_or_else(Vec::new, |own| std::mem::take(&mut own.waits_for));
        waits.push(position);
        waits.retain(|position| !self.is_done(position.stream, position.number));
        if let Some(own) = self.contexts.get_mut(&context) {
            own.waits_for = waits;
        }
    }

    /// The incomplete work that new work on a stream waits for because its context does.
    pub(super) fn context_waits(&self, stream: Id) -> Vec<StreamPosition> {
        let own = self.streams.get(&stream);
        let context = own.and_then(|own| self.contexts.get(&own.context));
        let waits = context.into_iter().flat_map(|context| &context.waits_for);
        let pending = waits.filter(|position| {
            position.stream != stream && !self.is_done(position.stream, position.number)
        });
        pending.cloned().collect()
    }
}
