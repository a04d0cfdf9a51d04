//! The stream on which a compaction copies.
//!
//! Compaction copies on a stream of its own, if it can create one. On the default stream, a copy would wait for
//! blocking streams, for example for a host function that itself waits until the compaction is over.

use std::sync::Mutex;

use cuguard_driver::result::{self, stream};
use cuguard_driver::sys::{CUstream, flags};
use cuguard_registry::{Key, ResourceKind};

use crate::core::release::free;
use crate::core::shared::context_state::ContextState;
use crate::core::shared::lock::lock;

/// The stream, from the first copy until all have been waited for. The context is current in all functions.
#[derive(Debug, Default)]
pub(in crate::core) struct CopyStream(Mutex<Option<CUstream>>);

impl CopyStream {
    /// The stream for the next copy.
    pub(in crate::core) fn get(&self) -> CUstream {
        // A compaction is for a device whose memory is short: if it is too short for a stream, the default stream does it.
        let create = || stream::create_with_priority(flags::STREAM_NON_BLOCKING, 0);
        *lock(&self.0).get_or_insert_with(|| create().unwrap_or(CUstream::LEGACY))
    }

    /// Waits for the copies, and destroys the stream. Refused, it is waited for again.
    pub(in crate::core) fn wait(&self, state: &ContextState) -> result::Result {
        let mut stream = lock(&self.0);
        let Some(used) = *stream else {
            return Ok(());
        };
        // SAFETY: `get` created it, or it is the default stream of the current context.
        unsafe { stream::synchronize(used)? };
        *stream = None;
        if used != CUstream::LEGACY {
            let key = Key::new(ResourceKind::Stream, used.0 as u64);
            // SAFETY: `get` created it, and nothing has its handle any more.
            let destroyed = unsafe { free::free(key, CUstream::NULL) };
            if let Err(error) = destroyed {
                state.record_failed_free(key, 0, None, error);
            }
        }
        Ok(())
    }
}
