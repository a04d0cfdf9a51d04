//! Each thread's stack of current contexts, and whether the thread is inside a host function.
//!
//! Nothing here has a destructor, so that it still answers in exit handlers, which run after a
//! thread's other local values are gone.

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
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The context on top of the calling thread's stack.
pub(crate) fn top() -> Option<Id> {
    STACK.with_borrow(|stack| stack.contexts[..stack.len].last().copied())
}

/// Pushes a context; `false` if the stack is full, at a depth of 256.
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

/// Replaces the top, as `cuCtxSetCurrent` does; `None` takes it away.
pub(crate) fn replace(context: Option<Id>) {
    pop();
    if let Some(context) = context {
        push(context);
    }
}

/// Runs a host function: driver calls inside it are refused.
pub(crate) fn as_host_function<R>(function: impl FnOnce() -> R) -> R {
    IN_HOST_FUNCTION.set(true);
    let result = function();
    IN_HOST_FUNCTION.set(false);
    result
}

pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// A number of the calling thread's own, never used again.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}
