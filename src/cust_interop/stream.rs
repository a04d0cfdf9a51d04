//! `Deref` to `cust`'s `Stream`.

use std::mem;
use std::ops::Deref;

use crate::error::Error;
use crate::guards::Stream;

// `deref` below relies on this.
const _: () = assert!(
    mem::size_of::<cust::stream::Stream>() == mem::size_of::<u64>()
        && mem::align_of::<cust::stream::Stream>() == mem::align_of::<u64>(),
    "cust's Stream is more than its handle"
);

impl Deref for Stream {
    type Target = cust::stream::Stream;

    /// # Panics
    ///
    /// If the context was closed, because the handle is invalid; if the process is exiting, because the driver may be
    /// unloaded.
    #[track_caller]
    fn deref(&self) -> &cust::stream::Stream {
        let entered = self.state().enter("Stream::deref");
        if let Err(error @ (Error::ContextClosed { .. } | Error::ProcessEnding { .. })) = entered {
            panic!("{error}");
        }
        let handle: *const u64 = self.stream_state().owned.address_in_place();
        // SAFETY: `cust`'s `Stream` is a struct whose only field is the handle, a pointer that is never dereferenced; the
        // assertion above excludes others, so both have the same layout. It is only borrowed, as long as the handle: the
        // `Drop` of `cust`, which would destroy the stream twice, never runs.
        unsafe { &*handle.cast() }
    }
}
