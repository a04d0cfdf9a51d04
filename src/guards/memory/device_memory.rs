//! Copies and fills of device memory: the one implementation for buffers, boxes and views.
//!
//! The kind of memory determines which work an access must be ordered after:
//!
//! - Synchronous memory: nothing is pending on it but work on the default stream. (Scopes wait for their work.)
//! - Stream-ordered memory: work on its home stream; work on the default stream too, once other code has its address.
//!
//! Copies wait until they are complete. Fills of stream-ordered memory need not: each later access is ordered after the
//! home stream.

use std::sync::Arc;

use cuguard_driver::result::{self, copy, stream};
use cuguard_driver::sys::{CUdeviceptr, CUresult, CUstream};
use cuguard_registry::ResourceKind;

use crate::core::{ContextState, Entered, OwnedResource, StreamState, page_locked, wait};
use crate::error::{Error, Result};

/// A range of device memory that is borrowed for `'a`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceMemory<'a> {
    address: CUdeviceptr,
    bytes: usize,
    state: &'a Arc<ContextState>,
    home: Option<&'a Arc<StreamState>>,
    /// Knows whether other code has the address. `None`: it may have.
    owned: Option<&'a OwnedResource>,
    /// Whether it is a block of a pool of this crate, where there is no owner that knows it.
    is_pooled: bool,
}

impl<'a> DeviceMemory<'a> {
    /// All memory of a resource, or the memory at another address that lives as long as it.
    pub(in crate::guards) fn of(
        owned: &'a OwnedResource,
        address: CUdeviceptr,
        bytes: usize,
    ) -> Self {
        Self {
            address,
            bytes,
            state: owned.state(),
            home: owned.home(),
            owned: Some(owned),
            is_pooled: false,
        }
    }

    /// Memory without an owner at hand.
    pub(crate) fn of_parts(
        address: CUdeviceptr,
        bytes: usize,
        state: &'a Arc<ContextState>,
        home: Option<&'a Arc<StreamState>>,
    ) -> Self {
        Self {
            address,
            bytes,
            state,
            home,
            owned: None,
            is_pooled: false,
        }
    }

    /// The same memory, as a block of a pool of this crate or not.
    pub(crate) fn pooled(self, is_pooled: bool) -> Self {
        Self { is_pooled, ..self }
    }

    pub(crate) fn address(&self) -> CUdeviceptr {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn state(&self) -> &'a Arc<ContextState> {
        self.state
    }

    /// The stream that stream-ordered memory is allocated and freed on; `None` for synchronous memory.
    pub(crate) fn home(&self) -> Option<&'a Arc<StreamState>> {
        self.home
    }

    /// Whether it is a block of a pool of this crate.
    pub(crate) fn is_pooled(&self) -> bool {
        self.owned.map_or(self.is_pooled, |owned| {
            owned.key().kind == ResourceKind::Pooled
        })
    }

    /// A part that lies within the memory.
    pub(super) fn part(self, offset: usize, bytes: usize) -> Self {
        Self {
            // Within the allocation, so this does not overflow.
            address: self.address + offset as u64,
            bytes,
            ..self
        }
    }

    /// Where work on the memory is enqueued: its home stream, or the default stream.
    fn stream(&self) -> CUstream {
        self.home.map_or(CUstream::NULL, |home| home.handle())
    }

    /// Whether work on the default stream may still use the memory.
    fn is_used_on_default_stream(&self) -> bool {
        self.home.is_none() || self.owned.is_none_or(OwnedResource::is_exposed)
    }

    /// Fails if other code captures the home stream: a copy or a fill would become a node of its graph, which may run after
    /// the memory is freed. (Captures of this crate have streams of their own.) The context is current.
    pub(super) fn check_not_captured(&self, entered: &Entered<'_>) -> Result<()> {
        let Some(home) = self.home else {
            // The driver refuses work on the default stream then.
            return Ok(());
        };
        // SAFETY: the stream is alive.
        if entered.check(unsafe { stream::is_capturing(home.handle()) })? {
            return Err(Error::Capture {
                operation: entered.operation(),
                reason: "the stream of the memory is being captured",
            });
        }
        Ok(())
    }

    /// Orders the home stream after the default stream, if other code may have the address of stream-ordered memory. The context is
    /// current.
    fn order_home(&self, entered: &Entered<'_>) -> Result<()> {
        match self.home {
            Some(home) if self.is_used_on_default_stream() => {
                entered.check(home.order_after_handle(entered, CUstream::NULL))
            }
            _ => Ok(()),
        }
    }

    /// Waits for the home stream, or for the default stream: a synchronous copy from pageable memory or a fill may return
    /// before the device is done, and non-blocking streams do not wait for the default stream.
    pub(super) fn wait(&self, entered: &Entered<'_>) -> Result<()> {
        wait_for(entered, self.home)
    }

    /// Waits for work on the memory that a call has enqueued, even if the call failed: the error may come from earlier
    /// work, with this work begun.
    pub(super) fn finish(&self, entered: &Entered<'_>, enqueued: result::Result) -> Result<()> {
        finish_on(entered, self.home, enqueued, self.bytes)
    }

    /// Copies from the host. Synchronous. The context is current.
    ///
    /// # Safety
    ///
    /// `from` has as many bytes as the memory, which nothing else uses meanwhile.
    pub(in crate::guards) unsafe fn write(
        &self,
        entered: &Entered<'_>,
        from: *const u8,
    ) -> Result<()> {
        let (bytes, from) = (self.bytes, from.cast());
        if bytes == 0 {
            return Ok(());
        }
        let copy = |_: Option<&_>| match self.home {
            None => {
                // SAFETY: both sides have this many bytes; the source is read before the call returns.
                let copied = unsafe { copy::htod(self.address, from, bytes) };
                entered.check_bytes(copied, bytes)?;
                self.wait(entered)
            }
            Some(home) => {
                self.check_not_captured(entered)?;
                self.order_home(entered)?;
                // On the home stream, because the memory is valid in its order.
                // SAFETY: both sides have this many bytes and are borrowed until `wait` returns.
                let enqueued =
                    unsafe { copy::htod_async(self.address, from, bytes, home.handle()) };
                self.finish(entered, enqueued)
            }
        };
        page_locked::with_owner(entered.operation(), self.state, from, copy)
    }

    /// Copies to the host. Synchronous. The context is current.
    ///
    /// # Safety
    ///
    /// `to` has as many bytes as the memory, and nothing else uses them meanwhile. No work writes the memory.
    pub(in crate::guards) unsafe fn read(&self, entered: &Entered<'_>, to: *mut u8) -> Result<()> {
        let (bytes, to) = (self.bytes, to.cast());
        if bytes == 0 {
            return Ok(());
        }
        let copy = |_: Option<&_>| match self.home {
            None => {
                // SAFETY: both sides have this many bytes; the call returns when the copy is done.
                let copied = unsafe { copy::dtoh(to, self.address, bytes) };
                entered.check_bytes(copied, bytes)
            }
            Some(home) => {
                self.check_not_captured(entered)?;
                self.order_home(entered)?;
                // SAFETY: both sides have this many bytes and stay valid until `wait` returns.
                let enqueued = unsafe { copy::dtoh_async(to, self.address, bytes, home.handle()) };
                self.finish(entered, enqueued)
            }
        };
        page_locked::with_owner(entered.operation(), self.state, to, copy)
    }

    /// Copies device memory of this or of another context. Synchronous.
    ///
    /// # Safety
    ///
    /// Both have equally many bytes and do not overlap. Nothing else uses the memory meanwhile, and no work writes
    /// `from`.
    pub(in crate::guards) unsafe fn copy_from(
        &self,
        operation: &'static str,
        from: &DeviceMemory<'_>,
    ) -> Result<()> {
        if !Arc::ptr_eq(self.state, from.state) {
            // SAFETY: as the caller ensures.
            return unsafe { self.copy_from_peer(operation, from) };
        }
        let entered = self.state.enter_to_wait(operation)?;
        if self.bytes == 0 {
            return Ok(());
        }
        self.check_not_captured(&entered)?;
        from.check_not_captured(&entered)?;
        let stream = self.home.or(from.home);
        let enqueued = match stream {
            // SAFETY: as the caller ensures, and both are borrowed until the stream is idle.
            Some(stream) => unsafe { self.enqueue_copy(&entered, stream, from)? },
            None => {
                let (to, from) = (self.address, from.address);
                // SAFETY: as above. Both are synchronous: pending work on them is on the default stream too.
                unsafe { copy::dtod_async(to, from, self.bytes, CUstream::NULL) }
            }
        };
        finish_on(&entered, stream, enqueued, self.bytes)
    }

    /// Enqueues a copy within the current context on `stream`, the home stream of one of the two, and orders it after
    /// pending work on both. The outer error is that of the ordering: nothing is enqueued.
    ///
    /// # Safety
    ///
    /// As [`copy_from`](Self::copy_from), until the stream is idle.
    pub(super) unsafe fn enqueue_copy(
        &self,
        entered: &Entered<'_>,
        stream: &StreamState,
        from: &DeviceMemory<'_>,
    ) -> Result<result::Result> {
        for home in [self.home, from.home].into_iter().flatten() {
            if home.handle() != stream.handle() {
                entered.check(stream.order_after_handle(entered, home.handle()))?;
            }
        }
        if self.is_used_on_default_stream() || from.is_used_on_default_stream() {
            entered.check(stream.order_after_handle(entered, CUstream::NULL))?;
        }
        // SAFETY: as the caller ensures; the stream is ordered after what is pending on both sides.
        Ok(unsafe { copy::dtod_async(self.address, from.address, self.bytes, stream.handle()) })
    }

    /// The copy from another context, perhaps of another device. Both contexts stay inside their gates, so neither is
    /// torn down meanwhile.
    ///
    /// # Safety
    ///
    /// As [`copy_from`](Self::copy_from).
    unsafe fn copy_from_peer(
        &self,
        operation: &'static str,
        from: &DeviceMemory<'_>,
    ) -> Result<()> {
        let bytes = self.bytes;
        if bytes != 0 {
            // Before the wait for the source, which a capture may prohibit.
            self.check_not_captured(&self.state.enter_to_wait(operation)?)?;
        }
        let of_source = from.state.enter_to_wait(operation)?;
        if bytes != 0 {
            // The thread waits: no stream of one context is ordered with those of another. Nothing has begun, so an
            // error of the wait is returned at once.
            from.check_not_captured(&of_source)?;
            from.order_home(&of_source)?;
            // SAFETY: the stream is alive, and of the current context.
            of_source.check(unsafe { stream::synchronize(from.stream()) })?;
        }
        // The current context is the destination's from here on.
        let entered = self.state.enter(operation)?;
        if bytes == 0 {
            return Ok(());
        }
        self.order_home(&entered)?;
        let (to, from) = (
            (self.address, self.state.context),
            (from.address, from.state.context),
        );
        // SAFETY: as the caller ensures; both contexts are alive, and both sides are borrowed until `wait` returns.
        let enqueued = unsafe { copy::peer_async(to, from, bytes, self.stream()) };
        self.finish(&entered, enqueued)
    }

    /// Sets every byte to zero. Synchronous, unless the memory is stream-ordered: then only enqueued. The context is
    /// current.
    ///
    /// # Safety
    ///
    /// Nothing else uses the memory meanwhile.
    pub(super) unsafe fn zero(&self, entered: &Entered<'_>) -> Result<()> {
        let bytes = self.bytes;
        if bytes == 0 {
            return Ok(());
        }
        if let Some(home) = self.home {
            self.check_not_captured(entered)?;
            self.order_home(entered)?;
            // SAFETY: the memory has this many bytes, and is valid on its home stream.
            let enqueued = unsafe { copy::set_d8_async(self.address, 0, bytes, home.handle()) };
            // Not waited for: every access to the memory is ordered after its home stream.
            return entered.check_bytes(enqueued, bytes);
        }
        // SAFETY: the memory has this many bytes.
        entered.check_bytes(unsafe { copy::set_d8(self.address, 0, bytes) }, bytes)?;
        self.wait(entered)
    }

    /// Fills the memory with copies of `value`. Synchronous, unless the memory is stream-ordered and the driver can fill
    /// with such values: then only enqueued. The context is current.
    ///
    /// # Safety
    ///
    /// Nothing else uses the memory meanwhile. It holds a whole number of such values.
    pub(super) unsafe fn fill(&self, entered: &Entered<'_>, value: &[u8]) -> Result<()> {
        let (address, bytes, stream) = (self.address, self.bytes, self.stream());
        if bytes == 0 {
            return Ok(());
        }
        self.check_not_captured(entered)?;
        self.order_home(entered)?;
        let Some(pattern) = Pattern::of(value, address) else {
            // SAFETY: as the caller ensures.
            return unsafe { self.fill_by_copies(entered, value) };
        };
        // SAFETY: the memory has this many bytes, a multiple of the pattern, and is aligned to it.
        let enqueued = unsafe {
            match pattern {
                Pattern::One(value) => copy::set_d8_async(address, value, bytes, stream),
                Pattern::Two(value) => copy::set_d16_async(address, value, bytes / 2, stream),
                Pattern::Four(value) => copy::set_d32_async(address, value, bytes / 4, stream),
            }
        };
        match self.home {
            // As in `zero`.
            Some(_) => entered.check_bytes(enqueued, bytes),
            None => self.finish(entered, enqueued),
        }
    }

    /// Copies one value from the host, then twice as much each time from the part that is filled. Synchronous.
    ///
    /// # Safety
    ///
    /// As [`fill`](Self::fill); the memory is not empty.
    unsafe fn fill_by_copies(&self, entered: &Entered<'_>, value: &[u8]) -> Result<()> {
        let (address, stream) = (self.address, self.stream());
        // SAFETY: the memory holds at least one value, and both are borrowed until the stream is idle.
        let first =
            unsafe { copy::htod_async(address, value.as_ptr().cast(), value.len(), stream) };
        if first.is_err() {
            return self.finish(entered, first);
        }
        let mut filled = value.len();
        let mut enqueued = Ok(());
        while filled < self.bytes && enqueued.is_ok() {
            let count = filled.min(self.bytes - filled);
            // SAFETY: within the memory; the parts do not overlap, as `count` is at most `filled`.
            enqueued = unsafe { copy::dtod_async(address + filled as u64, address, count, stream) };
            filled += count;
        }
        // Whatever the error: the copies before it have begun.
        let enqueued = entered.check_bytes(enqueued, self.bytes);
        self.wait(entered).and(enqueued)
    }
}

/// [`DeviceMemory::finish`] for work on a given stream.
fn finish_on(
    entered: &Entered<'_>,
    stream: Option<&Arc<StreamState>>,
    enqueued: result::Result,
    bytes: usize,
) -> Result<()> {
    let prohibited = enqueued.is_err_and(|error| is_prohibited_by_capture(error.code));
    let enqueued = entered.check_bytes(enqueued, bytes);
    if prohibited {
        // Nothing has begun, and the capture prohibits to wait too.
        return enqueued;
    }
    wait_for(entered, stream).and(enqueued)
}

/// Whether a call was refused because other code captures a stream.
fn is_prohibited_by_capture(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::STREAM_CAPTURE_UNSUPPORTED
            | CUresult::STREAM_CAPTURE_INVALIDATED
            | CUresult::STREAM_CAPTURE_ISOLATION
            | CUresult::STREAM_CAPTURE_IMPLICIT
    )
}

/// Waits for a stream, or for the default stream. The context is current.
fn wait_for(entered: &Entered<'_>, stream: Option<&Arc<StreamState>>) -> Result<()> {
    match stream {
        Some(stream) => stream
            .progress()
            .track_wait(|| wait::wait_until_idle(entered, stream.handle())),
        None => wait::wait_until_idle(entered, CUstream::NULL),
    }
}

/// What the driver can fill with: one, two or four bytes at an address that is a multiple of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    One(u8),
    Two(u16),
    Four(u32),
}

impl Pattern {
    /// The pattern whose repetition is a repetition of `value`, if the driver can fill with it at `address`.
    fn of(value: &[u8], address: CUdeviceptr) -> Option<Self> {
        let repeats = |bytes: usize| {
            let mut parts = value.chunks_exact(bytes);
            address.is_multiple_of(bytes as u64)
                && value.len().is_multiple_of(bytes)
                && parts.all(|part| part == &value[..bytes])
        };
        match *value {
            [a, ..] if repeats(1) => Some(Self::One(a)),
            [a, b, ..] if repeats(2) => Some(Self::Two(u16::from_ne_bytes([a, b]))),
            [a, b, c, d, ..] if repeats(4) => Some(Self::Four(u32::from_ne_bytes([a, b, c, d]))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn the_shortest_pattern_that_the_driver_can_fill_with() {
        let of = |value: &[u8]| Pattern::of(value, 256);
        assert_eq!(of(&[7]), Some(Pattern::One(7)));
        assert_eq!(of(&[7, 7, 7]), Some(Pattern::One(7)));
        assert_eq!(of(&0_u64.to_ne_bytes()), Some(Pattern::One(0)));
        assert_eq!(of(&0x102_u16.to_ne_bytes()), Some(Pattern::Two(0x102)));
        assert_eq!(
            of(&[1, 2, 1, 2, 1, 2]),
            Some(Pattern::Two(u16::from_ne_bytes([1, 2])))
        );
        assert_eq!(
            of(&1.5_f32.to_ne_bytes()),
            Some(Pattern::Four(1.5_f32.to_bits()))
        );
        assert_eq!(of(&[1, 2, 3]), None);
        assert_eq!(of(&[1, 2, 3, 4, 1, 2]), None);
        assert_eq!(of(&1.1_f64.to_ne_bytes()), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn the_driver_fills_aligned_memory_only() {
        assert_eq!(Pattern::of(&[1, 2], 3), None);
        assert_eq!(Pattern::of(&[1, 2, 3, 4], 2), None);
        assert_eq!(Pattern::of(&[1, 1, 1, 1], 3), Some(Pattern::One(1)));
    }
}
