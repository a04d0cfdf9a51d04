//! The bounds of the calling thread's stack. Nothing outside of it is read.

use std::cell::Cell;
use std::mem::MaybeUninit;

use super::rule::MARGIN;

/// How often a thread queries libc while it is not on the stack that libc returned. More than once,
/// because for the main thread some libcs return only the part in use, and it grows.
const TRIES: u8 = 8;

#[derive(Clone, Copy)]
struct Stack {
    low: usize,
    high: usize,
    tries: u8,
}

thread_local! {
    // Without a destructor, so that it is usable while other thread locals are destroyed.
    static STACK: Cell<Stack> = const {
        Cell::new(Stack { low: 0, high: 0, tries: 0 })
    };
}

/// The upper end of the calling thread's stack, if `sp` is on it. Everything from [`MARGIN`] bytes below
/// `sp` up to there is readable.
#[inline(always)]
pub(super) fn top(sp: usize) -> Option<usize> {
    let stack = STACK.get();
    if stack.low <= sp && sp < stack.high {
        return Some(stack.high);
    }
    query(sp)
}

/// How many bytes of stack are left, on a thread for which [`top`] succeeded.
pub(super) fn remaining() -> usize {
    let here = 0_u8;
    (&raw const here as usize).saturating_sub(STACK.get().low)
}

#[cold]
fn query(sp: usize) -> Option<usize> {
    let mut stack = STACK.get();
    if stack.tries == TRIES {
        return None;
    }
    stack.tries += 1;
    // Before the call: libc allocates in it, and an allocator may capture a stack as well.
    STACK.set(stack);
    (stack.low, stack.high) = stack_of_thread()?;
    STACK.set(stack);
    (stack.low <= sp && sp < stack.high).then_some(stack.high)
}

/// Lower and upper end of the calling thread's stack, from libc.
fn stack_of_thread() -> Option<(usize, usize)> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: `attributes` can be written to.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let mut low = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: the call above has filled the attributes. They are not used after the second call.
    let code = unsafe {
        let code = libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        code
    };
    let low = low as usize;
    // A multiple of 8, as the walk expects.
    let high = low.checked_add(size)? & !7;
    // Above the margin.
    let low = low.checked_add(MARGIN)?;
    (code == 0 && low < high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_is_on_the_stack_and_a_box_is_not() {
        for _ in 0..2 * TRIES {
            let local = 0usize;
            let sp = &raw const local as usize;
            assert!(top(sp).is_some_and(|high| high > sp && high % 8 == 0));
            let boxed = Box::new(0usize);
            assert_eq!(top(&raw const *boxed as usize), None);
        }
    }
}
