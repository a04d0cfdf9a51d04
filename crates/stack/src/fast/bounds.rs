//! Where the stack of the calling thread lies. Nothing outside of it is read.

use std::cell::Cell;
use std::mem::MaybeUninit;

use super::rule::MARGIN;

/// How often libc is asked by a thread that is not on the stack that libc told. More than once,
/// because some libcs tell of the main thread's stack only the part in use, and it grows.
const TRIES: u8 = 8;

#[derive(Clone, Copy)]
struct Stack {
    low: usize,
    high: usize,
    tries: u8,
}

thread_local! {
    // Without a destructor, so that it is there while other thread locals are destroyed.
    static STACK: Cell<Stack> = const {
        Cell::new(Stack { low: 0, high: 0, tries: 0 })
    };
}

/// The upper end of the calling thread's stack, if `sp` lies on it. All from [`MARGIN`] bytes below
/// `sp` up to there is readable.
#[inline(always)]
pub(super) fn top(sp: usize) -> Option<usize> {
    let stack = STACK.get();
    if stack.low <= sp && sp < stack.high {
        return Some(stack.high);
    }
    ask(sp)
}

/// How much of the stack is left, on a thread that [`top`] has told of.
pub(super) fn room() -> usize {
    let here = 0_u8;
    (&raw const here as usize).saturating_sub(STACK.get().low)
}

#[cold]
fn ask(sp: usize) -> Option<usize> {
    let stack = STACK.get();
    if stack.tries == TRIES {
        return None;
    }
    // Before the question: libc allocates for it, and an allocator may want a stack as well.
    STACK.set(Stack {
        tries: stack.tries + 1,
        ..stack
    });
    let (low, high) = query()?;
    STACK.set(Stack {
        low,
        high,
        tries: stack.tries + 1,
    });
    (low <= sp && sp < high).then_some(high)
}

/// Lower and upper end of the calling thread's stack, as libc tells.
fn query() -> Option<(usize, usize)> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the place for the answer is there.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let mut low = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: the call above has filled the attributes. They are not used after the second call.
    let answer = unsafe {
        let answer = libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        answer
    };
    let low = low as usize;
    // Multiples of 8, as the walk wants it.
    let high = low.checked_add(size)? & !7;
    // With the margin, and with room for the frames of this crate.
    let low = low.checked_add(MARGIN)?;
    (answer == 0 && low < high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_lies_on_the_stack_and_a_box_does_not() {
        for _ in 0..2 * TRIES {
            let local = 0usize;
            let sp = &raw const local as usize;
            assert!(top(sp).is_some_and(|high| high > sp && high % 8 == 0));
            let boxed = Box::new(0usize);
            assert_eq!(top(&raw const *boxed as usize), None);
        }
    }
}
