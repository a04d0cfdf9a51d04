//! The program's callbacks that free memory when an allocation fails.
//!
//! One thread at a time calls them. A callback may make other threads allocate, and wait for them. If those threads
//! called the callback again, the recursion would never end, and nothing identifies these threads. So a thread
//! that needs the callbacks while another thread calls them waits, and retries its allocation after each call: the call
//! may have freed enough for both. After a while the waiting thread goes on without callbacks, because a callback may
//! be waiting for that thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuguard_sync::per_thread::thread_number;
use cuguard_sync::process;

use crate::core::shared::lock::lock;

pub(in crate::core) type Callback = Arc<dyn Fn(u64) + Send + Sync>;

/// The callbacks of one context, in order of registration.
#[derive(Default)]
pub(crate) struct Callbacks {
    list: Mutex<List>,
    /// Notified when a call ends, and when a thread has called all callbacks that it needs.
    ended: Condvar,
}

#[derive(Default)]
pub(in crate::core) struct List {
    /// The number of the last one registered.
    pub(in crate::core) last: u64,
    pub(in crate::core) all: Vec<(u64, Callback)>,
    /// The thread that calls the callbacks.
    caller: Option<Caller>,
    /// How often a thread has begun to call them.
    turns: u64,
    /// Teardown has begun.
    closed: bool,
}

/// A thread that calls callbacks, one after another.
struct Caller {
    /// By numbers that no later thread has: one that ended may have given up.
    thread: u64,
    /// Whether a callback is running. Not in between, when the allocation is retried.
    in_call: bool,
    /// The number of its turn, and of the calls in it that have ended.
    progress: (u64, u64),
    /// Threads that have waited for its end in vain, and do not wait again.
    gave_up: Vec<u64>,
}

/// How long teardown waits for callbacks that run on other threads. A callback may itself wait for the thread that
/// closes the context.
const PATIENCE: Duration = Duration::from_secs(1);

impl Callbacks {
    pub(in crate::core) fn lock(&self) -> MutexGuard<'_, List> {
        lock(&self.list)
    }

    /// Calls the callbacks that are registered now, in order, until `enough` returns true. Returns whether there are
    /// any. Each is looked up when its turn comes: one that is removed meanwhile is not called, and this holds no
    /// reference to those that are not running.
    ///
    /// Waits for up to `wait_at_most` for another thread that calls them.
    pub(crate) fn call_each(
        &self,
        bytes: u64,
        wait_at_most: Duration,
        enough: &mut dyn FnMut() -> bool,
    ) -> bool {
        if self.lock().all.is_empty() {
            return false;
        }
        // For all calls of other threads: each may be long.
        let until = Instant::now().checked_add(wait_at_most);
        let turn = loop {
            match self.begin_turn(until) {
                Begun::Turn(turn) => break turn,
                // If that was not enough, the callbacks may free more.
                Begun::AnotherEnded if enough() => return true,
                Begun::AnotherEnded => {}
                Begun::GaveUp => {
                    enough();
                    return true;
                }
            }
        };
        // Callbacks that a callback registers are not called this time.
        let last = self.lock().last;
        let (mut number, mut any) = (0, false);
        while let Some(call) = turn.begin_call(number + 1, last) {
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

    /// Begins to call callbacks, or waits for another thread that does.
    fn begin_turn(&self, until: Option<Instant>) -> Begun<'_> {
        let mut list = self.lock();
        // Not this thread: an allocation that fails inside a callback calls none.
        if let Some(other) = &list.caller {
            let progress = other.progress;
            if other.gave_up.contains(&thread_number()) {
                return Begun::GaveUp;
            }
            let goes_on = |list: &List| {
                let mut caller = list.caller.iter();
                !list.closed && caller.any(|caller| caller.progress == progress)
            };
            list = self.wait_while(list, until, goes_on);
            let mut caller = list.caller.as_mut();
            return match caller.take_if(|caller| caller.progress == progress) {
                None => Begun::AnotherEnded,
                Some(caller) => {
                    caller.gave_up.push(thread_number());
                    Begun::GaveUp
                }
            };
        }
        list.turns += 1;
        list.caller = Some(Caller {
            thread: thread_number(),
            in_call: false,
            progress: (list.turns, 0),
            gave_up: Vec::new(),
        });
        Begun::Turn(Turn(self))
    }

    /// Waits while `condition` holds, until a time if there is one.
    fn wait_while<'a>(
        &'a self,
        mut list: MutexGuard<'a, List>,
        until: Option<Instant>,
        condition: impl Fn(&List) -> bool,
    ) -> MutexGuard<'a, List> {
        while condition(&list) {
            let left = until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() || process::is_exiting() {
                break;
            }
            // Polls, because nothing notifies of the exit.
            let pause = left.min(Duration::from_millis(10));
            let waited = self.ended.wait_timeout(list, pause);
            list = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        list
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
        let is_called = |list: &List| {
            let mut caller = list.caller.iter();
            caller.any(|caller| caller.in_call && caller.thread != thread_number())
        };
        drop(self.wait_while(self.lock(), Instant::now().checked_add(PATIENCE), is_called));
    }
}

/// What comes of a thread's wish to call callbacks.
enum Begun<'a> {
    Turn(Turn<'a>),
    /// Another thread was calling them, and a call has ended.
    AnotherEnded,
    /// Another thread is calling them, and does not end.
    GaveUp,
}

/// This thread calls callbacks until dropped, also by a panic.
struct Turn<'a>(&'a Callbacks);

impl<'a> Turn<'a> {
    /// Begins a call of the first callback with a number in this range.
    fn begin_call(&self, first: u64, last: u64) -> Option<Call<'a>> {
        let mut list = self.0.lock();
        let mut all = list.all.iter();
        let (number, callback) = all.find(|(number, _)| (first..=last).contains(number))?;
        let (number, callback) = (*number, callback.clone());
        set_in_call(&mut list, true);
        Some(Call {
            number,
            callback,
            _active: ActiveCall(self.0),
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist may hold the lock.
        if !process::is_forked() {
            self.0.lock().caller = None;
            self.0.ended.notify_all();
        }
    }
}

fn set_in_call(list: &mut List, in_call: bool) {
    if let Some(caller) = &mut list.caller {
        caller.in_call = in_call;
        caller.progress.1 += u64::from(!in_call);
    }
}

/// A callback that is being called.
struct Call<'a> {
    number: u64,
    callback: Callback,
    /// Dropped last: what the callback owns is dropped before the call ends.
    _active: ActiveCall<'a>,
}

/// A call is in progress until this is dropped, also by a panic.
struct ActiveCall<'a>(&'a Callbacks);

impl Drop for ActiveCall<'_> {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist may hold the lock.
        if !process::is_forked() {
            set_in_call(&mut self.0.lock(), false);
            self.0.ended.notify_all();
        }
    }
}
