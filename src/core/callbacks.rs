//! The program's own way to give memory back when it runs out.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cuguard_sync::process;

use super::context_state::{ContextState, this_thread};

type Callback = Arc<dyn Fn(u64) + Send + Sync>;

/// The callbacks of one context, in the order in which they came.
#[derive(Default)]
pub(crate) struct Callbacks {
    list: Mutex<List>,
    /// A call is over.
    over: Condvar,
}

#[derive(Default)]
struct List {
    /// The number of the one that came last.
    last: u64,
    all: Vec<(u64, Callback)>,
    /// The threads that are in a call, once for each call.
    calling: Vec<usize>,
    /// Teardown has begun.
    closed: bool,
}

/// How long teardown waits for calls that other threads are in. A callback may wait for the thread
/// that closes its context, and then it would wait for ever.
const PATIENCE: Duration = Duration::from_secs(1);

impl Callbacks {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls those that are there now, one after the other, until there is enough. False where there
    /// are none. Each is looked up when its turn comes: nobody holds one that is not being called, and
    /// none is called that has gone meanwhile.
    pub(crate) fn call_each(&self, bytes: u64, enough: &mut dyn FnMut() -> bool) -> bool {
        // Those that callbacks themselves register wait for the next time.
        let last = self.lock().last;
        let (mut number, mut any) = (0, false);
        while let Some(call) = self.begin(number + 1, last) {
            number = call.number;
            any = true;
            (call.callback)(bytes);
            // What only this call still held goes before the next attempt.
            drop(call);
            if enough() {
                break;
            }
        }
        any
    }

    /// The call of the first callback whose number is one of these.
    fn begin(&self, first: u64, last: u64) -> Option<Call<'_>> {
        let mut list = self.lock();
        let mut all = list.all.iter();
        let (number, callback) = all.find(|(number, _)| (first..=last).contains(number))?;
        let (number, callback) = (*number, callback.clone());
        list.calling.push(this_thread());
        Some(Call {
            number,
            callback,
            _under_way: UnderWay(self),
        })
    }

    /// Whether teardown has begun. Who comes back from a call then is too late.
    pub(crate) fn are_closed(&self) -> bool {
        // In a forked child the lock may be held by a thread that is not there; nothing works there.
        !process::is_forked() && self.lock().closed
    }

    pub(crate) fn count(&self) -> u64 {
        self.lock().all.len() as u64
    }

    /// Lets go of all of them, for teardown. A callback may hold guards, and these hold the custody
    /// that this is in.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.clear();
    }

    /// Drops the callbacks, and what they own. Those that run go on.
    pub(crate) fn clear(&self) {
        let mut list = self.lock();
        let all = std::mem::take(&mut list.all);
        drop(list);
        drop(all);
    }

    /// Waits until no other thread is in a call, for a while: what a callback holds that is being
    /// called goes when the call is over, and that is no leak. A call of this thread itself, one that
    /// closes its context, is not over before this is.
    pub(crate) fn wait_for_calls(&self) {
        let until = Instant::now() + PATIENCE;
        let mut list = self.lock();
        while list.calling.iter().any(|thread| *thread != this_thread()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || process::is_exiting() {
                return;
            }
            // Nobody tells that the process is ending.
            let pause = left.min(Duration::from_millis(10));
            let waited = self.over.wait_timeout(list, pause);
            list = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A callback that is being called.
struct Call<'a> {
    number: u64,
    callback: Callback,
    /// Goes last: what the callback holds is gone when the call is over.
    _under_way: UnderWay<'a>,
}

/// This thread is in a call until this goes, also by a panic.
struct UnderWay<'a>(&'a Callbacks);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there.
        if process::is_forked() {
            return;
        }
        let mut list = self.0.lock();
        let mut calling = list.calling.iter();
        if let Some(place) = calling.position(|thread| *thread == this_thread()) {
            list.calling.swap_remove(place);
        }
        drop(list);
        self.0.over.notify_all();
    }
}

/// A callback that gives memory back; see
/// [`Context::release_on_oom`](crate::Context::release_on_oom). It is called until this
/// or its context is dropped.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use cuguard::{Context, DeviceBuffer};
/// use cuguard::oom::ReleaseCallback;
///
/// let context = Context::builder().memory_limit(1000).build()?;
/// let calls = Arc::new(AtomicU32::new(0));
/// let counter = Arc::clone(&calls);
/// let callback: ReleaseCallback = context.release_on_oom(move |_bytes| {
///     counter.fetch_add(1, Ordering::Relaxed);
/// });
/// assert!(DeviceBuffer::<u8>::zeroed(&context, 2000).is_err());
/// drop(callback);
/// assert!(DeviceBuffer::<u8>::zeroed(&context, 2000).is_err());
/// assert_eq!(calls.load(Ordering::Relaxed), 1);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[must_use = "the callback is called only as long as this is kept"]
pub struct ReleaseCallback {
    state: Weak<ContextState>,
    number: u64,
}

impl ReleaseCallback {
    pub(crate) fn register(state: &Arc<ContextState>, callback: Callback) -> Self {
        let mut list = state.callbacks.lock();
        list.last += 1;
        let number = list.last;
        list.all.push((number, callback));
        Self {
            state: Arc::downgrade(state),
            number,
        }
    }
}

impl fmt::Debug for ReleaseCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "release callback {}", self.number)
    }
}

impl Drop for ReleaseCallback {
    fn drop(&mut self) {
        let Some(state) = self.state.upgrade() else {
            return;
        };
        // In a forked child the lock may be held by a thread that is not there.
        if process::is_forked() {
            return;
        }
        let mut list = state.callbacks.lock();
        let place = list
            .all
            .iter()
            .position(|(number, _)| *number == self.number);
        let callback = place.map(|place| list.all.remove(place));
        // What it holds goes without the lock.
        drop(list);
        drop(callback);
    }
}
