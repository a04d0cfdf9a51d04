//! The program's callbacks that free memory when an allocation fails.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cuguard_sync::process;

use super::context_state::{ContextState, this_thread};
use super::lock::lock;

type Callback = Arc<dyn Fn(u64) + Send + Sync>;

/// The callbacks of one context, in order of registration.
#[derive(Default)]
pub(crate) struct Callbacks {
    list: Mutex<List>,
    /// Notified when a call ends.
    call_ended: Condvar,
}

#[derive(Default)]
struct List {
    /// The number of the last one registered.
    last: u64,
    all: Vec<(u64, Callback)>,
    /// The threads that run a callback, once for each call.
    calling: Vec<usize>,
    /// Teardown has begun.
    closed: bool,
}

/// How long teardown waits for callbacks that run on other threads. A callback may itself wait for the thread that
/// closes the context.
const PATIENCE: Duration = Duration::from_secs(1);

impl Callbacks {
    fn lock(&self) -> MutexGuard<'_, List> {
        lock(&self.list)
    }

    /// Calls the callbacks that are registered now, in order, until `enough` returns true. Returns whether there are
    /// any. Each is looked up when its turn comes: one that is removed meanwhile is not called, and this holds no
    /// reference to those that are not running.
    pub(crate) fn call_each(&self, bytes: u64, enough: &mut dyn FnMut() -> bool) -> bool {
        // Callbacks that a callback registers are not called this time.
        let last = self.lock().last;
        let (mut number, mut any) = (0, false);
        while let Some(call) = self.begin(number + 1, last) {
            number = call.number;
            any = true;
            (call.callback)(bytes);
            // Frees what only this call owned before the next attempt.
            drop(call);
            if enough() {
                break;
            }
        }
        any
    }

    /// Begins a call of the first callback with a number in this range.
    fn begin(&self, first: u64, last: u64) -> Option<Call<'_>> {
        let mut list = self.lock();
        let mut all = list.all.iter();
        let (number, callback) = all.find(|(number, _)| (first..=last).contains(number))?;
        let (number, callback) = (*number, callback.clone());
        list.calling.push(this_thread());
        Some(Call {
            number,
            callback,
            _active: ActiveCall(self),
        })
    }

    /// Whether teardown has begun: an allocation after a callback then fails.
    pub(crate) fn are_closed(&self) -> bool {
        // In a forked child a thread that does not exist may hold the lock; nothing works there.
        !process::is_forked() && self.lock().closed
    }

    pub(crate) fn count(&self) -> u64 {
        self.lock().all.len() as u64
    }

    /// Drops all callbacks, for teardown. A callback may own guards, which keep this context's state alive.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.clear();
    }

    /// Drops the callbacks, and what they own. Calls in progress go on.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut self.lock().all);
        // Without the lock: the drop is the program's code.
        drop(all);
    }

    /// Waits until no other thread runs a callback, for at most [`PATIENCE`]: what a running callback owns is dropped
    /// when the call ends, and is no leak. A call of this thread, which closes its own context, is not waited for.
    pub(crate) fn wait_for_calls(&self) {
        let until = Instant::now() + PATIENCE;
        let mut list = self.lock();
        while list.calling.iter().any(|thread| *thread != this_thread()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || process::is_exiting() {
                return;
            }
            // Polls, because nothing notifies of the exit.
            let pause = left.min(Duration::from_millis(10));
            let waited = self.call_ended.wait_timeout(list, pause);
            list = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A callback that is being called.
struct Call<'a> {
    number: u64,
    callback: Callback,
    /// Dropped last: what the callback owns is dropped before the call ends.
    _active: ActiveCall<'a>,
}

/// Counts this thread as running a callback until dropped, also by a panic.
struct ActiveCall<'a>(&'a Callbacks);

impl Drop for ActiveCall<'_> {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist may hold the lock.
        if process::is_forked() {
            return;
        }
        let mut list = self.0.lock();
        let mut calling = list.calling.iter();
        if let Some(index) = calling.position(|thread| *thread == this_thread()) {
            list.calling.swap_remove(index);
        }
        drop(list);
        self.0.call_ended.notify_all();
    }
}

/// A registered callback that frees memory; see [`Context::release_on_oom`](crate::Context::release_on_oom). It is
/// called until this or its context is dropped.
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
        let mut number = 0;
        // In a forked child a thread that does not exist may hold the lock, and nothing is allocated.
        if !process::is_forked() {
            let mut list = state.callbacks.lock();
            list.last += 1;
            number = list.last;
            list.all.push((number, callback));
        }
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
        // In a forked child a thread that does not exist may hold the lock.
        if process::is_forked() {
            return;
        }
        let mut list = state.callbacks.lock();
        let mut all = list.all.iter();
        let index = all.position(|(number, _)| *number == self.number);
        let callback = index.map(|index| list.all.remove(index));
        // Without the lock: the drop is the program's code.
        drop(list);
        drop(callback);
    }
}
