//! Stacks of all shapes that compilers generate: the addresses are those of `backtrace`.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
))]

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::common::{By, check, rules};
use cuguard_stack::{Method, capture, capture_with_backtrace, method};

#[test]
fn rules_are_chosen() {
    assert_eq!(method(), Method::Rules);
}

#[test]
fn a_test() {
    assert!(check(rules()) > 4);
}

#[inline(never)]
fn recurse(depth: usize, by: By) -> usize {
    if depth == 0 {
        return check(by);
    }
    black_box(recurse(black_box(depth - 1), by)) + 1
}

#[test]
fn deep() {
    let shallow = recurse(0, rules());
    let deep = recurse(200, rules());
    assert_eq!(deep, shallow + 400, "200 frames, and 200 counted");
}

#[inline(never)]
fn even(depth: usize, by: By) -> usize {
    let local = black_box([depth; 5]);
    let found = if depth == 0 {
        check(by)
    } else {
        odd(depth - 1, by)
    };
    black_box(local);
    found
}

#[inline(never)]
fn odd(depth: usize, by: By) -> usize {
    let local = black_box([depth; 77]);
    let found = if depth == 0 {
        check(by)
    } else {
        even(depth - 1, by)
    };
    black_box(local);
    found
}

#[test]
fn two_functions_in_turn() {
    for depth in [0, 1, 2, 31, 100] {
        assert!(even(depth, rules()) > depth);
    }
}

#[test]
fn closures_and_trait_objects() {
    trait Ask {
        fn ask(&self, by: By) -> usize;
    }
    struct Direct;
    struct Through(Box<dyn Ask>);
    impl Ask for Direct {
        fn ask(&self, by: By) -> usize {
            let found = check(by);
            black_box(found)
        }
    }
    impl Ask for Through {
        fn ask(&self, by: By) -> usize {
            let found = black_box(&self.0).ask(by);
            black_box(found)
        }
    }
    let ask: Box<dyn Ask> = Box::new(Through(Box::new(Through(Box::new(Direct)))));
    let by = rules();
    let closure = |extra: usize| black_box(ask.ask(by)) + black_box(extra);
    let boxed: Box<dyn Fn(usize) -> usize> = Box::new(|extra| black_box(closure(extra + 1)));
    assert!(black_box(boxed)(1) > 6);
}

#[test]
fn generic_functions_that_are_inlined() {
    #[inline(always)]
    fn each<T, F: FnMut(T) -> usize>(items: impl IntoIterator<Item = T>, f: F) -> usize {
        items.into_iter().map(f).fold(0, usize::max)
    }
    let by = rules();
    let found = each([[1u8; 3], [2; 3]], |item| {
        each(item, |byte| {
            black_box(check(by)) + usize::from(black_box(byte))
        })
    });
    assert!(found > 4);
}

thread_local! {
    static FOUND: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

extern "C" fn order(a: *const c_void, b: *const c_void) -> c_int {
    FOUND.set(FOUND.get() + check(rules()));
    // SAFETY: both point to numbers of the array.
    unsafe { *a.cast::<i32>() - *b.cast::<i32>() }
}

#[test]
fn callbacks_from_libc() {
    let mut numbers = [3, 1, 2, 5, 4];
    FOUND.set(0);
    // SAFETY: the array has five elements of four bytes.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 5, 4, Some(order)) };
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    let key = 4;
    // SAFETY: as above.
    let found = unsafe {
        libc::bsearch(
            (&raw const key).cast(),
            numbers.as_ptr().cast(),
            5,
            4,
            Some(order),
        )
    };
    assert_eq!(found, (&raw mut numbers[3]).cast());
    assert!(FOUND.get() > 10);
}

#[test]
fn inside_catch_unwind() {
    let found = catch_unwind(|| {
        let inner = catch_unwind(|| black_box(check(rules())));
        black_box(inner.expect("no panic"))
    });
    assert!(found.expect("no panic") > 4);
}

#[test]
fn in_a_drop_while_a_panic_unwinds() {
    struct Checks<'a>(&'a mut usize);
    impl Drop for Checks<'_> {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            // The frames between are those of the unwinder itself.
            *self.0 = check(By::Either);
        }
    }
    let mut found = 0;
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _checks = Checks(&mut found);
        // Without the hook, which would print.
        resume_unwind(Box::new(17));
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&17));
    assert!(found > 4);
}

#[repr(align(64))]
struct Aligned([u64; 16]);

#[repr(align(4096))]
struct Page([u8; 4096]);

#[inline(never)]
fn aligned(by: By, depth: usize) -> usize {
    let local = black_box(Aligned([depth as u64; 16]));
    assert_eq!((&raw const local) as usize % 64, 0);
    let found = if depth == 0 {
        page(by)
    } else {
        aligned(by, depth - 1)
    };
    black_box(local.0[depth % 16]);
    found
}

#[inline(never)]
fn page(by: By) -> usize {
    let local = black_box(Page([1; 4096]));
    assert_eq!((&raw const local) as usize % 4096, 0);
    let found = check(by);
    black_box(local.0[found % 4096]);
    found
}

#[test]
fn frames_that_are_aligned() {
    assert!(aligned(rules(), 12) > 12);
}

#[inline(never)]
fn big<const N: usize>(next: &dyn Fn() -> usize) -> usize {
    let local = black_box([7u8; N]);
    let found = next();
    black_box(local[found % N]);
    found
}

#[test]
fn frames_that_are_big() {
    let by = rules();
    let found = big::<100>(&|| big::<5000>(&|| big::<70_000>(&|| big::<16>(&|| check(by)))));
    assert!(found > 8);
    // Larger than a rule can express on AArch64.
    assert!(big::<300_000>(&|| check(By::Either)) > 4);
}

#[inline(never)]
fn busy(next: &mut dyn FnMut() -> usize, seed: usize) -> usize {
    // More values that live across the call than there are registers.
    let values: [usize; 12] = std::array::from_fn(|at| black_box(seed + at));
    let [a, b, c, d, e, f, g, h, i, j, k, l] = values;
    let found = next();
    assert_eq!(
        a + b + c + d + e + f + g + h + i + j + k + l,
        12 * seed + 66
    );
    found
}

#[test]
fn registers_that_are_all_in_use() {
    let by = rules();
    let found = busy(&mut || busy(&mut || busy(&mut || check(by), 3), 2), 1);
    assert!(found > 8);
}

#[test]
fn short_buffers_get_the_innermost_frames() {
    #[inline(never)]
    fn both(a: &mut [usize], b: &mut [usize]) -> (usize, usize) {
        let found = (capture(a), capture_with_backtrace(b));
        black_box(found)
    }
    let (mut a, mut b) = ([usize::MAX; 64], [usize::MAX; 64]);
    // Both from one line, so that the caller is at the same address each time.
    for length in [64, 0, 1, 2, 5, 64] {
        let (mut short, mut other) = ([usize::MAX; 64], [usize::MAX; 64]);
        let found = both(&mut short[..length], &mut other[..length]);
        if (a[0], length) == (usize::MAX, 64) {
            (a, b) = (short, other);
        }
        assert_eq!(found.0, found.1);
        assert!(found.0 == length || length == 64 && found.0 > 5);
        assert_eq!(short[..length], a[..length]);
        assert_eq!(other[..length], b[..length]);
        assert!(
            short[found.0..]
                .iter()
                .all(|&address| address == usize::MAX)
        );
    }
    assert_eq!(a[1..], b[1..]);
}
