//! The comparison that all tests make: one stack, captured by this crate and by `backtrace`.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::cell::RefCell;
use std::hint::black_box;
use std::process::Output;

use cuguard_stack::{Method, Remembered, capture, capture_with_rules, frame_at, method};

/// More frames than any stack of these tests has.
pub const MANY: usize = 600;

/// Whether a stack must be covered by rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Rules,
    Backtrace,
    Either,
}

thread_local! {
    static REMEMBERED: RefCell<Remembered<&'static [usize]>> = RefCell::new(Remembered::new(MANY));
}

fn keep(frames: &[usize]) -> &'static [usize] {
    Box::leak(frames.into())
}

/// Captures the stack of the caller with both methods and compares. Returns how many frames there are.
#[inline(never)]
pub fn check(by: By) -> usize {
    let mut frames = [0; MANY];
    let mut again = [0; MANY];
    let count = capture(&mut frames);
    let covered = capture_with_rules(&mut again);
    let mut expected = Vec::new();
    backtrace::trace(|frame| {
        if !frame.ip().is_null() {
            expected.push((frame.ip() as usize, frame.symbol_address() as usize));
        }
        true
    });
    compare(&frames[..count], &expected);
    let numbered: Vec<usize> = frames[..count]
        .iter()
        .map(|frame| frame_at(*frame))
        .collect();
    // A stack that is known must be the same one, whatever was captured before.
    // While the thread's locals are dropped, there is none.
    for _ in 0..black_box(3) {
        let kept = REMEMBERED.try_with(|remembered| remembered.borrow_mut().capture(keep));
        let Ok(kept) = kept else {
            break;
        };
        let skipped = kept.len() - (count - 1);
        assert_eq!(kept[skipped..], numbered[1..]);
    }
    match (by, covered) {
        (By::Rules, None) => panic!("not covered by rules: {:x?}", &frames[..count]),
        (By::Backtrace, Some(_)) => panic!("covered by rules: {:x?}", &frames[..count]),
        (_, Some(other)) => assert_eq!(again[1..other], frames[1..count]),
        (_, None) => {}
    }
    black_box(count)
}

/// `frames` start in the frame of `check`. `expected` starts further inside, and its frame of
/// `check` has another address in the same function.
fn compare(frames: &[usize], expected: &[(usize, usize)]) {
    let own = expected
        .iter()
        .position(|&(_, function)| function == check as fn(By) -> usize as usize)
        .expect("`check` is on the stack");
    let outer: Vec<usize> = expected[own + 1..].iter().map(|&(ip, _)| ip).collect();
    assert!(!frames.is_empty() && frames.len() < MANY);
    assert_eq!(
        frames[1..],
        outer,
        "\n  capture:   {:x?}\n  backtrace: {:x?}",
        &frames[1..],
        &outer[..]
    );
}

/// Where there are rules at all, these tests must use them.
pub fn rules() -> By {
    match method() {
        Method::Rules => By::Rules,
        _ => By::Either,
    }
}

/// Runs one test of this binary in a process of its own, with a variable set.
pub fn child(test: &str, variable: &str) -> Output {
    cuguard_testing::test_command(test)
        .env(variable, "1")
        .output()
        .expect("a child")
}
