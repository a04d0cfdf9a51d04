//! Per-thread state: the stack of current contexts, whether the thread runs a host function, which
//! default stream its call uses, its stream capture mode, and the thread's number.
//!
//! Nothing here has a destructor, so that it works in exit handlers, which run after the thread's
//! other thread-local values are destroyed.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::handle::Id;

const DEPTH: usize = 256;

struct Stack {
    len: usize,
    contexts: [Id; DEPTH],
}

thread_local! {
    static STACK: RefCell<Stack> = const { RefCell::new(Stack { len: 0, contexts: [0; DEPTH] }) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static OWN_DEFAULT_STREAM: Cell<bool> = const { Cell::new(false) };
    /// `CU_STREAM_CAPTURE_MODE_GLOBAL`
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's current context.
pub(crate) fn current() -> Option<Id> {
    STACK.with_borrow(|stack| stack.contexts[..stack.len].last().copied())
}

/// Pushes a context; `false` if the stack is full.
pub(crate) fn push(context: Id) -> bool {
    STACK.with_borrow_mut(|stack| {
        let fits = stack.len < DEPTH;
        if fits {
            stack.contexts[stack.len] = context;
            stack.len += 1;
        }
        fits
    })
}

pub(crate) fn pop() -> Option<Id> {
    STACK.with_borrow_mut(|stack| {
        stack.len = stack.len.checked_sub(1)?;
        Some(stack.contexts[stack.len])
    })
}

/// Replaces the top of the stack, as `cuCtxSetCurrent` does; `None` only pops it.
pub(crate) fn set_current(context: Option<Id>) {
    pop();
    context.map(push);
}

/// Runs a host function, in which driver calls fail.
pub(crate) fn run_host_function(function: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    function();
    IN_HOST_FUNCTION.set(false);
}

pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// Makes a driver call in which the default stream is the thread's own.
pub(crate) fn with_own_default_stream<T>(call: impl FnOnce() -> T) -> T {
    OWN_DEFAULT_STREAM.set(true);
    let result = call();
    OWN_DEFAULT_STREAM.set(false);
    result
}

/// Whether the default stream is the thread's own in the driver call that the thread makes.
pub(crate) fn has_own_default_stream() -> bool {
    OWN_DEFAULT_STREAM.get()
}

/// Sets the calling thread's stream capture mode and returns the mode before.
pub(crate) fn replace_capture_mode(mode: u32) -> u32 {
    CAPTURE_MODE.replace(mode)
}

/// The calling thread's stream capture mode.
pub(crate) fn capture_mode() -> u32 {
    CAPTURE_MODE.get()
}

/// The calling thread's number, which no other thread gets.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}
