//! Scopes over several streams: work that uses the same memory is ordered, other work is not, and all of it is waited for.

mod ends;
mod order;
mod random;

use std::time::Duration;

use crate::support::*;
use cuguard::{Context, DeviceBuffer, PinnedBuffer, Result, Stream};

const LEN: usize = 1000;

struct World {
    context: Context,
    first: Stream,
    second: Stream,
    data: DeviceBuffer<u32>,
    seen: PinnedBuffer<u32>,
}

impl World {
    /// All of `data` is 7.
    fn new() -> Result<Self> {
        let context = context()?;
        let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
        Ok(Self {
            data: DeviceBuffer::from_slice(&context, &[7; LEN])?,
            seen: PinnedBuffer::zeroed(&context, LEN)?,
            first,
            second,
            context,
        })
    }
}

/// A stream is working, and still is after a while.
#[track_caller]
fn assert_waits(stream: &Stream) {
    std::thread::sleep(Duration::from_millis(20));
    assert!(!stream.is_idle().unwrap(), "it waits for nothing");
}
