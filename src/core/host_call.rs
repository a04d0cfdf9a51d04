//! Closures of the program that a stream or a graph calls.
//!
//! A closure may borrow, so it must neither run nor be dropped after the scope that enqueued it has ended. The end of a
//! A closure may borrow, so it must neither run nor be dropped after the scope that enqueued it has ended. The end of a
//! scope waits for the stream, and after this wait the stream's host functions have returned, with one exception: after
//! a fault on the device the driver reports an unusable context at once, while a host function may still be running. So
//! each call runs under the lock of its [`CallGroup`], and the end of the scope closes the group under the same lock:
//! closing waits for a running closure, and a closure that has not run by then never runs.
//!
//! For a closure of a graph, the driver gets a number instead of a pointer. When an update from a graph fails, the
//! program may drop that graph while the driver, against its promise, still calls the graph's host functions.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};

use cuguard_sync::process;

use crate::core::shared::lock::lock;

/// The payload of a panic.
pub(crate) type Panic = Box<dyn Any + Send>;

/// The calls of one scope, or of one graph.
#[derive(Default)]
pub(crate) struct CallGroup(Mutex<GroupState>);

#[derive(Default)]
struct GroupState {
    /// No call runs from now on.
    closed: bool,
    /// The first panic that was not carried on yet.
    panic: Option<Panic>,
}

impl fmt::Debug for CallGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallGroup")
    }
}

/// The calls of graphs, by number.
static GRAPH_CALLS: LazyLock<Mutex<HashMap<usize, Weak<HostCall>>>> = LazyLock::new(Mutex::default);

/// A closure with its group. The driver has a pointer to this, or its number.
pub(crate) struct HostCall {
    group: Arc<CallGroup>,
    /// Its number in [`GRAPH_CALLS`]; 0 for none.
    number: AtomicUsize,
    function: Mutex<Option<Box<dyn FnMut() + Send>>>,
    /// It ran for the last time, and the driver has no pointer to it any more.
    finished: AtomicBool,
}

impl fmt::Debug for HostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostCall(finished: {:?})", self.finished)
    }
}

/// Drops the program's value, and returns the panic of the drop.
fn drop_caught<T>(value: T) -> Option<Panic> {
    catch_unwind(AssertUnwindSafe(|| drop(value))).err()
}

impl GroupState {
    fn keep(&mut self, panic: Option<Panic>) {
        let Some(panic) = panic else { return };
        if self.panic.is_none() {
            self.panic = Some(panic);
        } else if let Some(another) = drop_caught(panic) {
            // One panic is carried on. The drop of another's payload panicked in turn.
            std::mem::forget(another);
        }
    }
}

impl CallGroup {
    /// Waits for a call that is running. From now on none runs. The panic, if a call panicked, is the caller's.
    pub(crate) fn close(&self) -> Option<Panic> {
        let mut state = lock(&self.0);
        state.closed = true;
        state.panic.take()
    }

    /// The panic of a call that ran.
    pub(crate) fn take_panic(&self) -> Option<Panic> {
        lock(&self.0).panic.take()
    }
}

impl HostCall {
    /// # Safety
    ///
    /// What the closure borrows is valid until it is dropped: by [`settle_once`](Self::settle_once), or by the drop of
    /// [`GraphCalls`].
    pub(crate) unsafe fn new(
        group: &Arc<CallGroup>,
        function: Box<dyn FnMut() + Send + '_>,
    ) -> Arc<Self> {
        // SAFETY: only the lifetime changes; the caller ensures that it is not used beyond.
        let function = unsafe {
            std::mem::transmute::<Box<dyn FnMut() + Send + '_>, Box<dyn FnMut() + Send>>(function)
        };
        Arc::new(Self {
            group: group.clone(),
            number: AtomicUsize::new(0),
            function: Mutex::new(Some(function)),
            finished: AtomicBool::new(false),
        })
    }

    /// The argument of [`run_once`], with a reference of the driver's own.
    pub(crate) fn once_argument(self: &Arc<Self>) -> *mut c_void {
        Arc::into_raw(self.clone()).cast_mut().cast()
    }

    /// The argument of [`run_each`], which does nothing once the last reference is dropped.
    pub(crate) fn each_argument(self: &Arc<Self>) -> *mut c_void {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.number.store(number, Ordering::Relaxed);
        lock(&GRAPH_CALLS).insert(number, Arc::downgrade(self));
        std::ptr::without_provenance_mut(number)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    fn run(&self, once: bool) {
        let mut group = lock(&self.group.0);
        if group.closed {
            return;
        }
        let mut function = lock(&self.function);
        let Some(call) = function.as_mut() else {
            return;
        };
        group.keep(catch_unwind(AssertUnwindSafe(call)).err());
        if once {
            group.keep(drop_caught(function.take()));
        }
    }

    /// Drops the closure, after its group was closed. Returns the panic of the drop.
    fn drop_function(&self) -> Option<Panic> {
        let function = lock(&self.function).take();
        drop_caught(function)
    }

    /// Drops a call of [`run_once`] after its group was closed. `idle`: the stream has finished its work, so that the
    /// driver does not call any more. Where that is unknown, a few bytes stay allocated for a late call.
    pub(crate) fn settle_once(self: Arc<Self>, idle: bool) -> Option<Panic> {
        let panic = self.drop_function();
        if idle && !self.is_finished() {
            // SAFETY: the reference that `once_argument` made for the driver, which has not called with it and does not
            // any more.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(&self)) };
        }
        panic
    }
}

impl Drop for HostCall {
    fn drop(&mut self) {
        let number = *self.number.get_mut();
        // In a forked child a thread that does not exist may hold the lock.
        if number != 0 && !process::is_forked() {
            lock(&GRAPH_CALLS).remove(&number);
        }
    }
}

/// The calls of a graph, which may run at each launch.
#[derive(Debug)]
pub(crate) struct GraphCalls<'env> {
    group: Arc<CallGroup>,
    calls: Vec<Arc<HostCall>>,
    /// What the closures borrow.
    env: PhantomData<&'env ()>,
}

impl GraphCalls<'_> {
    /// # Safety
    ///
    /// What the closures borrow is valid for as long as the lifetime of this lasts.
    pub(crate) unsafe fn new(group: Arc<CallGroup>, calls: Vec<Arc<HostCall>>) -> Self {
        Self {
            group,
            calls,
            env: PhantomData,
        }
    }

    pub(crate) fn group(&self) -> &Arc<CallGroup> {
        &self.group
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

impl Drop for GraphCalls<'_> {
    fn drop(&mut self) {
        let calls = std::mem::take(&mut self.calls);
        if calls.is_empty() {
            return;
        }
        if process::is_forked() {
            // A thread that does not exist here may hold the lock.
            return std::mem::forget(calls);
        }
        // The scope that launched the graph has waited for it. If the device failed, the driver may call late: that waits for
        // the group, or does nothing.
        drop(self.group.close());
        for call in calls {
            if let Some(panic) = call.drop_function() {
                // A drop does not panic.
                std::mem::forget(panic);
            }
        }
    }
}

/// The host function of a stream: calls the closure, and drops it.
///
/// # Safety
///
/// `argument` is from [`HostCall::once_argument`] and used once.
pub(crate) unsafe extern "C" fn run_once(argument: *mut c_void) {
    // SAFETY: as the caller ensures. What the closure borrows is valid: its scope drops it, or waits here for it.
    let call = unsafe { Arc::from_raw(argument.cast::<HostCall>()) };
    call.run(true);
    call.finished.store(true, Ordering::Release);
}

/// The host function of a graph: calls the closure with the number of [`HostCall::each_argument`], if it exists.
pub(crate) extern "C" fn run_each(argument: *mut c_void) {
    let call = lock(&GRAPH_CALLS).get(&argument.addr()).cloned();
    if let Some(call) = call.and_then(|call| call.upgrade()) {
        call.run(false);
    }
}
